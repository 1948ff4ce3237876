"""An import believes nothing: each way to tamper with a bundle is refused, and named.

Where a manifest would give it away, the bundle is sealed again, as somebody would who knows how.
"""

import io
import json
import sys
import zipfile

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebook import cli, paths, records
from casebook.bundle import archive, checking, contents, importing
from casebook.bundle.archive import CannotCheck, Refused
from casebook.case import CasebookError
from casebook.experiments import replay
from casebook.paths import plain
from casebook.settings import checked
from casebook.training.log import curve

AFTER, BEFORE = (f"completions/{when}/test.jsonl" for when in ("after", "before"))


def opened(bundle: bytes) -> dict[str, bytes]:
    """All files of a bundle, the manifest too."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(files: dict[str, bytes]) -> bytes:
    """Files as a zip, whatever they are."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


def sealed(files: dict[str, bytes], **about) -> bytes:
    """A bundle whose manifest names its files as they are: by somebody who knows how."""
    files = dict(files)
    manifest = json.loads(files.pop(archive.MANIFEST)) | about
    return archive.packed(files, {k: v for k, v in manifest.items() if k != "files"})


def edited(bundle: bytes, name: str, change, **about) -> bytes:
    """A sealed bundle of which one JSON file, or the lines of one, went through `change`."""
    files = opened(bundle)
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in files[name].decode().splitlines()]
        files[name] = archive.lines_bytes(change(lines) or lines)
    else:
        value = json.loads(files[name])
        files[name] = archive.json_bytes(change(value) or value)
    return sealed(files, **about)


@pytest.fixture
def refused(take_in, results):
    """The one sentence by which some bytes are refused."""

    def why(content: bytes) -> str:
        code, out, err = take_in(content)
        assert (code, out, err.count("\n")) == (1, "", 1), (code, out, err)
        assert not list(results.rglob("*.json"))
        return err.removeprefix("casebook: refused: ").strip()

    return why


def record_of(bundle, **changes):
    return edited(bundle, "record.json", lambda record: record | changes)


# What is accepted


def test_an_honest_bundle_becomes_a_contributed_record(bundle, run, take_in, results):
    code, out, _ = take_in(bundle)
    assert code == 0
    assert "82 completions graded again, all figures as recorded" in out
    (path,) = results.rglob("seed0.json")
    assert path.parent.parent == results / "poker" / "nano"
    record, sent = records.read_record(path), records.read_record(run / "record.json")
    for when in ("before", "after"):
        graded = {
            k: v for k, v in sent[when].items() if k not in record["contributed"]["reported"][when]
        }
        assert record[when] == graded
        assert {"greedy_accuracy", "pass_at_k", "also"} <= set(graded)
        assert "other_prompt_perplexity" in record["contributed"]["reported"][when]
    assert "kl_from_base" in record["contributed"]["reported"]["after"]
    assert record["completions"] == sent["completions"]
    assert record["contributed"]["not_checked"] == []


def test_what_was_predicted_stays_beside_what_came(
    predicted_bundle, predicted_run, take_in, results
):
    code, out, err = take_in(predicted_bundle)
    assert code == 0, out + err
    (record,) = map(records.read_record, results.rglob("seed0.json"))
    sent = records.read_record(predicted_run / "record.json")
    assert record["predicted"]["rows"][0]["name"] == "memory"
    assert record["predicted"] == sent["predicted"]
    assert record["contributed"]["preflight"]["verdict"] == "go"
    assert record["contributed"]["left_out"] == []


def test_how_many_processes_there_were_is_kept(bundle, take_in, results):
    assert take_in(record_of(bundle, processes=4))[0] == 0
    (record,) = map(records.read_record, results.rglob("seed0.json"))
    assert record["processes"] == 4


def test_a_replay_grades_it_again_and_trains_nothing(bundle, take_in, results, monkeypatch):
    from casebook import training

    take_in(bundle)
    (record,) = map(records.read_record, results.rglob("seed0.json"))
    monkeypatch.setattr(training, "first_steps", lambda *_: pytest.fail("trained"))
    assert replay.replay_record(record).verdict == "regraded"
    record["completions"][0]["correct"] = not record["completions"][0]["correct"]
    assert replay.replay_record(record).verdict == "differs"


