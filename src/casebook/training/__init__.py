"""A training: YAML in, a finished run folder out.

The names below are those that notebooks use. Each is imported when it is asked for, so that who
needs one room of this folder does not wait for TRL.
"""

from datasets import disable_progress_bars

from casebook import models  # noqa: F401, where Unsloth is asked for by name, it comes before TRL
from casebook.lazy import lazy_names

disable_progress_bars()  # of datasets; a training shows its own

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "config": """
            CaseArguments Config METHODS PLAIN SUPERVISED read_config reward_functions
            settings_mark
        """,
        "kl_penalty": "KL_PENALTY KlPenalty",
        "log": """
            CURVE CURVE_WINDOW RunCallback WATCH_EVERY WatchCallback curve skipped_steps text_of
        """,
        "loop": "first_steps train training_rows",
        "measure": "MEASURED input_digests kept_rows measure_base measure_test",
        "rollouts": "ConstrainedTrainer RolloutTrainer",
        "run": "Run default_folder find_run",
    },
)
