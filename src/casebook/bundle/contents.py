"""The small files of a bundle, derived from its record: environment, model, decoding."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from casebook.bundle.measured import DECODINGS, WHEN, Measurement
from casebook.bundle.scrub import texts_in
from casebook.case import PROFILES, SPLITS, CasebookError, check_name, known_cases
from casebook.detectors import DETECTORS
from casebook.settings import FIELDS, read_arms, read_settings
from casebook.training.config import NOT_OF_THE_ARM, Config, read_config

GENERATORS = ("transformers", "unsloth", "vllm")  # what writes completions


def environment(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Driver, CUDA, GPU, versions and what wrote the completions, as a record has them."""
    hardware, versions = provenance["hardware"], provenance["versions"]
    return {
        "gpu": hardware["gpu"],
        "gpu_memory": hardware["gpu_memory"],
        "driver": hardware["gpu_driver"],
        "cuda": hardware.get("cuda"),
        "cpu": hardware["cpu"],
        "cores": hardware["cores"],
        "memory_gb": hardware["memory_gb"],
        "generator": provenance["model"]["generator"],
        "versions": dict(versions),
    }


def decodings(
    plans: Mapping[str, Measurement], ends: list[int], dropped: Mapping[str, list[int]]
) -> dict[str, Any]:
    """`measured.json`: how each file was decoded, which tokens end a completion, which rows were
    left out because their prompt leaves no room for one."""
    files = {
        name: {**plans[name].decoding, "dropped": list(dropped.get(name, []))} for name in plans
    }
    return {"ends": list(ends), "files": files}


def to_read(settings: Mapping[str, Any]) -> Config:
    """A configuration whose values can be read on a machine without the GPU that it was made for.

    TRL's parser refuses bf16 where nothing can compute with it; how a run computed decides neither
    what was measured nor how it is graded.

    Raises:
        CasebookError: as `casebook.settings.checked`; or TRL refuses the settings.
    """
    anywhere = {"use_cpu": True, "bf16": False, "fp16": False}
    return read_config((settings["case"], settings["profile"]), {**settings, **anywhere})


def overrides(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that are not its profile's, without its seed; `None` for one that the
    profile has and the run has not.

    Raises:
        CasebookError: there is no such case, or it has no such profile.
    """
    profile = read_settings(config["case"], config["profile"])
    own = {name: value for name, value in config.items() if not _equal(profile, name, value)}
    own |= {name: None for name in profile if name not in config}
    own.pop("seed", None)
    return own


def of_the_arm(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that the runs of one arm may differ in."""
    return {name: value for name, value in settings.items() if name not in NOT_OF_THE_ARM}


def own_words(case: str, profile: str) -> set[str]:
    """The texts that settings, measurements and findings of a case and profile are written in.

    Raises:
        CasebookError: there is no such case, or it has no such profile.
    """
    check_name("case", case, known_cases())
    try:
        arms = read_arms(case)
    except CasebookError:  # a case without experiments
        arms = {}
    rewards = import_module(f"casebook.cases.{case}.rewards")
    settings = [read_settings(case, profile), *(arm["overrides"] for arm in arms.values())]
    words = {*known_cases(), *PROFILES, *SPLITS, *rewards.VARIANTS, *rewards.REWARDS, *arms}
    words |= {*WHEN, *DECODINGS, *DETECTORS, *GENERATORS, *FIELDS}
    words |= {choice for field in FIELDS.values() for choice in field.choices}
    return words | {text for _, text in texts_in(settings)}


def _equal(profile: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether a profile says the same; YAML calls `1e-3` a text, and a record a number."""
    if name not in profile:
        return False
    said = profile[name]
    try:
        return said == value or (type(value) is float and float(said) == value)
    except (TypeError, ValueError):
        return False
