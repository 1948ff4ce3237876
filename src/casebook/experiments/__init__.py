"""Arms x seeds become records, and records are replayed: does today's code still do this?"""

from casebook.experiments.arms import OTHER, other_prompt_perplexity, read_arms, run_experiments
from casebook.experiments.replay import Replay, replay

__all__ = ["OTHER", "Replay", "other_prompt_perplexity", "read_arms", "replay", "run_experiments"]
