"""A policy for a case and profile, and the one way from a prompt to token ids."""

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
    hardware,
    largest_change,
    load_base,
    load_policy,
    load_saved,
    model_source,
    peft_arguments,
    read_settings,
    save_policy,
    set_seed,
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
]
