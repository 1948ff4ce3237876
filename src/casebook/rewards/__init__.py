"""What a completion earns: shared reward parts, the reader of labels, attacks on a reward."""

# ruff: noqa: F401, the names that cases and notebooks use

from casebook.rewards.parts import (
    Reward,
    completion_text,
    last_block,
    noisy,
    part,
    random_reward,
    repetition_penalty,
    tag_blocks,
    tag_format,
)