def test_the_code_of_the_sender_is_not_taken_over(bundle, take_in, results):
    lied = {"digest": "0" * 16, "modules": ["casebook"]}
    assert take_in(record_of(bundle, code=lied))[0] == 0
    (record,) = map(records.read_record, results.rglob("seed0.json"))
    assert record["code"]["digest"] != lied["digest"]
    assert "casebook.cases.poker.rewards" in record["code"]["modules"]
    assert "casebook.evaluation" in record["code"]["modules"]
    assert "casebook.training.loop" not in record["code"]["modules"]


def test_what_no_record_has_is_left_out_and_named(bundle, take_in, results):
    assert take_in(record_of(bundle, verdict="reproduced"))[0] == 0
    (record,) = map(records.read_record, results.rglob("seed0.json"))
    assert "verdict" not in record
    assert record["contributed"]["left_out"] == ["verdict"]


# One test for each way to tamper


def test_a_changed_figure_is_named(bundle, refused):
    def better(record):
        record["after"]["greedy_accuracy"]["value"] += 0.125

    why = refused(edited(bundle, "record.json", better))
    assert (
        why == "after/greedy_accuracy/value in record.json is not what comes out of its completions"
    )


@pytest.mark.parametrize(
    "way",
    [
        *("before/sampled_accuracy/low", "after/sampled_accuracy/high", "after/well_formed/n"),
        *("after/pass_at_k/4/value", "after/also/label alone/greedy_accuracy/value"),
        *("after/mean_completion_tokens/value", "before/truncated/value"),
    ],
)
def test_every_figure_and_interval_counts(way, bundle, refused):
    def other(record):
        *steps, last = way.split("/")
        for step in steps:
            record = record[step]
        record[last] += 1

    assert refused(edited(bundle, "record.json", other)).startswith(f"{way} in record.json")


def test_a_figure_that_is_gone_is_named(bundle, refused):
    def without(record):
        del record["after"]["lenient_accuracy"]

    assert "after/lenient_accuracy in record.json" in refused(
        edited(bundle, "record.json", without)
    )


@pytest.mark.parametrize("where", ["label_histogram", "pass_at_k", "also", "per_class"])
def test_what_was_invented_besides_is_named(where, bundle, refused):
    def more(record):
        record["after"][where]["invented"] = 1

    assert f"after/{where}/invented in record.json" in refused(edited(bundle, "record.json", more))


def test_a_changed_completion_is_named(bundle, refused):
    """With its token ids left as they are, and graded alike."""

    def reworded(lines):
        kept = next(line for line in lines if (line["row"], line["decoding"]) == (0, "sample"))
        kept["completion"] += " "

    why = refused(edited(bundle, AFTER, reworded))
    assert why == "completions/0/completion in record.json is not what comes out of its completions"


def test_a_completion_made_right_is_named(bundle, refused):
    def right(lines):
        for line in lines:
            line["completion"] = "<think>\n</think>\n<answer>flush</answer>"

    assert "record.json is not what comes out of its completions" in refused(
        edited(bundle, AFTER, right)
    )


def test_figures_and_texts_changed_together_differ_from_the_tokens(bundle, refused, monkeypatch):
    """A lie that is consistent but for the token ids, which nobody thought of."""

    def right(lines):
        for line in lines:
            line["completion"] = "<think>\n</think>\n<answer>flush</answer>"

    files = opened(edited(bundle, AFTER, right))
    with monkeypatch.context() as patch:  # what the liar computes
        patch.setattr(checking, "_refuse_first", lambda different, source: None)
        patch.setattr(checking, "_check_texts", lambda config, files: True)
        honest = checking.check(*archive.unpacked(sealed(files))).record
    record = json.loads(files["record.json"])
    files["record.json"] = archive.json_bytes(
        record | {name: honest[name] for name in checking.GRADED}
    )
    assert refused(sealed(files)).endswith("the text is not what its tokens say")


def test_a_dropped_completion_is_named(bundle, refused):
    why = refused(edited(bundle, AFTER, lambda lines: lines[:-1]))
    assert why == f"{AFTER} lacks row 7, sample 1 (1 are missing)"


def test_a_doubled_completion_is_named(bundle, refused):
    why = refused(edited(bundle, BEFORE, lambda lines: [*lines, lines[3]]))
    assert why == f"{BEFORE} has row 3, greedy twice"


def test_a_changed_row_id_is_named(bundle, refused):
    def moved(lines):
        lines[0]["row"] = 99

    why = refused(edited(bundle, AFTER, moved))
    assert why == f"{AFTER} has row 99, greedy, which the configuration does not ask for"


