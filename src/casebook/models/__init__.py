"""A policy for a case and profile, and the one way from a prompt to token ids."""

from casebook.hardware import hardware

# Unsloth is imported by `load`, and has to come before everything it patches.
from casebook.models.load import (
    BACKEND,
    BACKENDS,
    CARD,
    CARD_FIELDS,
    UNSLOTH,
    FastLanguageModel,
    PeftLanguageModel,
    base_arguments,
    base_weights,
    describe,
    largest_change,
    load_base,
    load_policy,
    load_saved,
    model_source,
    peft_arguments,
    read_settings,
    save_policy,
    set_seed,
    weights_hash,
)

__all__ = [
    "BACKEND",
    "BACKENDS",
    "CARD",
    "CARD_FIELDS",
    "UNSLOTH",
    "FastLanguageModel",
    "PeftLanguageModel",
    "base_arguments",
    "base_weights",
    "describe",
    "hardware",
    "largest_change",
    "load_base",
    "load_policy",
    "load_saved",
    "model_source",
    "peft_arguments",
    "read_settings",
    "save_policy",
    "set_seed",
    "weights_hash",
]
