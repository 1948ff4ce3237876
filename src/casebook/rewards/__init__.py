"""What a completion earns: shared reward parts, the reader of labels, attacks on a reward."""

from casebook.rewards.parts import (
    Reward,
    completion_text,
    last_block,
    random_reward,
    repetition_penalty,
    tag_blocks,
    tag_format,
)

__all__ = [
    "Reward",
    "completion_text",
    "last_block",
    "random_reward",
    "repetition_penalty",
    "tag_blocks",
    "tag_format",
]