def test_two_rows_that_changed_places_are_named(bundle, refused):
    def swapped(lines):
        for line in lines:
            line["row"] = {0: 1, 1: 0}.get(line["row"], line["row"])

    assert "record.json is not what comes out" in refused(edited(bundle, AFTER, swapped))


def test_a_completion_under_another_decoding_is_named(bundle, refused):
    def sampled(lines):
        lines[0]["decoding"] = "sample"

    assert refused(edited(bundle, AFTER, sampled)) == f"{AFTER} has row 0, sample 0 twice"


@pytest.mark.parametrize(
    ("where", "value"), [("temperature", 0.1), ("top_p", 0.5), ("max_new_tokens", 512)]
)
def test_a_changed_decoding_is_named(where, value, bundle, refused):
    def colder(measured):
        measured["files"]["test"]["sample"][where] = value

    why = refused(edited(bundle, "measured.json", colder))
    assert why.startswith("measured.json says another sample for test than the configuration")


def test_another_end_token_is_named(bundle, refused):
    """More ends would make fewer completions truncated."""

    def more(measured):
        measured["ends"] = [*measured["ends"], 3]

    assert "goes on after its end" in refused(edited(bundle, "measured.json", more))


def test_tokens_that_a_model_cannot_have_written_are_named(bundle, refused):
    def longer(lines):
        lines[0]["ids"] = lines[0]["ids"][:-1]

    assert refused(edited(bundle, AFTER, longer)).endswith("tokens, and no end")


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_changed_rows_are_named(split, bundle, refused):
    def others(record):
        record["inputs"]["rows"][split] = "0" * 16

    why = refused(edited(bundle, "record.json", others))
    assert why == f"the {split} rows of the record are not those of poker/nano with seed 0"


def test_a_row_that_was_left_out_although_it_fits_is_named(bundle, refused):
    def without(measured):
        measured["files"]["test"]["dropped"] = [2]

    why = refused(edited(bundle, "measured.json", without))
    assert why == f"row 2 is left out of {BEFORE}, and its prompt leaves room"


def test_a_changed_manifest_is_named(bundle, refused):
    files = opened(bundle)
    manifest = json.loads(files["manifest.json"])
    manifest["files"][AFTER]["sha256"] = "0" * 64
    why = refused(zipped(files | {"manifest.json": archive.json_bytes(manifest)}))
    assert why == f"{AFTER} is not the file that manifest.json names: its SHA-256 differs"


def test_a_manifest_of_another_run_is_named(bundle, refused):
    why = refused(sealed(opened(bundle), seed=1))
    assert why == "manifest.json says seed 1, the record 0"


def test_an_added_file_is_named(bundle, refused):
    files = opened(bundle) | {"preflight.json": b"{}"}
    assert refused(zipped(files)) == "preflight.json is in the bundle and not in its manifest.json"
    why = refused(zipped(opened(bundle) | {"adapter.pkl": b""}))
    assert why == "'adapter.pkl' is no file of a bundle"


def test_an_added_file_that_the_manifest_names_is_named(bundle, refused):
    files = opened(bundle)
    files["completions/after/also_7.jsonl"] = files[AFTER]
    assert refused(sealed(files)).startswith("completions/after/also_7.jsonl does not belong into")


def test_a_missing_file_is_named(bundle, refused):
    files = opened(bundle)
    del files[AFTER]
    assert refused(zipped(files)) == f"{AFTER} is missing from the bundle"
    assert refused(sealed(files)).startswith(f"{AFTER} is missing from the bundle of such")


def test_a_changed_configuration_is_named(bundle, refused):
    def other(config):
        config["learning_rate"] = 0.1

    why = refused(edited(bundle, "config.json", other))
    assert why == "config.json is not the record's configuration: learning_rate"


def test_an_override_that_is_not_stated_is_named(bundle, refused):
    """Another setting than the profile's, in all files alike."""
    files = opened(bundle)
    for name in ("config.json", "record.json"):
        value = json.loads(files[name])
        (value if name == "config.json" else value["config"])["learning_rate"] = 0.1
        files[name] = archive.json_bytes(value)
    why = refused(sealed(files))
    assert why.startswith("the configuration is not configs/poker/nano.yaml with the overrides")
    assert why.endswith("learning_rate")


