"""One object of settings: typed, and what was asked for."""

from dataclasses import MISSING, fields
from typing import get_args, get_origin, get_type_hints

import pytest
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames
from trl import GRPOConfig, ModelConfig

from casebook import grpo, settings, training
from casebook.models.decoding import KINDS
from casebook.training.config import OWN

# Kind in the table -> the types that TRL's dataclasses give to such a field.
TYPES = {
    "whole": {int, float},
    "number": {float, int},
    "flag": {bool},
    "word": {str},
    "text": {str},
    "names": {list[str]},
    "modules": {list[str], str},
    "numbers": {list[float]},
    "mapping": {dict},
}
READERS = (GRPOConfig, ModelConfig)
READ = {f.name: f for kind in READERS for f in fields(kind)}
# The annotations: TRL's parser overwrites the types of the fields.
TYPED = {name: hint for kind in READERS for name, hint in get_type_hints(kind).items()}


@pytest.mark.parametrize("name", settings.FIELDS)
def test_every_field_of_the_table_is_one_that_trl_or_a_case_reads(name):
    field, read = settings.FIELDS[name], READ.get(name)
    if name in OWN or name in ("case", "profile", "variant"):
        assert read is None, f"DRIFT DETECTED: TRL has a field {name!r} now"
        return
    assert read is not None, f"DRIFT DETECTED: TRL has no {name!r}"
    hint = TYPED[name]
    types = {hint, *get_args(hint), *(get_origin(part) for part in get_args(hint))}
    assert TYPES[field.kind] & types or get_origin(hint) is dict, (
        f"DRIFT DETECTED: {name} is {hint} in TRL, and {field.kind} in the table"
    )
    if read.default is not MISSING and read.default is not None and field.kind != "word":
        assert field.takes(read.default) or "needed" in field.marks


def test_the_words_of_the_table_are_those_of_the_code():
    assert all(settings.FIELDS[n].takes(v) for n, v in OWN.items() if v is not None)
    words = {name: set(field.choices) for name, field in settings.FIELDS.items()}
    assert words["constraint"] == set(KINDS)
    assert set(settings.PLAIN.values()) == set(grpo.ALGORITHMS)
    assert words["lr_scheduler_type"] <= {str(kind.value) for kind in SchedulerType}
    assert words["optim"] <= {str(kind.value) for kind in OptimizerNames}
    assert words["dtype"] <= set(READ["dtype"].metadata["choices"])


def test_a_value_is_the_same_as_a_setting_and_as_trl_has_it():
    config = training.read_config(("poker", "smoke"), {"learning_rate": 1, "beta": "1e-3"})
    assert (config.learning_rate, config.beta) == (1.0, 0.001)
    assert (config.settings["learning_rate"], config.settings["beta"]) == (1.0, 0.001)
    assert (config.case, config.profile, config.method) == ("poker", "smoke", "grpo")


def test_the_trainer_gets_a_folder_of_its_own_and_the_settings_do_not_change(tmp_path):
    config = training.read_config(("poker", "smoke"))
    asked, before = dict(config.settings), config.output_dir
    arguments = config.trainer_arguments(tmp_path)
    assert arguments.output_dir == str(tmp_path)
    assert (config.settings, config.output_dir) == (asked, before)
    assert arguments.max_steps == config.max_steps


def test_what_is_no_setting_is_an_error():
    with pytest.raises(AttributeError, match="no setting 'max_step'"):
        _ = training.read_config(("poker", "smoke")).max_step
