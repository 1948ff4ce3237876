"""One object of settings: typed, and what was asked for."""

import pytest

from casebook import training


def test_a_value_is_typed_and_stays_as_it_was_written():
    config = training.read_config(("poker", "smoke"), {"learning_rate": "1e-3"})
    assert config.learning_rate == 1e-3
    assert config.settings["learning_rate"] == "1e-3"
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