def test_settings_that_nobody_can_train_are_named(bundle, refused):
    files = opened(bundle)
    for name in ("config.json", "record.json"):
        value = json.loads(files[name])
        (value if name == "config.json" else value["config"])["learning_rate"] = -1
        files[name] = archive.json_bytes(value)
    overrides = contents.overrides(json.loads(files["config.json"]))
    assert "learning_rate is -1, and must be" in refused(sealed(files, overrides=overrides))


def test_a_changed_seed_is_named(bundle, refused):
    assert "the configuration says seed 0, the record 1" in refused(
        edited(bundle, "record.json", lambda record: record | {"seed": 1}, seed=1)
    )


def test_a_seed_that_was_changed_everywhere_is_known_by_its_rows(bundle, refused):
    """The training rows hang on the seed."""
    files = opened(bundle)
    for name in ("config.json", "record.json"):
        value = json.loads(files[name]) | {"seed": 1}
        if "config" in value:
            value["config"]["seed"] = 1
        files[name] = archive.json_bytes(value)
    why = refused(sealed(files, seed=1))
    assert why == "the train rows of the record are not those of poker/nano with seed 1"


def test_the_wrong_case_is_named(bundle, refused):
    assert (
        refused(record_of(bundle, case="gsm8k"))
        == "manifest.json says case 'poker', the record 'gsm8k'"
    )
    assert "there is no case and profile 'chess'" in refused(record_of(bundle, case="chess"))


def test_another_profile_is_named(bundle, refused):
    assert (
        refused(record_of(bundle, profile="t4"))
        == "manifest.json says profile 'nano', the record 't4'"
    )


def test_a_smoke_run_is_never_a_result(bundle, refused):
    assert "'smoke' are never results" in refused(record_of(bundle, profile="smoke"))


def test_another_model_is_named(bundle, refused):
    why = refused(edited(bundle, "model.json", lambda model: model | {"weights": "0" * 64}))
    assert why == "model.json says another weights than the record"


def test_other_weights_than_the_embedded_models_are_named(bundle, refused):
    files = opened(bundle)
    record, model = json.loads(files["record.json"]), json.loads(files["model.json"])
    for part in (model, record["provenance"]["model"]):
        part["weights"] = "0" * 64
    changed = {"record.json": archive.json_bytes(record), "model.json": archive.json_bytes(model)}
    assert "weights are not those of the embedded model" in refused(sealed(files | changed))


def test_an_adapter_without_a_hash_is_named(bundle, refused):
    why = refused(edited(bundle, "model.json", lambda model: model | {"adapter": "none"}))
    assert why == "model.json has no SHA-256 of the adapter"


def test_another_environment_is_named(bundle, refused):
    why = refused(edited(bundle, "environment.json", lambda e: e | {"gpu": "NVIDIA H100"}))
    assert why == "environment.json is not the environment of the record's provenance"


def test_a_curve_that_was_not_logged_is_named(bundle, refused):
    def steeper(record):
        record["curve"]["reward"][-1] += 1

    why = refused(edited(bundle, "record.json", steeper))
    assert why == "curve/reward/0 in record.json is not what comes out of metrics.jsonl"


@pytest.mark.parametrize("said", [1, 2])
def test_steps_that_were_not_skipped_are_named(said, bundle, refused):
    why = refused(record_of(bundle, skipped_steps=said))
    assert why == f"record.json says {said} skipped steps, metrics.jsonl 0"


def test_skipped_steps_that_are_not_told_are_named(bundle, refused):
    def skipped(lines):
        next(line for line in lines if line["kind"] == "train")["grad_norm"] = None

    files = opened(edited(bundle, "metrics.jsonl", skipped))
    lines = pd.DataFrame(archive.parse_lines("", files["metrics.jsonl"]))
    made = plain(curve(lines[lines["kind"] == "train"].drop(columns="kind")))
    shown = set(json.loads(files["record.json"])["curve"])
    why = refused(record_of(sealed(files), curve={name: made[name] for name in shown}))
    assert why == "record.json says 0 skipped steps, metrics.jsonl 1"


def test_a_validation_that_was_not_logged_is_named(bundle, refused):
    def better(lines):
        next(line for line in lines if line["kind"] == "validation")["greedy_accuracy"] = 0.99

    assert "validation/greedy_accuracy" in refused(edited(bundle, "metrics.jsonl", better))


