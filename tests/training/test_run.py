"""Finding a run again."""

import json

import pytest
import yaml

from casebook import training

RECORD = {"case": "poker", "profile": "smoke", "provenance": {}, "config": {}}


def finished(folder, seed=0, **changes):
    settings = training.read_config(("poker", "smoke"), {"seed": seed, **changes}).settings
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(settings)))
    (folder / "record.json").write_text(json.dumps(RECORD | {"seed": seed}))
    return folder


@pytest.mark.parametrize("changes", [{}, {"test_limit": 4}, {"report_to": "none"}])
def test_a_run_by_the_profiles_settings_is_found(tmp_path, changes):
    folder = finished(tmp_path / "poker" / "smoke" / "one", **changes)
    assert training.find_run("poker", "smoke", 0, tmp_path).path == folder
    assert training.find_run("poker", "smoke", 1, tmp_path) is None


def test_a_run_with_another_training_is_another_experiment(tmp_path):
    finished(tmp_path / "poker" / "smoke" / "one", beta=0.5)
    assert training.find_run("poker", "smoke", 0, tmp_path) is None
