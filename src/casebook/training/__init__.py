"""A training: YAML in, a finished run folder out.

The names below are those that notebooks and other rooms use. Each is imported when it is asked
for: where Unsloth trains, it has to be imported before TRL.
"""

from importlib import import_module
from typing import Any

NAMES = {
    "config": "Config read_config reward_functions settings_mark",
    "kl_penalty": "KL_PENALTY KlPenalty",
    "log": "CURVE_WINDOW RunCallback curve skipped_steps text_of",
    "loop": "first_steps train training_rows",
    "measure": "input_digests kept_rows measure_base measure_test",
    "rollouts": "ConstrainedTrainer RolloutTrainer",
    "run": "Run default_folder find_run",
}
_home = {name: module for module, names in NAMES.items() for name in names.split()}
__all__ = sorted(_home)


def __getattr__(name: str) -> Any:
    if name in _home:
        return getattr(import_module(f"{__name__}.{_home[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