def logged(bundle, change):
    """A bundle of which the logged lines went through `change`, and the record was made of them."""
    files = opened(bundle)
    lines = archive.parse_lines("", files["metrics.jsonl"])
    lines = change(lines) or lines
    files["metrics.jsonl"] = archive.lines_bytes(lines)
    kinds = {
        kind: pd.DataFrame([line for line in lines if line["kind"] == kind]).drop(
            columns="kind", errors="ignore"
        )
        for kind in ("train", "validation")
    }
    record = json.loads(files["record.json"])
    record["validation"] = plain(kinds["validation"].round(4).to_dict("list"))
    if "step" in kinds["train"]:
        record["curve"] = plain(checking.curve(kinds["train"]))
    files["record.json"] = archive.json_bytes(record)
    return sealed(files)


def of_kind(lines, kind):
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("kind", ["train", "validation"])
@pytest.mark.parametrize("step", [..., None, 0.5, 1.0, -1, 3])
def test_a_line_without_a_step_of_the_run_is_named(kind, step, bundle, refused):
    """A replay looks at the curve step by step, together with those of the arm's other seeds."""

    def other(lines):
        for line in of_kind(lines, kind):
            line.pop("step")
            line |= {} if step is ... else {"step": step}

    why = refused(logged(bundle, other))
    assert why.endswith("of metrics.jsonl has no step from 0 to 2")


@pytest.mark.parametrize("name", ["curve", "validation"])
def test_a_step_of_the_record_is_a_whole_number(name, bundle, refused):
    def nearly(record):
        record[name]["step"][-1] += 1e-7

    why = refused(edited(bundle, "record.json", nearly))
    assert why == f"{name}/step in record.json has a step that is no whole number"


@pytest.mark.parametrize("value", ["much", True, [1], {"a": 1}])
def test_what_was_logged_is_a_number(value, bundle, refused):
    def other(lines):
        of_kind(lines, "validation")[0]["greedy_accuracy"] = value

    why = refused(edited(bundle, "metrics.jsonl", other))
    assert why == "'greedy_accuracy' in line 1 of metrics.jsonl is no number"


def test_a_line_of_another_kind_is_named(bundle, refused):
    why = refused(edited(bundle, "metrics.jsonl", lambda lines: [*lines, {"kind": "x", "step": 1}]))
    assert why.endswith("of metrics.jsonl is neither of the training nor of a validation")


def test_what_was_never_validated_is_accepted_and_replayed(bundle):
    content = logged(bundle, lambda lines: of_kind(lines, "train"))
    record = checking.check(*archive.unpacked(content)).record
    assert record["validation"] == {}
    assert replay._findings_on(record) == []


@pytest.mark.parametrize("kind", ["train", "validation"])
def test_more_columns_than_a_table_should_have_are_refused(kind, bundle, refused):
    """4,000 lines that each have a column of their own took 870 MB."""

    def wider(lines):
        return [*lines, *({"kind": kind, "step": 1, f"a{i}": 0} for i in range(300))]

    why = refused(edited(bundle, "metrics.jsonl", wider))
    assert why == "metrics.jsonl has more than 256 columns"


def test_more_lines_than_a_table_should_have_are_refused(bundle, refused, monkeypatch):
    monkeypatch.setattr(checking, "MOST_LINES", 3)
    assert refused(bundle) == "metrics.jsonl has 4 lines, and at most 3 are read"


def test_a_machine_without_the_memory_says_nothing_about_the_bundle(
    bundle, take_in, results, monkeypatch
):
    def exhausted(*arguments):
        raise MemoryError

    monkeypatch.setattr(checking, "_graded", exhausted)
    said = "casebook: this machine has not the memory to check the bundle\n"
    assert take_in(bundle) == (2, "", said)
    assert not list(results.rglob("*.json"))


def test_a_training_that_was_cut_short_is_named(bundle, refused):
    why = refused(edited(bundle, "metrics.jsonl", lambda lines: lines[:2]))
    assert why == "metrics.jsonl ends at step 1 of 2"
    assert refused(record_of(bundle, steps=1)) == "the record has 1 steps, the configuration 2"


@pytest.mark.parametrize("name", ["record.json", AFTER, "metrics.jsonl", "measured.json"])
def test_broken_json_is_named(name, bundle, refused):
    files = opened(bundle)
    files[name] = files[name][:-3] + b"\n"
    assert f"{name} is not valid JSON" in refused(sealed(files))


