"""Which runs are the same: a hash of all that decides what a training measures."""

import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from casebook import models
from casebook.case import load_case
from casebook.records import fingerprint
from casebook.training.config import PLAIN, Config

NOT_IN_FINGERPRINT = ("seed", "report_to", "disable_tqdm", "save_steps", "save_total_limit")


def run_fingerprint(config: Config) -> str:
    """The fingerprint of a training: configuration, base weights, rows and code (16 hex digits).

    Seeds and what only concerns logging are left out, so that the runs of one arm share it.
    """
    return fingerprint_without(config, NOT_IN_FINGERPRINT)


def fingerprint_without(config: Config, left_out: Collection[str]) -> str:
    """The fingerprint of a training in which the settings named do not count."""
    settings = {k: v for k, v in config.settings.items() if k not in left_out}
    case, profile = load_case(config.case.case), config.case.profile
    others = (changes.get("variant") for changes in config.case.also_evaluate.values())
    digest = hashlib.sha256()
    for variant in dict.fromkeys((config.case.variant, *filter(None, others))):
        for split in ("train", "test"):
            rows = case.load(split, profile=profile, variant=variant)
            digest.update(json.dumps([rows["prompt"][:], rows["answer"][:]]).encode())
    base = Path(models.model_source(config.model.model_name_or_path))
    weights = sorted(base.glob("*.safetensors")) + sorted(base.glob("tokenizer.json"))
    modules = ["grpo"] if config.case.method in PLAIN else []
    return fingerprint(case.name, settings, weights, digest.hexdigest(), modules)
