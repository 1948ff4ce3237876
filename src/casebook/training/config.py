"""What a training is asked to do, as TRL's parser types it.

The fields are TRL's own, those of its `ModelConfig`, and those with a default of their own in
`casebook.settings`, whose table says which of them a file may set, and to what.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trl import GRPOConfig, ModelConfig, TrlParser

from casebook.case import CasebookError, Settings, load_case
from casebook.folder import TASK, place
from casebook.models import base_weights
from casebook.models.generation import TEMPLATE
from casebook.records import digest
from casebook.settings import FIELDS, TRLS, checked, marked
from casebook.training.kl_penalty import KL_PENALTY, KlPenalty

OWN = {name: field.own for name, field in FIELDS.items() if field.own is not TRLS}


@dataclass(frozen=True)
class Config:
    """What a training is asked to do; each value once, by the name that the file gives it.

    `config.max_steps`, `config.variant`, `config.lora_r`: every field of the table of settings, of
    TRL's `GRPOConfig` and of its `ModelConfig`, with the default where the file says nothing.

    Attributes:
        settings: what was asked for, as the file writes it; records keep this.
    """

    settings: Mapping[str, Any]

    @cached_property
    def _parsed(self) -> tuple[GRPOConfig, ModelConfig]:
        return _parse(self.settings)

    def __getattr__(self, name: str) -> Any:
        if name in OWN or name in ("case", "profile", "variant"):
            return self.settings.get(name, OWN.get(name))
        for part in () if name.startswith("_") else self._parsed:
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(f"a training has no setting {name!r}")

    def trainer_arguments(self, output_dir: str | Path | None = None) -> GRPOConfig:
        """TRL's own arguments for one trainer, which may save its checkpoints in another folder."""
        folder = {} if output_dir is None else {"output_dir": str(output_dir)}
        return _parse({**self.settings, **folder})[0]


def read_config(source: str | Path | tuple[str, str], overrides: Settings | None = None) -> Config:
    """Read, check and parse the configuration of a training.

    Args:
        source: a YAML file, or `(case, profile)` for `configs/<case>/<profile>.yaml`.
        overrides: fields that take another value, by the names the file uses.

    Raises:
        CasebookError: as `casebook.settings.checked`; or TRL refuses the settings.
    """
    config = Config(checked(source, overrides))
    try:
        _ = config.max_steps  # parses all of it
    except CasebookError as error:
        where = "/".join(source) if isinstance(source, tuple) else str(source)
        raise CasebookError(f"{where}: {error}") from error
    return config


def settings_mark(config: Config, left_out: Collection[str] | None = None) -> str:
    """A hash of a training's settings, and of a task of one's own with its base: 16 hex digits.

    Args:
        left_out: fields that do not count; by default those in which runs of one arm differ.
    """
    left_out = marked("own_run") if left_out is None else left_out
    asked = {name: v for name, v in config.settings.items() if name not in left_out}
    if (task := place(config.case) / TASK).is_file():  # it changes from one run to the next
        asked |= {"task": task.read_text("utf-8"), "base": base_weights(config.settings)}
    return digest(asked)


def reward_functions(config: Config) -> list[Callable]:
    """The reward functions a configuration names, made with its parameters, in its order."""
    rewards = {**load_case(config.case).rewards, KL_PENALTY: KlPenalty}
    parameters = config.reward_kwargs or {}
    return [rewards[name](**parameters.get(name, {})) for name in config.reward_funcs]


def _parse(settings: Mapping[str, Any]) -> tuple[GRPOConfig, ModelConfig]:
    try:
        parser = TrlParser((GRPOConfig, ModelConfig))
        asked = {**settings, "chat_template_kwargs": TEMPLATE}
        return parser.parse_dict(asked, allow_extra_keys=True)
    except (ValueError, TypeError, ImportError, ArithmeticError) as error:
        raise CasebookError(str(error).strip().splitlines()[0]) from error