def test_an_oversized_bundle_is_named(bundle, refused, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST_BUNDLE", len(bundle) - 1)
    assert refused(bundle).startswith("bundle.zip is larger than")


@pytest.mark.parametrize("name", ["../record.json", "/data/x.json", "completions/after/../x.jsonl"])
def test_a_path_that_leads_elsewhere_is_named(name, bundle, refused, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert refused(zipped(opened(bundle) | {name: b"{}"})) == f"{name!r} is no file of a bundle"
    assert {*tmp_path.rglob("*")} - {*before} == {tmp_path / "bundle.zip"}


def test_what_is_no_zip_is_named(refused):
    assert refused(b"PK\x03\x04 but no zip").startswith("the file is no whole zip")
    assert refused(b"").startswith("the file is no whole zip")


# What a record would show to everybody


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<script>alert(1)</script>", "a text that no record has"),
        ("a" * 501, "a text that no record has"),
        ("line\nline", "a text that no record has"),
        ("/data/ann/runs", "holds private text (path)"),
        ("ann@example.org", "holds private text (e-mail address)"),
        ("hf_" + "aB3" * 10, "holds private text (secret)"),
    ],
)
def test_markup_and_private_text_are_refused(text, sentence, bundle, refused):
    def named(record):
        record["provenance"]["hardware"]["gpu"] = text

    why = refused(edited(bundle, "record.json", named))
    assert why.startswith("record.json ")
    assert sentence in why

    def besides(record):
        record["after"]["note"] = text

    why = refused(edited(bundle, "record.json", besides))
    assert why.startswith("after in record.json ")
    assert sentence in why


@pytest.mark.parametrize(
    "changes",
    [
        *({"train_seconds": value} for value in (-1, None, "long", [1])),
        *({"curve": value} for value in (None, [], {"step": 1}, {"step": ["a"]})),
        *({"provenance": value} for value in (None, {}, {"versions": {}})),
        *({"processes": value} for value in (0, True, "4", [1])),
        *({"skipped_steps": value} for value in (-1, "1", None)),
        *({"predicted": value} for value in ([], {}, {"rows": []}, "well")),
        *({"before": None}, {"seed": "0"}, {"seed": True}, {"config": []}, {"completions": {}}),
    ],
)
def test_a_record_of_another_shape_is_refused(changes, bundle, refused):
    assert "\n" not in refused(record_of(bundle, **changes))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\x1b[2J", "a text that no record has"),
        ("\x9b2J", "a text that no record has"),
        ("a" * 2001, "a text that no record has"),
        ("/data/ann/runs", "holds private text (path)"),
        ("hf_" + "aB3" * 10, "holds private text (secret)"),
    ],
)
def test_control_characters_and_private_text_of_a_preflight_are_refused(
    text, sentence, predicted_bundle, refused
):
    def ends(preflight):
        preflight["prompts"]["end_tokens"] = [text]

    why = refused(edited(predicted_bundle, "preflight.json", ends))
    assert why.startswith("preflight.json ")
    assert sentence in why


def test_a_preflight_without_an_end_is_refused(predicted_bundle, refused):
    def deeper(preflight):
        for _ in range(checking.DEEPEST + 1):
            preflight = preflight.setdefault("prompts", {})

    why = refused(edited(predicted_bundle, "preflight.json", deeper))
    assert why == f"preflight.json is nested deeper than {checking.DEEPEST} levels"


