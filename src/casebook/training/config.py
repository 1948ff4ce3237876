"""What a training is asked to do, as TRL's parser types it.

The fields are TRL's own, those of `ModelConfig`, and what `CaseArguments` adds; which of them a
file may set, and to what, is in `casebook.settings`.
"""

import contextlib
import io
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml
from trl import GRPOConfig, ModelConfig, TrlParser

from casebook import processes
from casebook import settings as schema
from casebook.case import CasebookError, load_case
from casebook.paths import write_trouble
from casebook.records import digest
from casebook.training.kl_penalty import KL_PENALTY, KlPenalty

# Seeds, and what only concerns logging: the runs of one arm share everything else.
NOT_OF_THE_ARM = (
    *("seed", "report_to", "disable_tqdm"),
    *("save_steps", "save_total_limit", "save_minutes"),
)

METHODS = schema.METHODS
# How a policy is trained: TRL's GRPO, the loops of `casebook.grpo`, or a supervised control.
PLAIN = {n: n.removeprefix(schema.PLAIN) for n in METHODS if n.startswith(schema.PLAIN)}
SUPERVISED = ("sft", "rejection", "form")


@dataclass
class CaseArguments:
    """What a training needs beyond TRL's own arguments."""

    case: str = field(metadata={"help": "Name of the case."})
    profile: str = field(metadata={"help": "Name of the profile: which model and budget."})
    variant: str = field(metadata={"help": "Which prompt: 'reason' or 'label'."})
    reward_funcs: list[str] = field(metadata={"help": "Names of rewards, from the case."})
    reward_kwargs: dict | str = field(
        default_factory=dict, metadata={"help": "Reward name -> its parameters."}
    )
    max_seq_length: int = field(
        default=2048, metadata={"help": "Tokens of prompt and completion; longer prompts go."}
    )
    fast_inference: bool = field(
        default=False, metadata={"help": "Generate with vLLM inside Unsloth (A100)."}
    )
    train_limit: int = field(default=0, metadata={"help": "Only so many training rows; 0: all."})
    completions_every: int = field(
        default=10, metadata={"help": "Steps between files of completions."}
    )
    evaluate_every: int = field(
        default=20, metadata={"help": "Steps between evaluations on validation rows; 0: never."}
    )
    evaluate_rows: int = field(default=128, metadata={"help": "Validation rows evaluated."})
    save_minutes: float = field(
        default=0.0,
        metadata={"help": "A checkpoint after so many minutes without one; 0: by save_steps."},
    )
    measure: str = field(
        default="test",
        metadata={"help": "'test': before and after; 'validation': nothing on test rows."},
    )
    test_limit: int = field(default=0, metadata={"help": "Only so many test rows; 0: all."})
    test_samples: int = field(default=4, metadata={"help": "Completions for each test row."})
    method: str = field(
        default="grpo",
        metadata={"help": "'grpo' (TRL), 'plain_...' (casebook.grpo), 'sft', 'rejection', 'form'."},
    )
    text_variant: str | None = field(
        default=None, metadata={"help": "The prompt to which 'form' lets the model write."}
    )
    constraint: str = field(
        default="none", metadata={"help": "Labels only: 'trie', or 'position' as published."}
    )
    score_constrained: bool = field(
        default=True, metadata={"help": "Log-probabilities under the constraint, as sampled."}
    )
    prompts_once: bool = field(
        default=False, metadata={"help": "Compute a group's prompt once, not for each completion."}
    )
    also_evaluate: dict | str = field(
        default_factory=dict,
        metadata={"help": "Name -> settings of one more greedy evaluation before and after."},
    )
    pass_at_k_rows: int = field(default=0, metadata={"help": "Test rows for pass@k; 0: none."})
    pass_at_k_samples: int = field(default=64, metadata={"help": "Completions of each of them."})


@dataclass(frozen=True)
class Config:
    """What a training is asked to do; each value once, by the name that the file gives it.

    `config.max_steps`, `config.variant`, `config.lora_r`: every field of `CaseArguments`, of TRL's
    `GRPOConfig` and of its `ModelConfig`, converted by TRL's parser, with the default where the
    file says nothing.

    Attributes:
        settings: what was asked for, as the file writes it; records keep this.
    """

    settings: Mapping[str, Any]

    @cached_property
    def _parsed(self) -> tuple[CaseArguments, GRPOConfig, ModelConfig]:
        return _parse(self.settings)

    def __getattr__(self, name: str) -> Any:
        for part in () if name.startswith("_") else self._parsed:
            if hasattr(part, name):
                return getattr(part, name)
        raise AttributeError(f"a training has no setting {name!r}")

    def trainer_arguments(self, output_dir: str | Path | None = None) -> GRPOConfig:
        """TRL's own arguments for one trainer, which may save its checkpoints in another folder."""
        folder = {} if output_dir is None else {"output_dir": str(output_dir)}
        return _parse({**self.settings, **folder})[1]


def read_config(
    source: str | Path | tuple[str, str], overrides: Mapping[str, Any] | None = None
) -> Config:
    """Read, check and parse the configuration of a training.

    Args:
        source: a YAML file, or `(case, profile)` for `configs/<case>/<profile>.yaml`.
        overrides: fields that take another value, by the names the file uses.

    Raises:
        CasebookError: as `casebook.settings.checked`; or TRL refuses the settings.
    """
    config = Config(schema.checked(source, overrides))
    processes.begin()  # TRL's arguments join the others as soon as there are any
    where = "/".join(source) if isinstance(source, tuple) else str(source)
    try:
        _ = config.max_steps  # parses all of it
    except CasebookError as error:
        raise CasebookError(f"{where}: {error}") from error
    return config


def settings_mark(config: Config, left_out: Collection[str] = NOT_OF_THE_ARM) -> str:
    """A hash of a training's settings without those left out: 16 hexadecimal digits."""
    return digest({name: v for name, v in config.settings.items() if name not in left_out})


def reward_functions(config: Config) -> list[Callable]:
    """The reward functions a configuration names, made with its parameters, in its order."""
    rewards = {**load_case(config.case).rewards, KL_PENALTY: KlPenalty}
    parameters = config.reward_kwargs or {}
    return [rewards[name](**parameters.get(name, {})) for name in config.reward_funcs]


def _parse(settings: Mapping[str, Any]) -> tuple[CaseArguments, GRPOConfig, ModelConfig]:
    """Settings through TRL's own parser, which reads a file and converts what YAML calls text."""
    usage = io.StringIO()
    try:
        with NamedTemporaryFile("w", suffix=".yaml") as file, contextlib.redirect_stderr(usage):
            yaml.safe_dump(dict(settings), file)
            file.flush()
            return TrlParser((CaseArguments, GRPOConfig, ModelConfig)).parse_args_and_config(
                ["--config", file.name], fail_with_unknown_args=True
            )
    except SystemExit:  # argparse has said which value it could not read
        said = usage.getvalue().strip().rpartition("error: ")[2]
        raise CasebookError(f"a value has the wrong type: {said}") from None
    except OSError as error:
        if trouble := write_trouble(error):
            raise CasebookError(f"no temporary file can be written ({trouble})") from error
        raise
    except (ValueError, TypeError, ImportError, ArithmeticError) as error:
        raise CasebookError(str(error).strip().splitlines()[0]) from error
