"""Arms x seeds: what is made, what is not made again, and what a wrong name gets."""

from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from casebook import paths
from casebook.case import PROFILES, CasebookError, known_cases
from casebook.experiments import arms as module
from casebook.paths import plain, write_json
from casebook.records import arms_with_completions, committed, committed_completions, read_record
from casebook.settings import read_arms as arms_of
from casebook.training import Run, read_config

pytestmark = pytest.mark.slow
ARM = {
    "question": "Does it run?",
    "profile": "smoke",
    "seeds": [0, 1],
    "overrides": {"max_steps": 1, "evaluate_every": 0, "test_limit": 4, "train_limit": 64},
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
    clean = {"revision": "0" * 40, "dirty": False}
    monkeypatch.setattr("casebook.records.revision", lambda: clean)
    return folder / "experiments.yaml"


def test_records_are_made_once(arms, tmp_path):
    lines = []
    written = module.run_experiments("poker", "smoke", log=lines.append)
    tiny = tmp_path / "results" / "poker" / "smoke" / "tiny"
    assert written == [tiny / "seed0.json", tiny / "seed1.json"]
    found = [read_record(path) for path in written]
    assert [(record["arm"], record["seed"]) for record in found] == [("tiny", 0), ("tiny", 1)]
    for when in ("before", "after"):
        assert found[0][when]["other_prompt_perplexity"]["value"] >= 1
    for name in ("completions/mean_length", "rewards/correct/mean"):
        assert len(found[0]["curve"][name]) == 1
    lines.clear()
    module.run_experiments("poker", "smoke", log=lines.append)
    assert lines == ["tiny, seed 0: there already", "tiny, seed 1: there already"]


@pytest.mark.parametrize("case", known_cases())
def test_every_arm_has_its_records_with_the_configuration_it_has_today(case):
    for name, arm in arms_of(case).items():
        records = committed(case, arm["profile"], name)
        seeds = [record["seed"] for record in records]
        # Real models and arms beyond the core may wait for their records, but not for some of them.
        waits = not PROFILES[arm["profile"]].embedded or "extension_hours" in arm
        assert seeds == arm["seeds"] or (waits and not seeds)
        for record in records:
            now = read_config((case, arm["profile"]), arm["overrides"] | {"seed": record["seed"]})
            assert module._asked(record["config"]) == module._asked(plain(now.settings)), name


# What is committed of a run


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """`trained(profile, arm, **record)`: what a finished run of that arm leaves committed."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    config = SimpleNamespace(settings={}, seed=0, case="poker")
    monkeypatch.setattr(module, "read_config", lambda *arguments: config)
    monkeypatch.setattr(module, "_folder", lambda config, arm: tmp_path / arm)
    figure = {"greedy_accuracy": {"value": 0.5}, "sampled_accuracy": {"value": 0.25}}
    found = {"before": figure, "after": figure, "train_seconds": 1.0, "measure_seconds": 2.0}

    def make(profile, arm, seed=0, sampled=True, **more):
        run = Run(tmp_path / arm)
        run.adapter.mkdir(parents=True, exist_ok=True)
        (run.adapter / "adapter_model.safetensors").write_bytes(b"weights")
        record = {"case": "poker", "profile": profile, "seed": seed, "provenance": {}}
        write_json(run.path / "record.json", record | found | more)
        if sampled:
            (run.path / "completions").mkdir(exist_ok=True)
            table = pd.DataFrame({"step": [1], "completion": ["flush"], "extracted": ["flush"]})
            table.to_parquet(run.path / "completions" / "train_00001.parquet")
        monkeypatch.setattr(module, "train", lambda *arguments, **more: run)
        _, line = module._run("poker", profile, arm, {}, seed, False)
        files = (path for path in paths.RESULTS.rglob("*") if path.is_file())
        return line, sorted(path.relative_to(paths.RESULTS / "poker").as_posix() for path in files)

    return make


def test_of_the_embedded_model_one_adapter_and_its_completions_are_kept(trained):
    trained("nano", "sft")
    _, kept = trained("nano", "grpo", seed=1)
    assert kept == ["nano/grpo/seed1.json", "nano/sft/seed0.json"]
    _, kept = trained("nano", "grpo")
    assert set(kept) >= {"nano/adapter/adapter_model.safetensors", "nano/completions.jsonl.gz"}
    assert committed_completions("poker")["completion"].tolist() == ["flush"]


def test_of_a_real_model_completions_are_kept_and_no_adapter(trained):
    """Not of a run that sampled nothing, chose a setting, or has another seed than the first."""
    trained("smol", "taught", sampled=False)
    trained("smol", "sound", seed=1)
    nothing = {"test": None, "before": None, "after": None}
    curve = {"greedy_accuracy": [0.125, 0.5], "sampled_accuracy": [0.0, 0.25]}
    line, kept = trained("smol", "rate", **nothing, validation=curve)
    assert kept == ["smol/rate/seed0.json", "smol/sound/seed1.json", "smol/taught/seed0.json"]
    assert line.startswith("rate, seed 0: on validation rows sampled 0.250, greedy 0.500, 1 s")
    trained("smol", "sound")
    assert arms_with_completions("poker", "smol") == ["sound"]
    assert committed_completions("poker", "smol", "sound")["extracted"].tolist() == ["flush"]


@pytest.mark.slow
def test_a_record_with_another_configuration_is_not_overwritten(arms):
    module.run_experiments("poker", "smoke", seeds=[0], log=len)
    changed = ARM | {"seeds": [0], "overrides": ARM["overrides"] | {"beta": 0.1}}
    arms.write_text(yaml.safe_dump({"tiny": changed}))
    with pytest.raises(CasebookError, match="another configuration"):
        module.run_experiments("poker", "smoke", log=len)
    lines = []
    (made,) = module.run_experiments("poker", "smoke", again=True, gpu=True, log=lines.append)
    assert lines[-1].startswith("tiny, seed 0: sampled 0.")
    assert read_record(made)["config"]["use_cpu"] is False
    module.run_experiments("poker", "smoke", log=lines.append)
    assert lines[-1] == "tiny, seed 0: there already"  # wherever it was made


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        (None, {"profile": "a100"}, "no arms"),
        (None, {"arms": ["tyni"]}, "known are tiny"),
        ("a: [", {}, r"experiments\.yaml"),
        ("tiny: {profile: smoke}", {}, "'tiny' needs overrides, profile, question"),
    ],
)
def test_arms_that_are_none_are_one_sentence(arms, text, asked, said):
    if text:
        arms.write_text(text)
    with pytest.raises(CasebookError, match=said):
        module.run_experiments("poker", **({"profile": "smoke"} | asked))