@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("rows", None),
        ("rows", [1]),
        ("rows/0", {"name": "memory"}),
        ("rows/0/unit", 3),
        ("rows/0/actual", "much"),
        ("memory_ratio", True),
        ("seconds_by", None),
    ],
)
def test_predictions_of_another_shape_are_refused(way, value, predicted_bundle, refused):
    def other(record):
        *steps, last = way.split("/")
        place = record["predicted"]
        for step in steps:
            place = place[int(step) if step.isdecimal() else step]
        place[int(last) if last.isdecimal() else last] = value

    assert refused(edited(predicted_bundle, "record.json", other)).startswith("predicted")


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_value_anywhere_is_refused_or_harmless(data, predicted_bundle):
    """One leaf of one file takes any value of JSON: a refusal, never another error."""
    files = opened(predicted_bundle)
    name = data.draw(st.sampled_from([n for n in files if n != "manifest.json"]))
    parts = [json.loads(line) for line in files[name].splitlines()] if name.endswith("l") else []
    value = place = parts or json.loads(files[name])
    while True:
        key = data.draw(
            st.sampled_from([*(place if isinstance(place, dict) else range(len(place)))])
        )
        if not place[key] or not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            break
        place = place[key]
    leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    leaves |= st.floats(allow_nan=False, allow_infinity=False)
    place[key] = data.draw(
        st.recursive(leaves, lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=4)
    )
    try:
        lines = all(isinstance(part, dict) for part in parts)
        files[name] = archive.lines_bytes(value) if parts and lines else archive.json_bytes(value)
        found = checking.check(*archive.unpacked(sealed(files)))
        replay._findings_on(found.record)  # a record that it cannot read stops its whole arm
    except (Refused, CannotCheck):
        return
    assert (
        found.record["before"]
        == checking.check(*archive.unpacked(predicted_bundle)).record["before"]
    )


# Who came before


@pytest.fixture
def accepted(monkeypatch):
    """Takes the checks for done: what follows is about where a record goes."""

    def take(found, seed=0, adapter="a" * 64, completions="c" * 64, **config):
        record = json.loads(json.dumps(found.record))
        record["seed"] = record["config"]["seed"] = seed
        record["config"] |= config
        record["contributed"] |= {"completions": completions}
        record["contributed"]["model"]["adapter"] = adapter
        made = checking.Checked(record, found.completions)
        monkeypatch.setattr(importing, "check", lambda manifest, files: made)
        return importing.import_bundle

    return take


@pytest.fixture
def found(bundle):
    return checking.check(*archive.unpacked(bundle))


@pytest.fixture
def file(bundle, tmp_path):
    (tmp_path / "some.zip").write_bytes(bundle)
    return tmp_path / "some.zip"


def quietly(line):
    pass


def test_a_record_that_would_be_too_large_is_refused(bundle, refused, monkeypatch):
    monkeypatch.setattr(checking, "LARGEST_RECORD", 1000)
    assert refused(bundle).startswith("the record would have more than")


def test_a_seed_that_is_there_is_refused(accepted, found, file, results):
    accepted(found)(file, say=quietly)
    file.write_bytes(sealed(opened(file.read_bytes()), made="later"))
    with pytest.raises(Refused, match=r"seed 0 of poker/nano/own_.* is there already"):
        accepted(found, adapter="b" * 64, completions="d" * 64)(file, say=quietly)


@pytest.mark.parametrize("same", ["adapter", "completions"])
def test_one_run_under_two_seeds_counts_once(same, accepted, found, file, results):
    accepted(found)(file, say=quietly)
    other = {"adapter": "b" * 64, "completions": "d" * 64}
    del other[same]
    with pytest.raises(Refused, match=f"the {same} of this bundle came before, as seed 0"):
        accepted(found, seed=1, **other)(file, say=quietly)


@pytest.mark.parametrize("same", ["adapter", "completions"])
def test_one_run_in_two_arms_counts_once(same, accepted, found, file, results):
    path = accepted(found)(file, say=quietly)
    other = {"adapter": "b" * 64, "completions": "d" * 64}
    del other[same]
    named = f"as seed 0 of poker/nano/{path.parent.name}: one run counts once"
    with pytest.raises(Refused, match=f"the {same} of this bundle came before, {named}"):
        accepted(found, seed=1, learning_rate=0.5, **other)(file, say=quietly)
    accepted(found, seed=1, learning_rate=0.5, adapter="b" * 64, completions="d" * 64)(
        file, say=quietly
    )


def test_one_run_is_known_by_its_tokens_however_they_are_laid_out(bundle, found):
    def written(change):
        files = opened(bundle)
        lines = [json.loads(line) for line in files[AFTER].splitlines()]
        spaced = (json.dumps(line, separators=(", ", ":  ")) for line in change(lines))
        files[AFTER] = "".join(f"{line}\n" for line in spaced).encode()
        made = checking.check(*archive.unpacked(sealed(files)))
        return made.record["contributed"]["completions"]

    assert written(lambda lines: lines) == found.record["contributed"]["completions"]
    assert written(lambda lines: lines[::-1]) == found.record["contributed"]["completions"]


