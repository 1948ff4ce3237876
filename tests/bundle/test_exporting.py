"""What a bundle holds, and which runs cannot be sent."""

import json
import shutil
import sys
from importlib import import_module

import pytest

from casebook import cli
from casebook.bundle import archive, export_run, measured, scrub
from casebook.case import CasebookError
from casebook.paths import write_json
from casebook.records import read_record
from casebook.training.log import curve, skipped_steps
from casebook.training.run import Run, read_lines


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run that a test may change."""
    return shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))


provenance = import_module("casebook.records.record")


def silent(line):
    pass


def test_a_bundle_has_every_completion_with_row_and_decoding(bundle, run):
    files = archive.unpacked(bundle)[1]
    for when in ("before", "after"):
        for name in ("test", "pass_at_k", "also_0"):
            kept = (run / "measured" / when / f"{name}.jsonl").read_text().splitlines()
            lines = archive.parse_lines("", files[f"completions/{when}/{name}.jsonl"])
            jobs = [[line[key] for key in ("row", "decoding", "sample", "ids")] for line in lines]
            assert jobs == [json.loads(line)[:4] for line in kept]
    assert {line["decoding"] for line in lines} == {"greedy"}


def test_the_plan_is_what_a_measuring_writes(run):
    """For every file the rows and decodings that the harness kept, and no other file."""
    from casebook.bundle.contents import to_read

    plans = measured.plan(to_read(read_record(run / "record.json")["config"]))
    assert {path.stem for path in (run / "measured" / "after").iterdir()} == set(plans)
    rows = measured.Rows("poker", "nano")
    for name, one in plans.items():
        lines = (run / "measured" / "after" / f"{name}.jsonl").read_text().splitlines()
        wanted = one.jobs(range(len(rows.of(one.variant, one.limit))))
        assert {tuple(json.loads(line)[:3]) for line in lines} == set(wanted)


def test_a_bundle_says_what_it_was_made_with(bundle, run):
    manifest, files = archive.unpacked(bundle)
    record = read_record(run / "record.json")
    assert (manifest["case"], manifest["profile"], manifest["seed"]) == ("poker", "nano", 0)
    assert manifest["overrides"]["test_limit"] == 8
    assert "learning_rate" not in manifest["overrides"]
    environment = json.loads(files["environment.json"])
    assert environment["versions"] == record["provenance"]["versions"]
    assert environment["generator"] == "transformers"
    assert {"gpu", "driver", "cuda"} <= set(environment)
    model = json.loads(files["model.json"])
    assert model["weights"] == record["provenance"]["model"]["weights"]
    assert model["adapter"] == (run / "measured" / "policy").read_text()
    decoding = json.loads(files["measured.json"])["files"]["test"]
    assert decoding["sample"]["temperature"] == 1.0
    assert (decoding["samples"], decoding["seed"], decoding["variant"]) == (2, 0, "reason")


def test_the_same_run_gives_the_same_files(bundle, copy, tmp_path):
    again = export_run(copy, tmp_path / "again.zip", say=silent).read_bytes()
    assert archive.unpacked(again)[1] == archive.unpacked(bundle)[1]


def test_neither_code_nor_weights_are_in_it(bundle):
    names = set(archive.unpacked(bundle)[1])
    assert all(name.endswith((".json", ".jsonl")) for name in names)


def test_a_preflight_goes_with_it(predicted_bundle):
    preflight = json.loads(archive.unpacked(predicted_bundle)[1]["preflight.json"])
    assert (preflight["verdict"], preflight["config"]) == ("go", "[path]")
    assert preflight["prompts"]["end_tokens"] == ["<eos>"]


@pytest.mark.parametrize("gradient", [float("inf"), float("-inf"), float("nan")])
def test_a_run_whose_first_step_was_skipped_can_be_sent(gradient, copy, tmp_path):
    """As fp16 leaves it on a T4: the scale of the loss is found by trying."""
    run = Run(copy)
    lines = read_lines(run.metrics_file)
    first = next(line for line in lines if line["kind"] == "train")
    first["grad_norm"] = gradient
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics, record = run.metrics(), read_record(copy / "record.json")
    made = {"curve": curve(metrics), "skipped_steps": skipped_steps(metrics)}
    write_json(copy / "record.json", record | made)
    sent = archive.unpacked(export_run(copy, tmp_path / "a.zip", say=silent).read_bytes())[1]
    assert json.loads(sent["record.json"])["skipped_steps"] == 1
    assert json.loads(sent["record.json"])["curve"]["grad_norm"] == [
        pytest.approx(metrics["grad_norm"].iloc[1], abs=1e-4)
    ]


def test_a_run_on_two_gpus_can_be_sent(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "_output", lambda *command: "Tesla T4\nTesla T4")
    record = read_record(copy / "record.json")
    record["provenance"]["hardware"]["gpu"] = provenance._gpu("name")
    write_json(copy / "record.json", record)
    sent = archive.unpacked(export_run(copy, tmp_path / "a.zip", say=silent).read_bytes())[1]
    assert json.loads(sent["environment.json"])["gpu"] == "Tesla T4; Tesla T4"


def test_the_cuda_of_a_bundle_is_that_of_the_build(copy, tmp_path):
    """PyPI's builds of torch have it in no version."""
    record = read_record(copy / "record.json")
    record["provenance"]["versions"]["torch"] = "2.13.0"
    record["provenance"]["hardware"]["cuda"] = "13.0"
    write_json(copy / "record.json", record)
    sent = archive.unpacked(export_run(copy, tmp_path / "a.zip", say=silent).read_bytes())[1]
    assert json.loads(sent["environment.json"])["cuda"] == "13.0"


