"""The settings of a training file: one table of fields, with everything about each.

`FIELDS` is the only list of them. They are checked here without torch or TRL, so a mistake is
reported within a second. The names are TRL's, those of its `ModelConfig`, and the case's own (the
fields with an `own` default). Any other field of TRL was never tried here, and is refused.
"""

import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from casebook import paths
from casebook.case import KL_PART, PROFILES, CasebookError, check_name, known_cases, load_case
from casebook.folder import beside, place

# TRL's GRPO, the loops of `casebook.grpo`, and the supervised controls.
METHODS = ("grpo", "plain_reinforce", "plain_ppo", "plain_grpo", "sft", "rejection")
PLAIN = {n: n.removeprefix("plain_") for n in METHODS if n.startswith("plain_")}
SUPERVISED = ("sft", "rejection")
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")  # those of `casebook.grpo`; TRL has more
CONSTRAINTS = ("none", "position", "trie")
SEEDS = 2**32 - 1  # NumPy takes none above
TRLS, ANY = object(), object()  # TRL's own default; no value is asked for


class Field(NamedTuple):
    """What a field takes, and what it decides.

    Attributes:
        kind: one of `KINDS`.
        low, high: bounds of a number, both included unless they are in `but`.
        none: whether null is taken, for TRL's own default.
        marks: some of these words: `needed` (no file may leave it out), `lora` (nor where an
            adapter is trained), `plain` (nor where a loop of `casebook.grpo` trains); `card`
            (decides how a saved policy is loaded and writes), `base` and `test` (only how a model
            is measured), `own_run` (differs between runs of one arm).
        own: the default of a field that is not TRL's.
        plain: the one value that the loops of `casebook.grpo` know. Others are refused: a setting
            that is read and ignored is how two runs get compared that were never the same.
    """

    kind: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    but: tuple[float, ...] = ()
    none: bool = False
    marks: str = ""
    own: Any = TRLS
    plain: Any = ANY

    def __str__(self) -> str:
        """What the field takes, in words."""
        text = KINDS[self.kind][0]
        if self.choices:
            text = f"one of {', '.join(self.choices)}"
        if self.low > -math.inf and self.high < math.inf:
            text += f" from {self.low:g} to {self.high:.10g}"
        elif self.low > -math.inf:
            text += f", at least {self.low:g}"
        return text + "".join(f", but not {value:g}" for value in self.but)

    def takes(self, value: Any) -> bool:
        """Whether a value of a file is one for this field."""
        if value is None:
            return self.none
        right = KINDS[self.kind][1](value)
        if self.kind in ("whole", "number"):
            number = _number(value)
            return right and self.low <= number <= self.high and number not in self.but
        return right and (not self.choices or value in self.choices)


def _number(value: Any) -> float:
    """A number, also where YAML calls it a text (`1e-3` has no point); else not a number."""
    right = isinstance(value, int | float | str) and not isinstance(value, bool)
    try:
        return float(value) if right else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _are_names(value: Any) -> bool:
    texts = isinstance(value, list) and all(map(_is_text, value))
    return texts and len(set(value)) == len(value) > 0


def _are_numbers(value: Any) -> bool:
    numbers = isinstance(value, list) and not any(isinstance(v, str) for v in value)
    return numbers and all(math.isfinite(_number(v)) for v in value)


def _is_plain(value: Any) -> bool:
    """Whether records can keep a mapping: names, and JSON's own types below them."""
    try:
        written = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(value, Mapping) and json.loads(written) == value


