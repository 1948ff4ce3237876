"""A training: YAML in, a finished run folder out.

The names below are those that notebooks use. Each is imported when it is asked for, so that who
needs one room of this folder does not wait for TRL.
"""

from importlib import import_module

from datasets import disable_progress_bars

from casebook import models  # noqa: F401, where Unsloth is asked for by name, it comes before TRL

disable_progress_bars()  # of datasets; a training shows its own

_MODULES = {
    "config": (
        *("PLAIN", "METHODS", "CaseArguments", "Config", "read_config", "reward_functions"),
        *("SUPERVISED",),
    ),
    "origin": ("input_digests", "settings_mark"),
    "kl_penalty": ("KL_PENALTY", "KlPenalty"),
    "log": (
        "CURVE",
        "curve",
        "skipped_steps",
        "text_of",
        "CURVE_WINDOW",
        "WATCH_EVERY",
        "RunCallback",
        "WatchCallback",
    ),
    "loop": ("first_steps", "train", "training_rows"),
    "measure": ("MEASURED", "kept_rows", "measure_base", "measure_test"),
    "rollouts": ("ConstrainedTrainer", "RolloutTrainer"),
    "run": ("Run", "default_folder", "find_run"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
