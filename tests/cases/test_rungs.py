"""The ladder of small tasks for a real model: disjoint splits, whole answers, rewards, the gate."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import load_case, paths
from casebook.case import CasebookError, UnknownName
from casebook.cases import rungs
from casebook.records import gate
from casebook.stats import pack_bits

RUNGS = {"poker": "higher hearts pair", "landuse": "crop floor", "gsm8k": "story", "math": "boxed"}
ALL = [(case, f"rung-{name}") for case, names in RUNGS.items() for name in names.split()]


@pytest.mark.parametrize(("case", "variant"), ALL)
def test_held_out_questions_share_no_operands_with_training(case, variant):
    found = {s: load_case(case).load(s, "smol", variant=variant) for s in ("train", "test")}
    assert not set(found["train"]["operands"]) & set(found["test"]["operands"])
    assert len(set(found["test"]["question"])) == len(found["test"]) == 200
    again = load_case(case).load("test", "smol", variant=variant)
    assert again["question"] == found["test"]["question"]


@pytest.mark.parametrize(("case", "variant"), ALL)
def test_what_the_oracle_writes_is_right_and_examples_show_it(case, variant):
    known = load_case(case)
    for row in known.load("validation", "smol", variant=variant).select(range(20)):
        assert known.grade(known.reference(row, variant), row["answer"], variant=variant).strict
        for wrong in ("", "no idea", f"{row['answer']} or not"):
            assert not known.grade(wrong, row["answer"], variant=variant).strict
        roles = [turn["role"] for turn in row["prompt"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert row["answer"] in row["choices"] or not row["choices"]


@given(st.text(max_size=80), st.sampled_from(("87", "", None, 3)))
def test_any_text_gets_a_grade(text, answer):
    found = rungs.whole_answer(text, answer, "[0-9]{2}")
    assert found.correct is (found.answer is not None and found.answer == answer)
    assert found.well_formed is (re.fullmatch("[0-9]{2}", text.strip()) is not None)


def test_a_megabyte_is_read_in_no_time():
    assert not rungs.whole_answer("7" * 1_000_000, "87", "[0-9]{2}").correct


def test_in_free_advice_no_answer_is_read():
    assert load_case("landuse").grade("oat", "oat", "rung-advice").answer is None


def test_one_reward_tells_the_right_card_and_the_other_does_not():
    row = {"answer": ["KD"] * 4, "choices": [["5C", "KD"]] * 4}
    written, rewards = ["KD", "5C", "the KD", ""], load_case("poker").rewards
    assert list(rewards["rung"]()(written, **row)) == [1, 0, 0, 0]
    assert list(rewards["rung_choice"]()(written, **row)) == [1, 1, 0, 0]


def test_an_unknown_rung_or_an_embedded_model_is_refused():
    with pytest.raises(UnknownName, match="rung-higher"):
        load_case("poker").load("test", "smol", variant="rung-highest")
    with pytest.raises(CasebookError, match="needs a chat model"):
        load_case("poker").load("test", "nano", variant="rung-higher")


@pytest.mark.parametrize(
    ("right", "taught", "passes"),
    [
        ([[1, 0], [0, 1], [0, 0]], 0.9, True),
        ([[1, 0], [0, 1], [0, 0]], 0.5, False),  # no more than always the first card
        ([[0, 0], [0, 0], [0, 1]], 0.9, False),  # silent
        ([[1, 1], [1, 1], [1, 0]], 0.9, False),  # nothing left to learn
    ],
)
def test_the_gate(tmp_path, monkeypatch, right, taught, passes):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    figure = {"value": taught, "low": taught - 0.05, "high": taught + 0.05, "n": 30}
    config = {"variant": "rung-higher", "test_limit": 200}
    record = {"case": "poker", "profile": "smol", "seed": 0, "provenance": {}, "config": config}
    record["after"] = {"greedy_accuracy": figure}
    for arm, solved in (("made", right * 10), ("made_sft", [[0, 0]] * 30)):
        bits = {"pass_at_k": {"rows": 30, "strict": pack_bits(solved)}}
        written = record | {"arm": arm, "before": {"bits": bits}}
        paths.write_json(tmp_path / "poker" / "smol" / arm / "seed0.json", written)
    assert gate.gate("poker", "made", untrained="made")["passes"] is passes
    assert gate.gate("poker", "made_sft", untrained="made")["passes"] is passes
    assert not gate.gate("poker", "made_sft")["passes"]