# Kind -> in words, and whether a value is that; bounds and choices come besides.
KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "whole": ("a whole number", lambda value: type(value) is int),
    "number": ("a number", lambda value: math.isfinite(_number(value))),
    "flag": ("true or false", lambda value: isinstance(value, bool)),
    "word": ("a word", lambda value: isinstance(value, str)),
    "text": ("a text", _is_text),
    "names": ("a list of different names", _are_names),
    "modules": ("a name or a list of different names", lambda v: _is_text(v) or _are_names(v)),
    "numbers": ("a list of numbers", _are_numbers),
    "mapping": ("a mapping of names to values", _is_plain),
}
FLAG, TEXT, MAPPING = Field("flag"), Field("text"), Field("mapping", none=True)
SHARE = Field("number", 0, 1)
AMOUNT = Field("number", 0)  # no bound above makes sense
COUNT = Field("whole", 0, 1_000_000)  # rows or steps, and 0 for all of them or for never
STEPS = Field("whole", 1, 1_000_000)
SIZE = Field("whole", 1, 65_536)


def _word(*choices: str, **more: Any) -> Field:
    return Field("word", choices=choices, **more)


FIELDS: dict[str, Field] = {
    # What is trained
    "case": TEXT._replace(marks="needed card"),
    "profile": _word(*PROFILES, marks="needed card"),
    "variant": TEXT._replace(marks="needed card"),
    "method": _word(*METHODS, own="grpo"),
    "seed": Field("whole", 0, SEEDS, marks="needed own_run"),
    # Model
    "model_name_or_path": TEXT._replace(marks="needed card"),
    "dtype": _word("float32", "bfloat16", "float16", marks="needed card"),
    "attn_implementation": _word("sdpa", "eager", "sdpa_grouped", marks="card"),
    "load_in_4bit": FLAG._replace(marks="needed card"),
    "fast_inference": FLAG._replace(marks="needed", own=False),
    "max_seq_length": Field("whole", 2, 1_000_000, marks="needed card", own=2048),
    "use_peft": FLAG._replace(marks="needed card"),
    "lora_r": Field("whole", 1, 4096, marks="lora"),
    "lora_alpha": SIZE._replace(marks="lora"),
    "lora_dropout": Field("number", 0, 1, but=(1,), marks="lora"),
    "lora_target_modules": Field("modules", marks="lora"),
    # Rewards
    "reward_funcs": Field("names", marks="needed", own=None),
    "reward_weights": Field("numbers", none=True),
    "reward_kwargs": MAPPING._replace(own={}),
    "multi_objective_aggregation": _word("sum_then_normalize"),
    # Rollouts
    "per_device_train_batch_size": SIZE._replace(marks="needed"),
    "gradient_accumulation_steps": SIZE._replace(marks="needed"),
    "steps_per_generation": SIZE._replace(none=True),
    "num_generations": Field("whole", 2, 65_536, marks="needed"),
    "max_completion_length": STEPS._replace(marks="needed card"),
    "temperature": Field("number", 0, 100, but=(0,), marks="needed card"),
    "top_p": Field("number", 0, 1, but=(0,), marks="needed card"),
    "top_k": COUNT._replace(marks="needed card"),
    "repetition_penalty": Field("number", 0, 100, but=(0,), marks="card", plain=1.0),
    "constraint": _word(*CONSTRAINTS, marks="card", own="none"),
    "score_constrained": FLAG._replace(own=True),
    "prompts_once": FLAG._replace(marks="base", own=False),
    "rollout_weights": _word("trained", "bfloat16", "4bit", own="trained", plain="trained"),
    "drop_silent_groups": FLAG._replace(own=False, plain=False),
    "shuffle_dataset": FLAG._replace(plain=True),
    "use_vllm": FLAG._replace(plain=False),
    "vllm_mode": _word("colocate"),
    "vllm_gpu_memory_utilization": Field("number", 0, 1, but=(0,)),
    "vllm_max_model_length": Field("whole", 1, 10_000_000, none=True),
    "vllm_enable_sleep_mode": FLAG,
    "vllm_importance_sampling_correction": FLAG,
    "vllm_importance_sampling_mode": _word(
        *("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
    ),
    "vllm_importance_sampling_clip_max": AMOUNT._replace(none=True, but=(0,)),
    # Loss
    "loss_type": _word(*LOSSES, "cispo", marks="plain"),
    "scale_rewards": _word("group", "batch", "none", marks="plain"),
    "beta": AMOUNT._replace(marks="needed"),
    "num_iterations": Field("whole", 1, 1000, marks="plain"),
    "epsilon": AMOUNT._replace(marks="plain"),
    "epsilon_high": AMOUNT._replace(none=True, marks="plain"),
    "importance_sampling_level": _word("token", "sequence", plain="token"),
    "mask_truncated_completions": FLAG._replace(plain=False),
    "use_bias_correction_kl": FLAG._replace(marks="plain"),
    "top_entropy_quantile": Field("number", 0, 1, but=(0,), plain=1.0),
    "entropy_coef": Field("number", plain=0.0),
    "disable_dropout": FLAG,
    # Optimiser
    "max_steps": STEPS._replace(marks="needed"),
    "learning_rate": Field("number", 0, 1000, marks="needed"),
    "lr_scheduler_type": _word(
        *("linear", "cosine", "cosine_with_min_lr", "constant", "constant_with_warmup"),
        marks="needed",
    ),
    "lr_scheduler_kwargs": MAPPING._replace(plain={}),
    "warmup_steps": Field("number", 0, 1_000_000, marks="plain"),
    "optim": _word(
        *("adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_8bit", "sgd"),
        plain="adamw_torch",
    ),
    "weight_decay": SHARE._replace(marks="plain"),
    "adam_beta1": Field("number", 0, 1, but=(1,), marks="plain"),
    "adam_beta2": Field("number", 0, 1, but=(1,), marks="plain"),
    "adam_epsilon": Field("number", 0, 1, but=(0,), marks="plain"),
    "max_grad_norm": AMOUNT._replace(marks="plain"),
    "gradient_checkpointing": FLAG._replace(marks="needed"),
    "gradient_checkpointing_kwargs": MAPPING,
    "use_gradient_checkpointing": _word("unsloth", own=None, plain=None),
    "use_cpu": FLAG._replace(marks="card"),
    "bf16": FLAG._replace(plain=False),
    "fp16": FLAG._replace(plain=False),
    # What is written down and measured
    "train_limit": COUNT._replace(own=0),
    "logging_steps": STEPS,
    "completions_every": STEPS._replace(own=10),
    "evaluate_every": COUNT._replace(own=20),
    "evaluate_rows": STEPS._replace(own=128),
    "measure": _word("test", "validation", own="test"),
    "test_limit": COUNT._replace(marks="test", own=0),
    "test_samples": Field("whole", 1, 10_000, marks="test", own=4),
    "also_evaluate": MAPPING._replace(marks="test", own={}),
    "pass_at_k_rows": COUNT._replace(marks="test", own=0),
    "pass_at_k_samples": Field("whole", 1, 10_000, marks="test", own=64),
    "save_strategy": _word("steps", "no"),
    "save_steps": STEPS._replace(marks="own_run"),
    "save_minutes": AMOUNT._replace(marks="own_run", own=0.0),
    "save_total_limit": STEPS._replace(none=True, marks="own_run"),
    "report_to": _word("none", "wandb", marks="own_run"),
    "disable_tqdm": FLAG._replace(marks="own_run"),
}


def marked(*marks: str) -> tuple[str, ...]:
    """The fields that bear one of these marks (see `Field`), in the order of the table."""
    return tuple(n for n, field in FIELDS.items() if set(marks) & set(field.marks.split()))


# What one more evaluation may set, and what the one schedule that ends above 0 has to.
ALSO = {"variant": TEXT, "constraint": FIELDS["constraint"], "limit": STEPS}
MIN_LR = {"cosine_with_min_lr": {"min_lr": AMOUNT, "min_lr_rate": SHARE}}
ARM_FIELDS = {"question", "profile", "seeds", "overrides"}
EXTENSION = "extension_hours"  # of an arm that is made only when it is named, and may wait
# What a setting needs installed: (field, its values) -> library.
LIBRARIES = {
    ("use_vllm", (True,)): "vllm",
    ("fast_inference", (True,)): "vllm",
    ("report_to", ("wandb",)): "wandb",
    ("optim", ("adamw_8bit", "paged_adamw_8bit")): "bitsandbytes",
}


def read_settings(case: str, profile: str) -> dict[str, Any]:
    """The training settings of a case and profile: `configs/<case>/<profile>.yaml` as a dict.

    Raises:
        CasebookError: unknown case or profile, or no such file.
    """
    load_case(case)
    check_name("profile", profile, PROFILES)
    path = place(case) / f"{profile}.yaml"
    if not path.exists():
        own = ", ".join(name for name in PROFILES if path.with_stem(name).exists())
        raise CasebookError(
            f"the case {case!r} has no configuration for {profile!r} ({path}), only for {own}"
        )
    return beside(read_yaml(path), path)


def checked(
    source: str | Path | tuple[str, str], overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The settings of a training, with everything checked that needs no model.

    Args:
        source: a YAML file, or `(case, profile)` for `configs/<case>/<profile>.yaml`.
        overrides: fields that take another value, by the names the file uses.

    Returns:
        Field -> value, numbers as floats, also `1e-3`, which YAML's grammar calls a text.

    Raises:
        CasebookError: no such file, an unknown name, a value that its field does not take, or
            values that cannot go together.
    """
    if isinstance(source, tuple):
        settings, where = read_settings(*source), "/".join(source)
    else:
        settings, where = beside(read_yaml(Path(source)), Path(source)), str(source)
    settings = settings | dict(overrides or {})
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise CasebookError("WORLD_SIZE is above 1: one training is one process on one GPU")
    try:
        _check_fields(settings, FIELDS)
        _check_names(settings)
        _check_together(settings)
    except CasebookError as error:
        raise CasebookError(f"{where}: {error}") from None
    return {
        name: value if value is None or FIELDS[name].kind != "number" else _number(value)
        for name, value in settings.items()
    }


def check_present(settings: Mapping[str, Any]) -> None:
    """Raise a `CasebookError` where a setting needs what is not here: a folder or a library."""
    model = settings["model_name_or_path"]
    on_disk = model.count("/") > 1 or model.startswith((".", "/", "~"))  # a hub's id is neither
    if on_disk and not (paths.ROOT / model).is_dir() and not Path(model).is_dir():
        raise CasebookError(f"there is no model folder at {model}: casebook nano build makes one")
    for (name, values), library in LIBRARIES.items():
        if settings.get(name) in values and find_spec(library) is None:
            said = f"{name} {settings[name]!r} needs {library}, which is not installed"
            raise CasebookError(said)


def read_arms(case: str) -> dict[str, dict[str, Any]]:
    """The arms of a case: name -> `profile`, `seeds`, `overrides`, `question`.

    An arm beyond the case's own question has `extension_hours` as well, an estimate for all of its
    seeds on one thread. It is made only when it is named.
    """
    check_name("case", case, known_cases())
    path = paths.CONFIGS / case / "experiments.yaml"
    if not path.exists():
        raise CasebookError(f"the case {case!r} has no experiments ({path})")
    arms = read_yaml(path)
    for name, arm in arms.items():
        if not isinstance(arm, Mapping) or set(arm) - {EXTENSION} != ARM_FIELDS:
            raise CasebookError(f"{path}: the arm {name!r} needs {', '.join(sorted(ARM_FIELDS))}")
        if not isinstance(arm["seeds"], list) or not isinstance(arm["overrides"], Mapping):
            raise CasebookError(f"{path}: the arm {name!r} needs a list of seeds and overrides")
    return arms


def chosen_runs(
    case: str, profile: str, arms: Iterable[str] | None, seeds: Iterable[int] | None
) -> list[tuple[str, int, dict[str, Any]]]:
    """The runs that some arms and seeds of a case name, all checked: arm, seed, overrides."""
    known = {name: arm for name, arm in read_arms(case).items() if arm["profile"] == profile}
    check_name("profile", profile, PROFILES)
    if not known:
        raise CasebookError(f"the case {case!r} has no arms of the profile {profile!r}")
    core = [name for name, arm in known.items() if EXTENSION not in arm]
    names, seeds = list(dict.fromkeys(arms or core)), list(seeds or ())
    runs = []
    for name in names:
        check_name(f"arm of {case}/{profile}", name, known)
        for seed in dict.fromkeys(seeds or known[name]["seeds"]):
            runs.append((name, seed, known[name]["overrides"]))
            try:
                checked((case, profile), {**known[name]["overrides"], "seed": seed})
            except CasebookError as error:
                raise CasebookError(f"the arm {name!r} of {error}") from None
    return runs


class _Loader(yaml.SafeLoader):
    """YAML in which a key that is there twice is an error, and not the last one's."""

    def compose_mapping_node(self, anchor):
        node, seen = super().compose_mapping_node(anchor), set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {key.value!r} is there twice"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return node


# YAML's grammar asks for a point and a sign, and calls `1e-3` a text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+$"), [*"+-0123456789"]
)


def parse_yaml(text: str) -> Any:
    """A value written in YAML; a `CasebookError` says what is wrong with the text, and where."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        said, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
        said = (said or str(error)) + (f" in line {mark.line + 1}" if mark else "")
        raise CasebookError("not valid YAML: " + said.replace("\n", " ")) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that maps names to values; a `CasebookError` says what is wrong with it."""
    try:
        if path.is_char_device() or path.stat().st_size > 2**20:
            raise CasebookError("no settings file: those have at most 1 MiB")
        settings = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CasebookError(f"{path} is not a text in UTF-8") from None
    except CasebookError as error:
        raise CasebookError(f"{path} is {error}") from None
    if not isinstance(settings, dict):
        raise CasebookError(f"{path} contains no mapping of field names to values")
    return settings


def _check_fields(
    settings: Mapping[Any, Any], known: Mapping[str, Field], of: str = "field"
) -> None:
    for name, value in settings.items():
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            hint = f": did you mean {close[0]!r}?" if close else ""
            raise CasebookError(f"unknown {of} {name!r}{hint}")
        if not known[name].takes(value):
            if value is None and "needed" in known[name].marks:
                raise CasebookError(f"the field {name!r} is missing")
            raise CasebookError(f"{name} is {reprlib.repr(value)}, and must be {known[name]}")


def _check_names(settings: Mapping[str, Any]) -> None:
    """What has to be there, and what the case has to know."""
    for name in marked("needed", *(["lora"] if settings.get("use_peft") else [])):
        if settings.get(name) is None:
            raise CasebookError(f"the field {name!r} is missing")
    case, rewards = load_case(settings["case"]), settings["reward_funcs"]
    case.grade("", "", variant=settings["variant"])  # an unknown variant is an error here
    for name in rewards:
        check_name("reward", name, (*case.rewards, KL_PART))
        if name.startswith("rung") and not str(settings["variant"]).startswith("rung-"):
            raise CasebookError(f"the reward {name!r} needs a variant rung-NAME")
    parameters = settings.get("reward_kwargs") or {}
    for name, given in parameters.items():
        check_name("reward in reward_kwargs", name, rewards)
        if not isinstance(given, Mapping):
            raise CasebookError(f"reward_kwargs of {name} must be {MAPPING}")
    try:
        for name in rewards:  # the KL part is no reward of the case, and takes no parameters
            case.rewards.get(name, lambda: None)(**parameters.get(name, {}))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise CasebookError(f"reward_kwargs do not fit: {error}") from error
    also = settings.get("also_evaluate") or {}
    for name, changes in also.items():
        if not isinstance(changes, Mapping):
            raise CasebookError("also_evaluate must map names to settings")
        _check_fields(changes, ALSO, f"setting of also_evaluate {name!r}")
        case.grade("", "", variant=changes.get("variant"))
    for rule in (part.get("constraint", "none") for part in (settings, *also.values())):
        if rule != "none" and not case.labels:
            raise CasebookError(f"constraint {rule!r} needs labels, and {case.name} has none")


def _check_together(settings: Mapping[str, Any]) -> None:
    """What each of two fields takes, but not both of them together."""
    rewards, weights = settings["reward_funcs"], settings.get("reward_weights")
    if weights is not None and len(weights) != len(rewards):
        raise CasebookError(f"{len(rewards)} reward_funcs, but {len(weights)} reward_weights")
    method, rule = settings.get("method", "grpo"), settings.get("constraint", "none")
    if rule != "none" and method in PLAIN:
        raise CasebookError(f"the method {method!r} samples without a constraint")
    if method in PLAIN:
        _check_plain(settings)
    written, room = settings["max_completion_length"], settings["max_seq_length"]
    if written >= room:
        raise CasebookError(
            f"max_completion_length {written} leaves no room for a prompt in max_seq_length {room}"
        )
    logging, steps = settings.get("logging_steps", 1), settings["max_steps"]
    if logging > steps:
        raise CasebookError(f"logging_steps is {logging}, but there are only {steps} steps")
    size = settings["per_device_train_batch_size"]
    size *= settings.get("steps_per_generation") or settings["gradient_accumulation_steps"]
    if size % settings["num_generations"]:
        raise CasebookError(
            f"{size} completions at a time (per_device_train_batch_size x steps_per_generation) "
            f"are not divisible by num_generations {settings['num_generations']}"
        )
    dropped = settings.get("drop_silent_groups")
    if dropped and (settings.get("loss_type") != "dapo" or settings["beta"]):
        raise CasebookError("drop_silent_groups needs loss_type 'dapo' and beta 0")
    if settings.get("prompts_once") and settings["gradient_checkpointing"]:  # that drops the cache
        raise CasebookError("prompts_once needs gradient_checkpointing false")
    mode = settings.get("vllm_importance_sampling_mode")
    if settings.get("rollout_weights", "trained") != "trained" and mode != "token_truncate":
        raise CasebookError("rollout_weights needs vllm_importance_sampling_mode 'token_truncate'")
    schedule = settings["lr_scheduler_type"]
    known, given = MIN_LR.get(schedule, {}), settings.get("lr_scheduler_kwargs") or {}
    _check_fields(given, known, f"parameter of {schedule}")
    if known and len(given) != 1:
        raise CasebookError(f"{schedule} needs lr_scheduler_kwargs with min_lr or min_lr_rate")
    if settings.get("measure") == "validation" and settings.get("evaluate_every") == 0:
        raise CasebookError("measure validation needs evaluate_every above 0")
    for name in ("use_peft", "vllm_gpu_memory_utilization"):
        if settings["fast_inference"] and not settings.get(name):
            raise CasebookError(f"fast_inference needs {name}")


def _check_plain(settings: Mapping[str, Any]) -> None:
    """What a loop of `casebook.grpo` does not know, or lacks."""
    for name in marked("plain"):
        if name not in settings:
            raise CasebookError(f"the field {name!r} is missing; a plain loop needs it")
    known = {name: field.plain for name, field in FIELDS.items() if field.plain is not ANY}
    known["steps_per_generation"] = settings["gradient_accumulation_steps"]
    for name, value in known.items():
        if settings.get(name) is not None and settings[name] != value:
            raise CasebookError(f"the plain loop takes {name} only as {value!r}")
    check_name("loss type", settings["loss_type"], LOSSES)
    if settings["beta"] and not (settings["method"] == "plain_grpo" and settings["use_peft"]):
        raise CasebookError("beta needs the algorithm 'grpo' and a model with an adapter")
