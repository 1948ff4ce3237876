"""Predictions about a real model: what the files may say, and what records make of them."""

import pytest
import yaml

from casebook import CasebookError
from casebook.case import UnknownName, known_cases
from casebook.cases.gsm8k.studies import smol as gsm8k_study
from casebook.cases.math.studies import smol as math_study
from casebook.records import predictions

ROW = {
    "what": "greedy accuracy before and after",
    "record": "sound",
    "figure": "after/greedy_accuracy",
    "expected": {"above": "before/greedy_accuracy"},
    "reason": "It is paid.",
    "date": "2026-11-22",
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the predictions of poker, and reads them."""
    monkeypatch.setattr(predictions, "CASES", tmp_path)
    (tmp_path / "poker").mkdir()

    def load(*rows):
        (tmp_path / "poker" / "predictions.yaml").write_text(yaml.safe_dump([*rows]))
        return predictions.load_predictions("poker")

    return load


def test_predictions_are_read(write):
    assert write(ROW) == [ROW]
    assert write() == []
    assert predictions.load_predictions("math") == []  # a case may have none
    with pytest.raises(UnknownName, match="pokr"):
        predictions.load_predictions("pokr")


@pytest.mark.parametrize(
    "expected",
    [
        {"low": 0.1, "high": 0.2},
        {"high": 0.2},
        {"below": 0.02},
        {"above": "sound_sft: after/greedy_accuracy", "low": 0},
        {"not_above": "smol_poker: rows/source/baselines/majority"},
        {"no_change_from": "before/greedy_accuracy"},
        {"no_change_from": "before/greedy_accuracy", "within": 0.02},
        {"above": "before/x", "gains_less_than": ["before/y", "after/y"]},
    ],
)
def test_what_may_be_expected(write, expected):
    assert write(ROW | {"expected": expected})[0]["expected"] == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"claim": "x"}, "no field 'claim'"),
        ({"what": None}, "'what' is missing"),
        ({"reason": ""}, "'reason' is missing"),
        ({"seen": True}, "'seen' is missing or is not text"),
        ({"unit": 3}, "'unit' is missing or is not text"),
        ({"date": "yesterday"}, "'yesterday' is no date"),
        ({"record": "sund"}, "unknown study or arm 'sund'.*smol_poker.*sound"),
        ({"record": "smol_math"}, "unknown study or arm 'smol_math'"),  # of another case
        ({"record": "grpo"}, "unknown study or arm 'grpo'"),  # of the embedded model
        ({"record": "chosen_*"}, "unknown study or arm 'chosen_"),
        ({"figure": "after//accuracy"}, "is no way to a figure"),
        ({"figure": "sund: after/accuracy"}, "unknown study or arm 'sund'"),
        ({"expected": None}, "'expected' is missing"),
        ({"expected": "rises"}, "'expected' is missing or holds no conditions"),
        ({"expected": {}}, "holds no conditions"),
        ({"expected": {"over": 0.1}}, "unknown condition 'over'.*above"),
        ({"expected": {"low": 0.2, "high": 0.1}}, "'low' 0.2 is not below 'high' 0.1"),
        ({"expected": {"above": 0.2, "below": 0.2}}, "'above' 0.2 is not below 'below' 0.2"),
        ({"expected": {"low": "before/x"}}, "'low' must be a number, not 'before/x'"),
        ({"expected": {"above": None}}, "'above' must be a number or a figure, not 'None'"),
        ({"expected": {"above": True}}, "must be a number or a figure"),
        ({"expected": {"below": 12}}, "'below' 12 is no share"),
        ({"expected": {"above": "sund: x"}}, "unknown study or arm 'sund'"),
        ({"expected": {"no_change_from": 0.1}}, "'0.1' is no figure"),
        ({"expected": {"within": 0.1}}, "of 'no_change_from'"),
        ({"expected": {"gains_less_than": ["a", "b"]}}, "needs a figure in 'above'"),
        ({"expected": {"above": "a", "gains_less_than": "b"}}, "must be two figures"),
    ],
)
def test_a_wrong_prediction_is_named(write, change, message):
    with pytest.raises(CasebookError, match=r"predictions\.yaml of poker, row 1 .*" + message):
        write(ROW | change)


def test_rows_are_different_and_have_fields(write):
    with pytest.raises(CasebookError, match=r"row 2 .*stands there twice"):
        write(ROW, ROW | {"reason": "Said again."})
    with pytest.raises(CasebookError, match=r"row 1 .no text.*expected fields"):
        write("rises")


def test_numbers_with_a_unit_are_no_shares(write):
    assert write(ROW | {"unit": "bits", "expected": {"below": 3}})


def test_the_predictions_of_every_case_are_valid():
    assert {c for c in known_cases() if predictions.load_predictions(c)} == {
        *("gsm8k", "math", "poker")
    }


@pytest.mark.parametrize(("case", "study"), [("gsm8k", gsm8k_study), ("math", math_study)])
def test_parts_of_studies_are_those_that_are_written(case, study):
    """A name that is spelled wrong would be found after hours of writing."""
    named = [
        way.split("/")[1]
        for row in predictions.load_predictions(case)
        for figure in (row["figure"], *map(str, row["expected"].values()))
        for name, way in [predictions.split(figure, row["record"])]
        if name == study.NAME and way.startswith("parts/")
    ]
    assert named
    assert set(named) <= {part.name for part in study.PARTS}
