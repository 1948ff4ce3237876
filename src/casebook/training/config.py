"""What a training is asked to do: the YAML file, checked and parsed.

The fields are TRL's own, those of `ModelConfig`, and what `CaseArguments` adds. A mistake is one
sentence here, before a model is loaded.
"""

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml
from trl import GRPOConfig, ModelConfig, TrlParser

from casebook import grpo, models
from casebook.case import PROFILES, CasebookError, check_name, load_case
from casebook.models.decoding import KINDS
from casebook.training.kl_penalty import KL_PENALTY, KlPenalty

# How a policy is trained: TRL's GRPO, the loops of `casebook.grpo`, or a supervised control.
PLAIN = {f"plain_{name}": name for name in grpo.ALGORITHMS}
SUPERVISED = ("sft", "rejection")
METHODS = ("grpo", *PLAIN, *SUPERVISED)
# What TRL accepts without a word, or refuses only when it is too late.
CHOICES = {
    "method": METHODS,
    "constraint": KINDS,
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
}
LEAST = {
    **{"max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1},
    **{"num_generations": 2, "max_completion_length": 1, "completions_every": 1, "lora_r": 1},
    **{"evaluate_every": 0, "evaluate_rows": 1, "train_limit": 0, "test_limit": 0},
    **{"test_samples": 0, "save_steps": 1, "pass_at_k_rows": 0, "pass_at_k_samples": 1},
}
ALSO = ("variant", "constraint", "limit")  # what one more evaluation may set
REQUIRED = (
    *("case", "profile", "variant", "reward_funcs", "model_name_or_path", "dtype", "use_peft"),
    *("load_in_4bit", "fast_inference", "max_seq_length", "max_completion_length"),
    *("temperature", "top_p", "top_k"),
)


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
    test_limit: int = field(default=0, metadata={"help": "Only so many test rows; 0: all."})
    test_samples: int = field(default=4, metadata={"help": "Completions for each test row."})
    method: str = field(
        default="grpo",
        metadata={"help": "'grpo' (TRL), 'plain_...' (casebook.grpo), 'sft' or 'rejection'."},
    )
    constraint: str = field(
        default="none", metadata={"help": "Labels only: 'trie', or 'position' as published."}
    )
    score_constrained: bool = field(
        default=True, metadata={"help": "Log-probabilities under the constraint, as sampled."}
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
        CasebookError: no such file, not a mapping, an unknown field, reward, case or profile,
            or settings that cannot go together (a batch that `num_generations` does not divide).
    """
    if isinstance(source, tuple):
        settings, where = models.read_settings(*source), "/".join(source)
    else:
        settings, where = read_yaml(Path(source)), str(source)
    settings = settings | dict(overrides or {})
    known = [f.name for kind in (CaseArguments, GRPOConfig, ModelConfig) for f in fields(kind)]
    for name in settings:
        if name not in known:
            raise CasebookError(f"{where}: unknown field {name!r}{_did_you_mean(name, known)}")
    _check(settings, where)
    case = load_case(settings["case"])
    check_name("profile", settings["profile"], PROFILES)
    case.grade("", "", variant=settings["variant"])  # an unknown variant is an error here
    for name in settings["reward_funcs"]:
        check_name("reward", name, (*case.rewards, KL_PENALTY))
    for changes in (settings.get("also_evaluate") or {}).values():
        case.grade("", "", variant=changes.get("variant"))
    config = Config(settings)
    try:
        weights = config.reward_weights or settings["reward_funcs"]
    except _CannotParse as error:
        raise CasebookError(f"{where}: {error}") from error
    if len(weights) != len(settings["reward_funcs"]):
        raise CasebookError(
            f"{where}: {len(settings['reward_funcs'])} reward_funcs, but "
            f"{len(weights)} reward_weights"
        )
    reward_functions(config)  # parameters that do not fit are an error here
    return config


def reward_functions(config: Config) -> list[Callable]:
    """The reward functions a configuration names, made with its parameters, in its order."""
    rewards = {**load_case(config.case).rewards, KL_PENALTY: KlPenalty}
    parameters = config.reward_kwargs or {}
    for name in parameters:
        check_name("reward in reward_kwargs", name, config.reward_funcs)
    try:
        return [rewards[name](**parameters.get(name, {})) for name in config.reward_funcs]
    except TypeError as error:
        raise CasebookError(f"reward_kwargs do not fit: {error}") from error


def _check(settings: Mapping[str, Any], where: str) -> None:
    """Raise a `CasebookError` for what is missing, too small, or no choice there is."""
    required = [*REQUIRED]
    if settings.get("use_peft"):
        required += ["lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"]
    for name in required:
        if settings.get(name) is None:
            raise CasebookError(f"{where}: the field {name!r} is missing")
    names = settings["reward_funcs"]
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise CasebookError(f"{where}: reward_funcs must be a list of different names")
    for name, least in LEAST.items():
        value = settings.get(name, least)
        if isinstance(value, int | float) and value < least:
            raise CasebookError(f"{where}: {name} is {value}, and must be at least {least}")
    for name, choices in CHOICES.items():
        if isinstance(settings.get(name), str) or name in ("method", "constraint"):
            check_name(name, settings.get(name, choices[0]), choices)
    method, rule = settings.get("method", "grpo"), settings.get("constraint", "none")
    if rule != "none" and method not in ("grpo", "sft"):
        raise CasebookError(f"{where}: the method {method!r} samples without a constraint")
    if KL_PENALTY in settings["reward_funcs"] and not settings.get("use_peft"):
        raise CasebookError(f"{where}: {KL_PENALTY} needs an adapter: its base is the reference")
    also = settings.get("also_evaluate") or {}
    if not isinstance(also, Mapping) or not all(isinstance(c, Mapping) for c in also.values()):
        raise CasebookError(f"{where}: also_evaluate must map names to settings")
    for name, changes in also.items():
        for field_name in changes:
            check_name(f"setting of also_evaluate {name!r}", field_name, ALSO)
        check_name("constraint", changes.get("constraint", "none"), KINDS)
        limit = changes.get("limit", 1)
        if not isinstance(limit, int) or limit < 1:
            raise CasebookError(f"{where}: also_evaluate {name!r}: limit must be 1 or more")


class _CannotParse(CasebookError):
    """A value that TRL's parser does not take."""


def _parse(settings: Mapping[str, Any]) -> tuple[CaseArguments, GRPOConfig, ModelConfig]:
    """Settings through TRL's own parser, which reads a file and converts what YAML calls text."""
    usage = io.StringIO()
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(settings), file)
        file.flush()
        try:
            with contextlib.redirect_stderr(usage):
                return TrlParser((CaseArguments, GRPOConfig, ModelConfig)).parse_args_and_config(
                    ["--config", file.name], fail_with_unknown_args=True
                )
        except SystemExit:  # argparse has said which value it could not read
            said = usage.getvalue().strip().rpartition("error: ")[2]
            raise _CannotParse(f"a value has the wrong type: {said}") from None
        except (ValueError, TypeError, ImportError, ArithmeticError) as error:
            raise _CannotParse(str(error).strip().splitlines()[0]) from error


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(path.read_text())
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise CasebookError(f"{path} is not valid YAML: {error}".replace("\n", " ")) from error
    if not isinstance(settings, dict):
        raise CasebookError(f"{path} holds no mapping of field names to values")
    return settings


def _did_you_mean(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""