def test_what_is_private_is_removed_and_counted(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: "annika")
    record = read_record(copy / "record.json")
    hardware = record["provenance"]["hardware"]
    hardware["gpu"] = "T4 of annika, see /data/annika/gpu, annika@example.org"
    hardware["hf_token"] = "hf_" + "aB3" * 10
    write_json(copy / "record.json", record)
    said = []
    made = export_run(copy, tmp_path / "a.zip", say=said.append).read_bytes()
    manifest, files = archive.unpacked(made)
    assert b"annika" not in b"".join(files.values())
    sent = json.loads(files["record.json"])["provenance"]["hardware"]
    assert sent["gpu"] == "T4 of [user name], see [path], [e-mail address]"
    assert sent["hf_token"] == "[secret]"
    # The environment repeats the GPU of the record.
    found = {"e-mail address": 2, "path": 2, "secret": 1, "user name": 2}
    assert manifest["scrubbed"] == found
    assert said[0] == (
        "removed: e-mail address 2 times, path 2 times, secret 1 times, user name 2 times"
    )


def test_completions_are_left_as_they_are(copy, run, tmp_path, monkeypatch):
    """Their grade hangs on every character, even where a user is called like an answer."""
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: "pair")
    made = export_run(copy, tmp_path / "a.zip", say=silent).read_bytes()
    files = archive.unpacked(made)[1]
    record = json.loads(files["record.json"])
    sent = read_record(run / "record.json")
    assert record["completions"] == sent["completions"]
    assert "one pair" in record["after"]["per_class"]


@pytest.mark.parametrize("name", ["test", "train", "nano", "poker", "transformers", "correct"])
def test_an_account_or_machine_may_be_called_like_a_word_of_the_bundle(
    name, bundle, copy, tmp_path, monkeypatch
):
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: name)
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: name)
    made = export_run(copy, tmp_path / "a.zip", say=silent).read_bytes()
    assert archive.unpacked(made)[1] == archive.unpacked(bundle)[1]


# What cannot be sent


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda run: shutil.rmtree(run), "there is no run folder at"),
        (lambda run: (run / "record.json").unlink(), "has not finished: casebook train with"),
        (lambda run: shutil.rmtree(run / "measured"), "keeps no completions of its measuring"),
        (
            lambda run: (run / "measured" / "before" / "test.jsonl").unlink(),
            "the run keeps no completions in .*before/test.jsonl",
        ),
        (
            lambda run: (run / "measured" / "after" / "test.jsonl").write_text("[1, 2]\n"),
            "after/test.jsonl is damaged",
        ),
        (
            lambda run: (run / "measured" / "policy").write_text("0" * 64),
            "the adapter in .* is not the one that was measured",
        ),
        (
            lambda run: (run / "adapter" / "tokenizer.json").write_text("{"),
            "the tokenizer in .* is damaged",
        ),
        (
            lambda run: (run / "config.yaml").write_text("case: poker\n"),
            "config.yaml in .* is not the configuration of its record",
        ),
    ],
)
def test_a_run_that_is_not_whole_is_one_sentence(change, sentence, copy, tmp_path):
    change(copy)
    with pytest.raises(CasebookError, match=sentence):
        export_run(copy, tmp_path / "a.zip", say=silent)
    assert not (tmp_path / "a.zip").exists()


def test_a_run_that_was_not_tested_has_nothing_to_check(copy, tmp_path):
    record = read_record(copy / "record.json") | {"before": None, "after": None, "test": None}
    write_json(copy / "record.json", record)
    with pytest.raises(CasebookError, match="was not measured on test rows: nothing to check"):
        export_run(copy, tmp_path / "a.zip", say=silent)


def test_what_would_be_refused_is_not_written(copy, tmp_path):
    record = read_record(copy / "record.json")
    record["after"]["greedy_accuracy"]["value"] += 0.5
    write_json(copy / "record.json", record)
    with pytest.raises(CasebookError, match="would be refused where it is imported: after/greedy"):
        export_run(copy, tmp_path / "a.zip", say=silent)
    assert not (tmp_path / "a.zip").exists()


def test_the_file_lies_beside_the_run_unless_it_is_named(copy, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["casebook", "record", "export", str(copy)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    assert (copy.parent / "poker-nano-seed0.zip").exists()
    out = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in out[:2]] == ["removed", "checked"]
    assert "SHA-256" in out[2]
