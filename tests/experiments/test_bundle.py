"""Bundles: what is sent, what is computed from it, and each way to tamper with one.

Nobody seals a bundle: whoever tampers with one writes it as the export would.
"""

import io
import json
import zipfile
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebook import records
from casebook.case import CasebookError, load_case
from casebook.experiments import bundle
from casebook.experiments.bundle import CannotCheck, Refused, check_bundle, export_run
from casebook.paths import plain
from casebook.settings import checked

pytestmark = pytest.mark.slow
AFTER, BEFORE = (f"completions/{when}/test.jsonl" for when in ("after", "before"))
SETTINGS = {
    **{"max_steps": 2, "per_device_train_batch_size": 16, "evaluate_every": 2, "evaluate_rows": 8},
    **{"test_limit": 8, "test_samples": 2, "pass_at_k_rows": 3, "pass_at_k_samples": 4},
    "also_evaluate": {"label alone": {"variant": "label", "limit": 5}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of poker on the embedded model, measured in every way."""
    from casebook import training

    config = training.read_config(("poker", "nano"), SETTINGS)
    return training.train(config, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def sent(run, tmp_path_factory):
    """The bytes of its bundle."""
    path = tmp_path_factory.mktemp("bundles") / "run.zip"
    return export_run(run.path, path, say=lambda line: None).read_bytes()


def opened(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def edited(content: bytes, name: str, change) -> bytes:
    """A bundle of which one file, or the lines of one, went through `change` or got its values."""
    files = opened(content)
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in files[name].decode().splitlines()]
        files[name] = bundle._lines(change(lines) or lines)
    else:
        value = json.loads(files[name])
        files[name] = json.dumps(value | change).encode()
    return bundle._zipped(files)


def without_other_names(figures):
    """A record's figures, but for those that no completion shows."""
    return {
        n: v for n, v in figures.items() if n not in ("kl_from_base", "other_prompt_perplexity")
    }


# What is sent


def test_the_figures_that_come_out_are_those_of_the_record(run, sent):
    found, record = check_bundle(sent), run.record()
    for when in ("before", "after"):
        ours = json.loads(json.dumps(without_other_names(record[when])))
        ours["also"] = {n: without_other_names(v) for n, v in ours["also"].items()}
        assert {"greedy_accuracy", "per_class", "pass_at_k", "also"} <= set(ours)
        assert json.loads(json.dumps(found[when])) == ours
    assert (found["completions"], found["texts"]) == (2 * (8 * 3 + 3 * 4 + 5), True)
    own = {name: value for name, value in SETTINGS.items() if name != "test_samples"}
    assert found["overrides"] == own  # without what the profile says, too


def test_nothing_of_the_machine_is_sent(run, tmp_path, monkeypatch):
    record = run.record()
    hardware = record["provenance"]["hardware"] | {"gpu": "ann's card </b>"}
    record["provenance"] = record["provenance"] | {"hardware": hardware}
    record["config"] = record["config"] | {"report_to": "/somewhere/run"}
    monkeypatch.setattr(bundle.Run, "record", lambda run: record)
    monkeypatch.setattr(bundle.Run, "settings", lambda run: record["config"])
    content = export_run(run.path, tmp_path / "run.zip", say=str).read_bytes()
    for name, data in opened(content).items():
        assert b"ann" not in data or name.startswith("completions/"), name
        assert b"/somewhere" not in data, name
    record["config"] = record["config"] | {"attn_implementation": "/somewhere/kernel"}
    with pytest.raises(CasebookError, match="may name a path on a machine"):
        export_run(run.path, tmp_path / "other.zip", say=str)
    assert not (tmp_path / "other.zip").exists()


def test_a_line_that_a_kill_cut_short_is_not_sent(run, tmp_path):
    kept = run.path / "measured/after/test.jsonl"
    whole = export_run(run.path, tmp_path / "whole.zip", say=str).read_bytes()
    kept.write_text('[0, "greedy' + "\n" + kept.read_text())
    assert opened(export_run(run.path, tmp_path / "cut.zip", say=str).read_bytes()) == opened(whole)


def test_what_a_run_folder_lacks_is_named(run, tmp_path, monkeypatch):
    (run.path / "measured" / "policy").rename(tmp_path / "policy")
    with pytest.raises(CasebookError, match="has no completions of test rows"):
        export_run(run.path)
    (run.path / "measured" / "policy").write_text("0" * 64)
    with pytest.raises(CasebookError, match="is not the one that was measured"):
        export_run(run.path)
    (tmp_path / "policy").rename(run.path / "measured" / "policy")


# What is refused: what was done, to which file, and what is said


def longer(lines):
    return [*lines, lines[3]]


def set_row(lines, row, to):
    for line in lines:
        line[0] = to if line[0] == row else line[0]


def sure(lines):
    for line in lines:
        line[4] = "<think>\n</think>\n<answer>flush</answer>"


def short(lines):
    lines[0][3] = lines[0][3][:-2]


def after_its_end(lines):
    lines[0][3] = [lines[0][3][-1], *lines[0][3]]


TAMPERED = {
    "texts made right": (AFTER, sure, "the text differs from its tokens"),
    "a completion dropped": (AFTER, lambda lines: lines[:-1], f"{AFTER} lacks row 7, sample 1"),
    "no completion": (AFTER, lambda lines: [None], "not a valid bundle"),
    "a completion twice": (BEFORE, longer, "has a completion twice"),
    "a row that is none": (AFTER, lambda lines: set_row(lines, 7, 99), "row 7 is missing"),
    "a completion without its end": (AFTER, short, "the text|goes on|tokens"),
    "an end in the middle": (AFTER, after_its_end, "the text|with a misplaced end token"),
    "ids that are none": (AFTER, lambda lines: lines[0].__setitem__(3, [-1]), "not .row, decoding"),
    "another case": ("config.json", {"case": "chess"}, "unknown case 'chess'"),
    "the profile of tests": ("config.json", {"profile": "smoke"}, "smoke"),
    "another model": (
        *("config.json", {"model_name_or_path": "Qwen/Qwen2.5-72B"}),
        "allows only the embedded model data/nano/poker",
    ),
    "a link for a name": (
        *("config.json", {"also_evaluate": {"![t](http://evil.example/a.png)": {"limit": 5}}}),
        "may name a path",
    ),
    "a setting that is none": ("config.json", {"learning": 1}, "learning"),
    "fewer rows by the settings": ("config.json", {"test_limit": 4}, "should not have"),
    "no test rows by the settings": ("config.json", {"measure": "validation"}, "never results"),
}


@pytest.mark.parametrize("way", TAMPERED)
def test_what_was_tampered_with_is_refused_and_named(way, sent):
    name, change, said = TAMPERED[way]
    with pytest.raises(Refused, match=said):
        check_bundle(edited(sent, name, change))


def written(entries) -> bytes:
    """A zip of `(name, content)`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries:
            file.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("../config.json", b"{}", "'../config.json' does not belong in"),
        ("record.json", b"{}", "'record.json' does not belong in"),
        ("completions/after/also_7.jsonl", b"", "does not belong in"),
        ("config.json", b"{}", "has a file twice"),
        ("completions/after/also_7.jsonl", b"\0" * 2**24, "8 MiB in all"),
    ],
)
def test_a_zip_with_something_else_in_it_is_refused(name, content, said, sent, monkeypatch):
    monkeypatch.setattr(bundle, "LARGEST_CONTENT", 2**23)
    with pytest.raises(Refused, match=said):
        check_bundle(written([*opened(sent).items(), (name, content)]))


def test_what_is_encrypted_is_refused(sent):
    content = bytearray(sent)
    content[content.index(b"PK\1\2") + 8] |= 1  # the flag of the first entry
    with pytest.raises(Refused, match="encrypted"):
        check_bundle(bytes(content))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda config: b"[" * 100_000, "not a valid bundle"),
        (lambda config: b"[]", "contains no settings"),
        (lambda config: config.replace(b'"seed": 0', b'"seed": NaN'), "seed is nan"),
        (lambda config: config.replace(b'"seed": 0', b'"seed": 1e999'), "seed is inf"),
    ],
    ids=["nested", "a list", "NaN", "infinite"],
)
def test_settings_that_are_not_what_they_should_be_are_refused(content, said, sent):
    files = opened(sent)
    with pytest.raises(Refused, match=said):
        check_bundle(written((files | {"config.json": content(files["config.json"])}).items()))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no zip"),
        (b"PK\3\4" + b"x" * 100, "not a valid bundle"),
        (written([("record.json", b"{}")]), "config.json is missing"),
    ],
)
def test_what_is_no_bundle_is_refused(content, said):
    with pytest.raises(Refused, match=said):
        check_bundle(content)


def test_two_rows_that_changed_places_give_other_figures(sent):
    def swapped(lines):
        for line in lines:
            line[0] = 7 - line[0]

    honest, moved = check_bundle(sent), check_bundle(edited(sent, AFTER, swapped))
    assert moved["before"] == honest["before"]
    assert moved["after"]["confusion"] != honest["after"]["confusion"]


def test_a_gpu_run_is_checked_on_a_processor_and_needs_its_rows(monkeypatch):
    wanted = plain(checked(("poker", "t4"), {"test_limit": 4, "test_samples": 1}))
    case, end = load_case("poker"), 151_645
    rows = case.load("test", "t4", variant=wanted["variant"]).select(range(4))
    right = [case.reference(row, wanted["variant"]) for row in rows]
    jobs = [(row, decoding) for decoding in ("greedy", "sample") for row in range(4)]
    lines = {
        "before": [[row, decoding, 0, [7, end], "I cannot tell."] for row, decoding in jobs],
        "after": [[row, decoding, 0, [7, end], right[row]] for row, decoding in jobs],
    }
    files = {"config.json": json.dumps(wanted).encode()}
    files |= {f"completions/{when}/test.jsonl": bundle._lines(lines[when]) for when in lines}
    found = check_bundle(bundle._zipped(files))
    assert [found[when]["greedy_accuracy"]["value"] for when in lines] == [0, 1]
    assert not found["texts"]
    assert bundle.report(found)[-1] == bundle.UNPROVEN

    def missing(*_, **__):
        raise CasebookError("the problems are not on this machine")

    monkeypatch.setattr(bundle, "load_case", lambda name: SimpleNamespace(name=name, load=missing))
    with pytest.raises(CannotCheck, match=r"the rows of poker are not here: the problems are not"):
        check_bundle(bundle._zipped(files))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_was_changed_is_refused_or_gives_figures(data, sent):
    files = opened(sent)
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(0, len(content) - 1)))
        new = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"null", b"-1", b"[", b'"', b"9" * 20])
        )
        content[place : place + data.draw(st.integers(0, 20))] = new
    try:
        found = check_bundle(bundle._zipped(files | {name: bytes(content)}))
    except Refused:  # a sentence, and no other error
        return
    assert 0 <= found["after"]["greedy_accuracy"]["value"] <= 1


# The command


def test_the_command_prints_figures_and_that_nobody_can_check_the_writer(
    sent, run, tmp_path, casebook, capsys
):
    file = tmp_path / "run.zip"
    assert casebook("record", "export", run.path, "--output", file) == 0
    assert "82 completions graded again" in capsys.readouterr().out
    assert casebook("record", "check", file) == 0
    printed = capsys.readouterr().out
    before, after = (run.record()[when]["greedy_accuracy"] for when in ("before", "after"))
    said = f"{records.figure_text(before)} before, {records.figure_text(after)} after"
    assert f"greedy_accuracy: {said}" in printed
    assert "Nobody can check that a model wrote these completions" in printed
    assert casebook("record", "check", file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["after"]["greedy_accuracy"] == after
    file.write_bytes(edited(sent, AFTER, sure))
    assert casebook("record", "check", file) == 1
    assert capsys.readouterr().err.startswith("casebook: refused: completions/after/test.jsonl")
    assert casebook("record", "check", tmp_path / "nothing.zip") == 2
