"""A policy for a case and profile, and the one way from a prompt to token ids."""

# ruff: noqa: F401, the names that notebooks and other rooms use

from casebook.backend import hardware

# `load` comes first: where CASEBOOK_BACKEND names Unsloth, it imports it before what it patches.
from casebook.models.engine import free as free_engine
from casebook.models.load import (
    FastLanguageModel,
    base_weights,
    describe,
    largest_change,
    load_base,
    load_policy,
    load_saved,
    model_source,
    read_settings,
    save_policy,
    set_seed,
    weights_hash,
)
