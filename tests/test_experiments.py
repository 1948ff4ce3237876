"""Arms x seeds: what is made, what is not made again, and what a wrong name gets."""

import pytest
import yaml

from casebook import experiments, paths
from casebook.case import CasebookError
from casebook.records import committed, is_current, read_record

ARM = {
    "question": "Does it run?",
    "profile": "smoke",
    "seeds": [0, 1],
    "overrides": {"max_steps": 1, "evaluate_every": 0, "test_limit": 8},
}


@pytest.fixture
def arms(tmp_path, monkeypatch):
    """A folder of configurations with one small arm; results and runs go to `tmp_path`."""
    folder = tmp_path / "configs" / "poker"
    folder.mkdir(parents=True)
    (folder / "smoke.yaml").write_text((paths.CONFIGS / "poker" / "smoke.yaml").read_text())
    (folder / "experiments.yaml").write_text(yaml.safe_dump({"tiny": ARM}))
    monkeypatch.setattr(paths, "CONFIGS", tmp_path / "configs")
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    return folder / "experiments.yaml"


def test_records_are_made_once_and_made_again_when_the_configuration_changes(arms, tmp_path):
    lines = []
    written = experiments.run_experiments("poker", "smoke", log=lines.append)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "results/poker/smoke/tiny/seed0.json",
        "results/poker/smoke/tiny/seed1.json",
    ]
    assert [read_record(path)["seed"] for path in written] == [0, 1]
    assert read_record(written[0])["arm"] == "tiny"
    lines.clear()
    experiments.run_experiments("poker", "smoke", log=lines.append)
    assert lines == ["tiny, seed 0: current", "tiny, seed 1: current"]
    changed = ARM | {"seeds": [0], "overrides": ARM["overrides"] | {"beta": 0.1}}
    arms.write_text(yaml.safe_dump({"tiny": changed}))
    experiments.run_experiments("poker", "smoke", log=lines.append)
    assert "tiny, seed 0: training" in lines


@pytest.mark.parametrize(("profile", "message"), [("bogus", "known are"), ("a100", "no arms")])
def test_a_profile_without_arms_is_one_sentence(arms, profile, message):
    with pytest.raises(CasebookError, match=message):
        experiments.run_experiments("poker", profile)


def test_the_committed_records_were_made_by_the_code_as_it_is():
    from casebook.training import read_config, run_fingerprint

    for name, arm in experiments.read_arms("poker").items():
        mark = run_fingerprint(read_config(("poker", arm["profile"]), arm["overrides"]))
        records = committed("poker", arm["profile"], name)
        assert [record["seed"] for record in records] == arm["seeds"]
        assert all(is_current(record, mark) for record in records), f"{name}: make experiments"


def test_an_unknown_arm_lists_the_known_ones(arms):
    with pytest.raises(CasebookError, match="known are tiny"):
        experiments.run_experiments("poker", "smoke", arms=["tyni"])


def test_an_arm_that_lacks_a_field_is_one_sentence(arms):
    arms.write_text(yaml.safe_dump({"tiny": {"profile": "smoke"}}))
    with pytest.raises(CasebookError, match="'tiny' needs overrides, profile, question, seeds"):
        experiments.run_experiments("poker", "smoke")


def test_every_shipped_arm_is_a_configuration_that_parses():
    from casebook.training import read_config

    for name, arm in experiments.read_arms("poker").items():
        assert len(arm["seeds"]) >= 3, name
        read_config(("poker", arm["profile"]), arm["overrides"])
