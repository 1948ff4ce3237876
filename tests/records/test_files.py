"""Records: whole or not at all, and read with care."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from casebook import CasebookError, paths, records
from casebook.case import PROFILES, UnknownName, known_cases

RECORD = {"case": "poker", "profile": "nano", "seed": 0, "provenance": {}}


# Writing


def test_a_record_survives_being_written_and_read(tmp_path):
    path = tmp_path / "new" / "folder" / "record.json"
    record = RECORD | {"after": {"greedy_accuracy": {"value": 0.9, "n": 1000}}, "text": "β = 0"}
    records.write_json(path, record)
    assert records.read_record(path) == record
    assert path.read_text().endswith("}\n")
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def test_keys_are_sorted_so_that_records_can_be_compared(tmp_path):
    records.write_json(tmp_path / "a.json", {"b": 1, "a": {"d": 1, "c": 2}})
    records.write_json(tmp_path / "b.json", {"a": {"c": 2, "d": 1}, "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(content=json_values)
def test_whatever_is_written_is_strict_json(tmp_path_factory, content):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    path = tmp_path_factory.mktemp("json") / "x.json"
    records.write_json(path, content)
    json.loads(path.read_text(), parse_constant=refuse)


def test_nan_becomes_null_and_numpy_becomes_plain(tmp_path):
    content = {
        "nan": math.nan,
        "inside": [np.float32("inf"), {"x": np.nan}],
        "count": np.int64(3),
        "table": np.eye(2, dtype=int),
        "flag": np.True_,
        7: (1, 2),
    }
    records.write_json(tmp_path / "x.json", content)
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "nan": None,
        "inside": [None, {"x": None}],
        "count": 3,
        "table": [[1, 0], [0, 1]],
        "flag": True,
        "7": [1, 2],
    }


@pytest.mark.parametrize("content", [{"a": {1, 2}}, [object()], {"p": Path("x")}, b"bytes"])
def test_what_is_not_json_is_refused_and_leaves_no_file(tmp_path, content):
    with pytest.raises(CasebookError, match="cannot be written as JSON"):
        records.write_json(tmp_path / "x.json", content)
    assert list(tmp_path.iterdir()) == []


def _full_disk(*args, **kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("moment", ["while writing", "while moving"])
def test_a_failure_in_the_middle_leaves_the_old_record(tmp_path, monkeypatch, moment):
    path = tmp_path / "record.json"
    records.write_json(path, RECORD)
    if moment == "while writing":

        def half(self, text, **kwargs):
            with open(self, "w") as file:
                file.write(text[: len(text) // 2])
            _full_disk()

        monkeypatch.setattr(Path, "write_text", half)
    else:
        monkeypatch.setattr(os, "replace", _full_disk)
    with pytest.raises(OSError, match="No space left"):
        records.write_json(path, RECORD | {"seed": 1})
    assert records.read_record(path) == RECORD
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


# Reading


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b'{"case": "poker", "profile', "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a record"),
        (b"null", "not a record"),
        (b'{"case": "poker", "profile": "nano", "seed": 0}', "no provenance"),
    ],
)
def test_a_damaged_record_is_one_clear_sentence(tmp_path, content, message):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(CasebookError, match=message) as caught:
        records.read_record(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_record_and_a_folder_are_named(tmp_path):
    with pytest.raises(CasebookError, match=r"there is no record at .*nowhere"):
        records.read_record(tmp_path / "nowhere.json")
    with pytest.raises(CasebookError, match="cannot be read"):
        records.read_record(tmp_path)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    for arm, seeds in {"grpo": (10, 2, 0), "control": (1,)}.items():
        for seed in seeds:
            path = tmp_path / "poker" / "nano" / arm / f"seed{seed}.json"
            records.write_json(path, RECORD | {"arm": arm, "seed": seed})
    return tmp_path / "poker" / "nano"


def test_committed_records_come_by_arm_and_seed(results):
    (results / "adapter").mkdir()
    found = [(record["arm"], record["seed"]) for record in records.committed("poker", "nano")]
    assert found == [("control", 1), ("grpo", 0), ("grpo", 2), ("grpo", 10)]
    assert [r["seed"] for r in records.committed("poker", "nano", "grpo")] == [0, 2, 10]


def test_no_committed_record_is_an_empty_list(results):
    assert records.committed("poker", "a100") == []
    assert records.committed("poker", "nano", "unheard of") == []


def test_committed_refuses_unknown_names_and_damaged_records(results):
    with pytest.raises(UnknownName, match="pokr"):
        records.committed("pokr", "nano")
    with pytest.raises(UnknownName, match="h100"):
        records.committed("poker", "h100")
    (results / "grpo" / "seed3.json").write_text("{")
    with pytest.raises(CasebookError, match=r"seed3\.json"):
        records.committed("poker", "nano")


def test_the_records_of_this_checkout_can_be_read():
    for case in known_cases():
        for profile in PROFILES:
            for record in records.committed(case, profile):
                assert (record["case"], record["profile"]) == (case, profile)


# Provenance


def test_provenance_says_what_ran_and_can_be_written(tmp_path):
    where = records.provenance()
    assert where["versions"]["numpy"] == np.__version__
    assert where["hardware"]["cores"] >= 1
    assert where["time"].endswith("+00:00")
    records.write_json(tmp_path / "x.json", where)


def test_provenance_needs_neither_git_nor_a_gpu(monkeypatch):
    monkeypatch.setenv("PATH", "")
    where = records.provenance()
    assert where["git"] == {"revision": None, "dirty": None}
    assert where["hardware"]["gpu"] is None


# Text


def test_figures_as_text():
    figure = {"value": 0.5, "low": 0.45, "high": 0.55, "n": 100}
    assert records.figure_text(figure) == "50.0 % [45.0, 55.0]"
    assert records.figure_text(figure, percent=False) == "0.5 [0.45, 0.55]"
    assert "`casebook experiments poker`" in records.missing("casebook experiments poker")


# Claims

CLAIM = {
    "id": "constant-answer",
    "claim": "The model learned something.",
    "source": "cell 7",
    "evidence": "computation",
    "computed_in": "notebook 10",
    "verdict": "refuted",
    "note": "A constant answer does as well.",
}


def _load(package, text):
    (package / "cases" / "poker" / "claims.yaml").write_text(text)
    return records.load_claims("poker")


def test_claims_are_read(package):
    assert _load(package, yaml.safe_dump([CLAIM])) == [CLAIM]


def test_a_case_may_have_no_claims_yet(package):
    (package / "cases" / "poker" / "claims.yaml").unlink(missing_ok=True)
    assert records.load_claims("poker") == []


@pytest.mark.parametrize(
    ("evidence", "verdicts"),
    [(kind, verdicts) for kind, verdicts in records.VERDICTS.items() if kind != "nano"],
)
def test_evidence_allows_its_own_verdicts_and_no_others(package, evidence, verdicts):
    everything = {verdict for allowed in records.VERDICTS.values() for verdict in allowed}
    row = {key: value for key, value in CLAIM.items() if key != "computed_in"}
    row |= {"evidence": evidence, records.BASIS[evidence]: "somewhere"}
    for verdict in verdicts:
        assert _load(package, yaml.safe_dump([row | {"verdict": verdict}]))
    for verdict in everything - set(verdicts):
        with pytest.raises(CasebookError, match=f"constant-answer.*{verdict!r}"):
            _load(package, yaml.safe_dump([row | {"verdict": verdict}]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evidence": "hearsay"}, "constant-answer.*hearsay.*computation"),
        ({"evidence": None}, "constant-answer.*'evidence' is missing"),
        ({"verdict": ""}, "constant-answer.*'verdict' is missing"),
        ({"computed_in": 10}, "constant-answer.*'computed_in' is missing"),
        ({"id": None}, "claim 2.*'id' is missing"),
        ({"id": "first"}, "claim first: another claim"),
        ({"command": "casebook train"}, "constant-answer.*no field 'command'"),
    ],
)
def test_a_wrong_claim_is_named(package, change, message):
    rows = [CLAIM | {"id": "first"}, CLAIM | change]
    with pytest.raises(CasebookError, match=message):
        _load(package, yaml.safe_dump(rows))


@pytest.mark.parametrize("text", ["", "a: 1", "- just words", "- [1]", "a: [", "- \x00"])
def test_a_file_that_holds_no_claims_is_refused(package, text):
    with pytest.raises(CasebookError, match=r"claims\.yaml"):
        _load(package, text)


COMPARISON = {
    "what": "accuracy",
    "left": "made_up/before/accuracy",
    "right": "made_up/after/accuracy",
    "expected": "rises",
}
NANO = {key: CLAIM[key] for key in ("id", "claim", "source", "note")} | {
    "evidence": "nano",
    "compare": [COMPARISON],
}


@pytest.fixture
def write_arm(tmp_path, monkeypatch):
    """Writes the records of an arm, one (before, after) a seed, with intervals of +- 0.02."""
    monkeypatch.setattr(records.paths, "RESULTS", tmp_path / "results")

    def write(*pairs, arm="made_up"):
        for seed, pair in enumerate(pairs):
            record = {"case": "poker", "profile": "nano", "seed": seed, "provenance": {}}
            for when, value in zip(("before", "after"), pair, strict=True):
                figure = {"value": value, "low": value - 0.02, "high": value + 0.02, "n": 100}
                record[when] = {"accuracy": figure, "drift": value, "label_histogram": {"a": 3}}
            folder = tmp_path / "results" / "poker" / "nano" / arm
            records.write_json(folder / f"seed{seed}.json", record | {"arm": arm})

    return write


@pytest.mark.parametrize(
    ("pairs", "expected", "verdict"),
    [
        ([(0.2, 0.5), (0.2, 0.6), (0.2, 0.55)], "rises", "mechanism seen"),
        ([(0.2, 0.5), (0.2, 0.6), (0.2, 0.55)], "falls", "mechanism not seen"),
        ([(0.5, 0.2), (0.6, 0.2), (0.5, 0.3)], "falls", "mechanism seen"),
        ([(0.2, 0.21), (0.2, 0.22), (0.2, 0.21)], "rises", "inconclusive"),  # they overlap
        ([(0.2, 0.9), (0.2, 0.9), (0.2, 0.19)], "rises", "inconclusive"),  # one seed falls
        ([(0.2, 0.9), (0.2, 0.9)], "rises", "inconclusive"),  # two seeds are too few
    ],
)
def test_the_records_decide_what_the_embedded_model_shows(write_arm, pairs, expected, verdict):
    write_arm(*pairs)
    found, text = records.compared("poker", COMPARISON | {"expected": expected})
    assert found == verdict
    assert text.startswith("accuracy: ")
    assert text.endswith(f"({len(pairs)} seeds)")


def test_a_nano_claim_gets_its_verdict_and_its_figures(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    (claim,) = _load(package, yaml.safe_dump([NANO]))
    assert claim["verdict"] == "mechanism seen"
    assert "20.0 % [" in claim["measured"]
    assert "55.0 % [" in claim["measured"]


def test_the_worst_of_several_comparisons_counts(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    falling = COMPARISON | {"expected": "falls"}
    (claim,) = _load(package, yaml.safe_dump([NANO | {"compare": [COMPARISON, falling]}]))
    assert claim["verdict"] == "mechanism not seen"


def test_a_nano_claim_without_records_was_not_run(package, write_arm):
    (claim,) = _load(package, yaml.safe_dump([NANO]))
    assert (claim["evidence"], claim["verdict"]) == ("none", "not run here")
    assert claim["command"] == "casebook experiments poker"


@pytest.mark.parametrize(
    "change", [{"left": "made_up/before/nothing"}, {"expected": "stays"}, {"what": ""}]
)
def test_a_comparison_that_cannot_be_made_is_an_error(write_arm, change):
    write_arm((0.2, 0.5))
    with pytest.raises(CasebookError):
        records.compared("poker", COMPARISON | change)


@pytest.mark.parametrize("change", [{"compare": []}, {"compare": "accuracy"}, {"verdict": "seen"}])
def test_a_nano_claim_names_comparisons_and_no_verdict(package, change):
    with pytest.raises(CasebookError, match="constant-answer"):
        _load(package, yaml.safe_dump([NANO | change]))


def test_a_unit_turns_shares_into_numbers(write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    _, text = records.compared("poker", COMPARISON | {"unit": "nats"})
    assert "0.2 [" in text
    assert "] nats (3 seeds)" in text


def test_arms_without_a_common_seed_are_not_compared(write_arm):
    write_arm((0.2, 0.5))
    write_arm((0.2, 0.5), (0.2, 0.5), arm="other")
    folder = records.paths.RESULTS / "poker" / "nano" / "other"
    (folder / "seed0.json").unlink()
    assert records.compared("poker", COMPARISON | {"right": "other/after/accuracy"}) is None


def test_what_could_not_be_read_is_no_label():
    figure = records.commonest_label({"flush": 3, "straight": 1, records.NO_ANSWER: 6})
    assert figure["value"] == 0.3
    assert figure["n"] == 10


@pytest.mark.parametrize(
    ("confusion", "value"),
    [
        ([[10, 0, 0], [0, 10, 0]], 1.0),
        ([[10, 0, 0], [10, 0, 0]], 0.0),  # always named
        ([[0, 5, 5], [0, 10, 0]], 0.0),  # never named
        ([[0, 10, 0], [10, 0, 0]], -1.0),
    ],
)
def test_telling_a_label_from_the_others_is_not_naming_it_often(confusion, value):
    figure = records.discrimination(confusion, 0, samples=2)
    assert figure["value"] == pytest.approx(value)
    assert figure["low"] <= value <= figure["high"]


def test_shares_end_at_nought_and_one():
    assert records.figure_text({"value": 1.0, "low": 0.99, "high": 1.01}) == "100.0 % [99.0, 100.0]"


def test_plain_numbers_and_histograms_are_figures_too(write_arm):
    write_arm((0.2, 0.5))
    assert records.figures_at("poker", "made_up/after/drift")[0]["low"] == 0.5
    assert records.figures_at("poker", "made_up/after/commonest_label")[0]["value"] == 1.0


def test_the_claims_of_every_case_are_valid():
    for case in known_cases():
        for row in records.load_claims(case):
            assert row["verdict"] in records.VERDICTS[row["evidence"]]


def test_a_mark_of_code_is_blind_to_words_and_not_to_code(tmp_path):
    path = tmp_path / "made.py"
    marks = []
    for text in ('"""One."""\nx = 1\n', '"""Two."""\n# why\nx  =  1\n', "x = 2\n"):
        path.write_text(text)
        marks.append(records.source_mark(path))
    assert marks[0] == marks[1] != marks[2]


# The write-ups

SOURCE = {"title": "T", "author": "A", "date": "D", "address": "not known", "about": "It is short."}
CORRECTION = {"said": "a", "where": "b", "right": "c", "shown_in": "10 · One hand by hand"}


@pytest.fixture
def write_source(monkeypatch, tmp_path):
    """A function that replaces the write-up of poker by what it is given."""
    folder = tmp_path / "cases" / "poker"
    folder.mkdir(parents=True)
    monkeypatch.setattr(records, "__file__", str(tmp_path / "records.py"))

    def write(content):
        (folder / "source.yaml").write_text(yaml.safe_dump(content))

    return write


def test_a_write_up_is_what_its_file_says(write_source):
    write_source(SOURCE | {"corrections": [CORRECTION]})
    assert records.load_source("poker") == SOURCE | {"corrections": [CORRECTION]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**SOURCE}, "must be a list"),
        ({**SOURCE, "corrections": [], "pages": "3"}, "no field 'pages'"),
        ({**SOURCE, "corrections": [], "title": ""}, "'title' is missing"),
        ({**SOURCE, "corrections": [], "date": 2025}, "'date' is missing or is not text"),
        ({**SOURCE, "corrections": ["wrong"]}, "expected fields"),
        ({**SOURCE, "corrections": [{**CORRECTION, "right": " "}]}, "'right' is missing"),
        ({**SOURCE, "corrections": [{**CORRECTION, "shown_in": "notebook 10"}]}, "no '41 · Head"),
        (["not", "a", "mapping"], "expected fields"),
    ],
)
def test_a_write_up_that_lacks_something_is_one_sentence(write_source, content, message):
    if isinstance(content, dict):
        content.setdefault("corrections", None)
    write_source(content)
    with pytest.raises(CasebookError, match=message):
        records.load_source("poker")


def test_a_case_without_a_write_up_is_one_sentence(write_source):
    with pytest.raises(CasebookError, match="cannot be read"):
        records.load_source("poker")


@pytest.mark.parametrize("case", known_cases())
def test_every_correction_is_shown_where_it_says(case):
    corrections = records.load_source(case)["corrections"]
    assert corrections
    for correction in corrections:
        number, _, heading = correction["shown_in"].partition(" · ")
        (path,) = (Path(__file__).parents[1] / "notebooks").glob(f"{number}_*.ipynb")
        cells = json.loads(path.read_text())["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        headings = {
            line.lstrip("# ") for text in texts for line in text.splitlines() if line[:2] == "##"
        }
        assert heading in headings
