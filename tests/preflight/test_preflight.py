"""`casebook preflight` from the command line, with what people get wrong."""

import json

import pytest
import yaml
from rich.console import Console

from casebook import cli, paths, preflight
from casebook.preflight import afterwards, checks, report

CONFIG = paths.CONFIGS / "poker" / "nano.yaml"
T4 = paths.CONFIGS / "poker" / "t4.yaml"


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """No process is asked what it holds, no hub, and runs that go to a folder of the test."""
    monkeypatch.setattr(preflight, "libraries", lambda settings: preflight.LIBRARIES)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))


def casebook(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["casebook", "preflight", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_json_has_the_verdict_the_reasons_and_the_phases(monkeypatch, capsys):
    assert casebook(monkeypatch, CONFIG, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "go"
    assert found["reasons"] == []
    names = [phase["name"] for phase in found["phases"]]
    assert names == ["load", "evaluation", "rollout", "backward", "final test"]
    for phase in found["phases"]:
        assert phase["bytes_there"] > phase["bytes_needed"] > 0
        assert phase["seconds"] is None  # nobody knows without measuring
    assert found["prompts"]["same_ids"]
    assert found["prompts"]["begins_training"] == found["prompts"]["begins_evaluation"]


def test_a_card_by_name_has_bytes_and_seconds_for_every_phase(monkeypatch, capsys):
    code = casebook(monkeypatch, T4, "--gpu", "a100-80", "--json", "--cost", "2")
    found = json.loads(capsys.readouterr().out)
    assert code == preflight.verdict.EXIT[found["verdict"]]
    assert all(phase["seconds"] > 0 for phase in found["phases"])
    assert found["cost"] == pytest.approx(2 * found["hours"])
    assert found["seconds_by"] == "estimated"


OF_PROFILE = {"t4": "t4", "gpu24": "24", "a100": "a100-80"}


@pytest.mark.parametrize(
    "config",
    [
        file
        for profile in OF_PROFILE
        for file in sorted(paths.CONFIGS.glob(f"*/{profile}*.yaml"))
        if not file.stem.startswith("a100_")  # the write-ups' own, in their own time
    ],
    ids=lambda file: f"{file.parent.name}-{file.stem}",
)
def test_every_default_for_a_gpu_is_a_go_on_its_card(config):
    profile = config.stem.partition("_")[0]
    found = preflight.preflight(config, gpu=OF_PROFILE[profile])
    assert (found["verdict"], found["reasons"]) == ("go", [])


def test_the_land_use_of_its_source_is_a_go_with_the_library_that_its_file_names(monkeypatch):
    # PEFT's loss holds the logits of the whole micro batch, Unsloth's those of one completion.
    monkeypatch.setenv("CASEBOOK_BACKEND", "peft")
    config = paths.CONFIGS / "landuse" / "a100_source.yaml"
    assert preflight.preflight(config, gpu="a100-80")["verdict"] == "go"
    four = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    found = preflight.preflight(config, gpu="a100-80", overrides=four | {"steps_per_generation": 4})
    assert found["verdict"] == "change"
    assert {change["field"]: change["to"] for change in found["changes"]} == {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "steps_per_generation": 8,
    }


def test_data_that_are_missing_stop_here(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CASEBOOK_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(preflight.cards, "this_gpu", lambda: preflight.cards.card("t4"))
    monkeypatch.setattr(checks, "versions", lambda *_: ())
    monkeypatch.setattr(checks, "cuda", lambda *_: ())
    math = paths.CONFIGS / "math" / "t4.yaml"
    assert casebook(monkeypatch, math, "--json") == 1
    reasons = json.loads(capsys.readouterr().out)["reasons"]
    assert any(reason.startswith("data: ") for reason in reasons)
    assert casebook(monkeypatch, math, "--gpu", "t4", "--json") == 0


def test_it_is_printed_with_its_assumptions(monkeypatch, capsys):
    casebook(monkeypatch, T4, "--gpu", "t4")
    printed = capsys.readouterr().out
    assert "backward" in printed
    assert "assumed: " in printed


def test_too_little_time_stops_with_exit_code_1(monkeypatch, capsys):
    assert casebook(monkeypatch, T4, "--gpu", "t4", "--hours", "0.01", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "stop"
    assert any("hours" in reason for reason in found["reasons"])


def test_the_run_folder_keeps_it(monkeypatch, tmp_path, capsys):
    assert casebook(monkeypatch, CONFIG, "--output", tmp_path / "run") == 0
    kept = json.loads((tmp_path / "run" / "preflight.json").read_text())
    assert kept["verdict"] == "go"
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["preflight.json"]


def test_a_folder_that_holds_a_run_is_left_alone(monkeypatch, tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_text("")
    assert casebook(monkeypatch, CONFIG, "--output", tmp_path) == 2
    assert "holds a run already, and a preflight comes before it" in capsys.readouterr().err


def changed(tmp_path, **changes):
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(CONFIG.read_text()) | changes))
    return file


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpu", "rtx"], "unknown GPU 'rtx': known are t4, 24, a100-40, a100-80, h100"),
        (["--gpu", "t4", "--measure"], "--measure runs the training here: leave --gpu out"),
        (["--hours", "-1"], "--hours is -1.0, and must be a number from 0 on"),
        (["--cost", "nan"], "--cost is nan, and must be a number from 0 on"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(monkeypatch, capsys, arguments, said):
    assert casebook(monkeypatch, CONFIG, *arguments) == 2
    assert capsys.readouterr().err == f"casebook: {said}\n"


def test_a_broken_file_is_one_sentence(monkeypatch, capsys, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("case: [poker\n")
    assert casebook(monkeypatch, file) == 2
    assert "not valid YAML" in capsys.readouterr().err


def test_a_batch_that_does_not_divide_is_one_sentence(monkeypatch, capsys, tmp_path):
    assert casebook(monkeypatch, changed(tmp_path, per_device_train_batch_size=13)) == 2
    assert "are not divisible by num_generations 8" in capsys.readouterr().err


def test_prompts_that_are_all_too_long_are_told_with_what_would_do(monkeypatch, capsys, tmp_path):
    assert casebook(monkeypatch, changed(tmp_path, max_seq_length=40)) == 2
    assert "raise max_seq_length to at least 51" in capsys.readouterr().err


def test_of_a_model_that_is_nowhere_nothing_can_be_told(monkeypatch, capsys, tmp_path):
    file = changed(tmp_path, model_name_or_path="nobody/nothing")
    assert casebook(monkeypatch, file, "--json") == 2
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "cannot be told"
    assert "nobody/nothing" in found["reasons"][0]


def test_a_method_that_cannot_be_measured_cannot_be_told(monkeypatch, capsys, tmp_path):
    file = changed(tmp_path, method="sft")
    assert casebook(monkeypatch, file, "--measure", "--json") == 2
    assert "TRL's GRPO only" in json.loads(capsys.readouterr().out)["reasons"][0]


def test_a_runs_folder_that_cannot_be_written_stops(monkeypatch, capsys, tmp_path):
    (tmp_path / "runs").write_text("")
    assert casebook(monkeypatch, CONFIG, "--json") == 1
    assert "cannot be written" in json.loads(capsys.readouterr().out)["reasons"][0]


def test_a_configuration_for_a_gpu_asks_for_the_card_where_there_is_none(monkeypatch, capsys):
    monkeypatch.setattr(preflight.cards, "this_gpu", lambda: None)
    assert casebook(monkeypatch, T4) == 2
    assert "name the card by --gpu" in capsys.readouterr().err


def test_every_ratio_of_predicted_to_actual_is_shown(tmp_path):
    phases = [
        {"name": name, "parts": {"process": 5, "weights": size - 5}, "seconds": seconds}
        for name, size, seconds in (
            *(("load", 10, 1.0), ("evaluation", 20, 10.0), ("rollout", 15, 20.0)),
            *(("backward", 40, 30.0), ("final test", 30, 5.0)),
        )
    ]
    file = tmp_path / "preflight.json"
    settings = {"case": "poker", "seed": 0}
    kept = {"phases": phases, "seconds_by": "measured", "settings": settings}
    file.write_text(json.dumps(kept | {"machine": {"gpu": False}}))
    record = {"config": settings | {"seed": 3}, "train_seconds": 50.0, "measure_seconds": 10.0}
    found = afterwards.against(file, record, 50)
    assert [(row["name"], row["ratio"]) for row in found["rows"]] == [
        ("memory", 0.8),
        ("training", 1.2),
        ("final test", 0.5),
    ]
    assert found["memory_ratio"] == 0.8
    assert found["median_time_ratio"] == 0.85
    other = record | {"config": {"case": "poker", "seed": 0, "beta": 0.1}}
    assert afterwards.against(file, other, 50) is None
    # What CUDA itself takes is in no figure of torch's.
    file.write_text(json.dumps(kept | {"machine": {"gpu": True}}))
    assert afterwards.against(file, record, 50)["memory_ratio"] == 0.7


def test_brackets_in_a_sentence_are_printed_as_they_are(capsys):
    told = {"config": "runs/[/x].yaml", "machine": {"name": "a [GPU]"}, "phases": []}
    told |= {"checks": [{"name": "data", "state": "fails", "said": "[a] is not here"}]}
    told |= {"verdict": "stop", "reasons": ["no folder [/y]"], "changes": []}
    report.show(told, Console(width=200))
    printed = capsys.readouterr().out
    assert all(part in printed for part in ("runs/[/x].yaml", "[GPU]", "[a] is", "[/y]"))


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"phases": [{}]}', '{"phases": 3}'])
def test_a_damaged_preflight_predicts_nothing(tmp_path, content):
    file = tmp_path / "preflight.json"
    file.write_text(content)
    record = {"config": {}, "train_seconds": 1.0, "measure_seconds": 1.0}
    assert afterwards.against(file, record, 1) is None


@pytest.mark.slow
def test_measuring_lets_the_training_write_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = preflight.preflight(paths.CONFIGS / "poker" / "smoke.yaml", measure=True)
    measured = found["measured"]
    assert 16 <= measured["prompts"] <= 32
    assert measured["completions"] % measured["prompts"] == 0
    for name in ("silent", "truncated", "well_formed", "correct"):
        figure = measured[name]
        assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1
    assert set(measured["rewards"]) == {"correct", "tag_format", "answer_grammar"}
    assert measured["step_seconds"] > 0
    assert all(phase["seconds"] is not None for phase in found["phases"])
    assert not [file for file in tmp_path.iterdir() if file.name.startswith("preflight-")]
    assert not (tmp_path / "runs").exists()


def test_checks_of_another_machine_do_not_look_at_this_one():
    settings = preflight.checked(T4)
    found = checks.checks(settings, preflight.cards.card("t4"), here=False)
    assert "trl" not in {check.name for check in found}