def test_seeds_of_other_settings_are_no_arm(accepted, found, file, results):
    """An arm keeps its name when the settings of its profile change."""
    path = accepted(found)(file, say=quietly)
    held = records.read_record(path)
    paths.write_json(path, held | {"config": held["config"] | {"learning_rate": 0.5}})
    with pytest.raises(Refused, match=r"seed0.json of .* was made with another learning_rate"):
        accepted(found, seed=1, adapter="b" * 64, completions="d" * 64)(file, say=quietly)


def test_what_is_only_logged_may_differ(accepted, found, file, results):
    accepted(found)(file, say=quietly)
    different = {"adapter": "b" * 64, "completions": "d" * 64, "save_steps": 7}
    path = accepted(found, seed=1, **different)(file, say=quietly)
    assert path.name == "seed1.json"


def test_another_revision_of_the_model_is_no_arm(accepted, found, file, results):
    accepted(found)(file, say=quietly)
    found.record["contributed"]["model"]["revision"] = "another"
    with pytest.raises(Refused, match=r"seed0.json of .* is of a model with another revision"):
        accepted(found, seed=1, adapter="b" * 64, completions="d" * 64)(file, say=quietly)


# Which arm it is


@pytest.mark.parametrize(
    ("overrides", "arm"),
    [
        ({}, "as_configured"),
        ({"seed": 7, "save_steps": 5}, "as_configured"),
        ({"pass_at_k_rows": 200}, "grpo"),
        ({"reward_funcs": ["random_reward"], "reward_weights": [1.0]}, "random_reward"),
    ],
)
def test_a_run_is_of_the_arm_with_its_settings(overrides, arm):
    assert importing.arm_of(plain(checked(("poker", "nano"), overrides))) == arm


def test_other_settings_are_an_arm_of_their_own():
    names = {
        importing.arm_of(plain(checked(("poker", "t4"), changes)))
        for changes in ({"beta": 0.1}, {"beta": 0.2}, {"beta": 0.2, "seed": 5})
    }
    assert len(names) == 2
    assert all(name.startswith("own_") for name in names)


@pytest.mark.parametrize("case", ["poker", "landuse", "gsm8k", "math"])
@pytest.mark.parametrize("profile", ["nano", "t4", "a100"])
def test_a_profiles_own_settings_override_nothing(case, profile):
    config = plain(checked((case, profile), {"seed": 3}))
    assert contents.overrides(config) == {}
    assert contents.overrides(config | {"beta": 9.5}) == {"beta": 9.5}


@pytest.mark.parametrize("case", ["poker", "landuse", "gsm8k", "math"])
@pytest.mark.parametrize("profile", ["t4", "a100"])
def test_what_a_gpu_measured_is_read_without_one(case, profile):
    """TRL's parser refuses bf16 on a CPU, where bundles are checked."""
    settings = plain(checked((case, profile)))
    plans = checking.measured.plan(contents.to_read(settings))
    assert plans["test"].limit == settings.get("test_limit", 0)
    assert plans["test"].decoding["sample"]["temperature"] == settings["temperature"]


# Where nothing can be said


def test_without_the_rows_nothing_can_be_said(bundle, take_in, monkeypatch, results):
    """Of the published problems no text ships, and without them nothing is graded: exit code 2."""

    def not_here(*arguments, **options):
        raise CasebookError("the test problems of gsm8k are not part of the casebook")

    monkeypatch.setattr(checking.measured.Rows, "of", checking.measured.Rows.of)
    rows = checking.measured.Rows("poker", "nano")
    monkeypatch.setattr(type(rows.case), "load", property(lambda case: not_here), raising=False)
    code, out, err = take_in(bundle)
    assert (code, out) == (2, "")
    assert err == (
        "casebook: the rows of poker are not here: "
        "the test problems of gsm8k are not part of the casebook\n"
    )
    assert not list(results.rglob("*.json"))


def test_the_rows_of_real_problem_sets_are_asked_for(monkeypatch):
    monkeypatch.delenv("CASEBOOK_DATA_DIR", raising=False)
    for case in ("gsm8k", "math"):
        with pytest.raises(CannotCheck, match=f"the rows of {case} are not here: .*CASEBOOK_DATA"):
            checking.measured.Rows(case, "t4").of("reason")


def test_a_file_that_is_not_there_is_no_refusal(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["casebook", "record", "import", str(tmp_path / "no.zip")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "no.zip cannot be read: No such file" in capsys.readouterr().err
