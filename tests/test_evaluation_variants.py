from dataclasses import replace

import pytest

from casebook import evaluation, paths
from casebook.case import CasebookError, UnknownName, load_case

CALL = {"split": "validation", "limit": 4, "samples": 1}


@pytest.fixture
def uneven(monkeypatch):
    """The poker case with a variant whose prompts are long: the first, or all of them."""

    def use(longest):
        case = load_case("poker")

        def load(split, profile, variant):
            rows = case.load(split, profile=profile, variant="reason")
            prompts = [
                " ".join([row["prompt"]] * (40 if i < longest else 1)) for i, row in enumerate(rows)
            ]
            return rows.remove_columns("prompt").add_column("prompt", prompts)

        monkeypatch.setattr(evaluation, "load_case", lambda name: replace(case, load=load))

    return use


def test_another_variant_is_measured_and_named():
    record = evaluation.evaluate_to_record("poker", variant="label", **CALL)
    assert (record["variant"], record["dropped_overlong"]) == ("label", 0)
    assert (record["case"], record["profile"], record["split"]) == ("poker", "nano", "validation")
    assert record["greedy_accuracy"]["n"] == 4


def test_what_does_not_fit_is_left_out_and_counted(uneven, capsys):
    uneven(longest=1)
    record = evaluation.evaluate_to_record("poker", variant="reason", **CALL)
    assert record["dropped_overlong"] == 1
    assert record["greedy_accuracy"]["n"] == 3
    assert capsys.readouterr().err == ""


def test_a_model_too_small_for_every_prompt_is_one_sentence(uneven):
    uneven(longest=10_000)
    with pytest.raises(CasebookError, match=r"no prompt of poker/reason fits: .* 256 positions"):
        evaluation.evaluate_to_record("poker", variant="reason", **CALL)


def test_a_case_without_the_variant_says_which_it_has():
    with pytest.raises(UnknownName, match="unknown variant 'shots5': known are reason, "):
        evaluation.evaluate_to_record("poker", variant="shots5")


def test_a_model_folder_that_is_none(tmp_path):
    with pytest.raises(CasebookError, match="it holds no policy saved here"):
        evaluation.evaluate_to_record("poker", tmp_path, variant="label")


def test_a_policy_of_another_profile_is_refused():
    adapter = paths.RESULTS / "poker" / "nano" / "adapter"
    with pytest.raises(CasebookError, match="was trained for poker/nano, not for landuse/nano"):
        evaluation.evaluate_to_record("landuse", adapter, variant="alone")


@pytest.mark.parametrize(
    ("variant", "count"),
    [
        ("shots5", 5),
        ("shots0", 0),
        ("chat-shots2", 2),
        ("chat", 0),
        ("reason", 0),
        ("shots", 0),
        ("5", 0),
        ("shots-5", 0),
    ],
)
def test_the_number_of_examples_stands_in_the_name(variant, count):
    assert evaluation.shots_of(variant) == count
