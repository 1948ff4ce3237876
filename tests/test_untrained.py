"""What an untrained model writes: resumed, kept, graded again, and silent groups counted."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from casebook import load_case, untrained
from casebook.case import CasebookError
from casebook.records import read_rows, write_rows
from casebook.untrained import Part

PARTS = (Part("reason", "test", 3), Part("reason", "validation", 2, 4, 0.7))
LEAST = {"max_completion_length": 4}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    return tmp_path


def written(said):
    return untrained.written("poker", "smoke", PARTS, LEAST, say=said.append)


def test_all_parts_are_written_once_and_then_read(runs):
    said, more = [], []
    completions, model = written(said)
    assert list(completions.columns) == list(untrained.KEPT)
    assert completions.groupby("part", sort=False).size().to_dict() == {
        "reason, test, greedy": 3,
        "reason, validation, 4 samples at 0.7": 8,
    }
    assert said[-1] == "reason, validation, 4 samples at 0.7: 8 of 8 completions"
    assert model["name"] == "data/nano/poker"
    again, _ = written(more)
    assert more == []
    pd.testing.assert_frame_equal(completions, again)


def test_a_part_that_was_stopped_goes_on(runs):
    completions, _ = written([])
    [store] = [f for f in runs.rglob("*.jsonl") if len(f.read_text().splitlines()) == 8]
    store.write_text("".join(store.read_text().splitlines(keepends=True)[:5]))
    said = []
    again, _ = written(said)
    assert said == ["reason, validation, 4 samples at 0.7: 8 of 8 completions"]
    pd.testing.assert_frame_equal(completions, again)


def made_up():
    rows = load_case("poker").load("test", profile="smoke", variant="label")
    texts = [rows[0]["answer"], "no hand", f"It is {rows[2]['answer']}, I think."]
    return pd.DataFrame(
        [["label, test, greedy", i, "greedy", 0, text, 3, False] for i, text in enumerate(texts)],
        columns=list(untrained.KEPT),
    )


def test_what_is_kept_is_read_again_and_the_same_bytes(tmp_path):
    files = [tmp_path / folder / "a.gz" for folder in ("one", "two")]
    for file in files:
        write_rows(made_up(), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    pd.testing.assert_frame_equal(read_rows(files[0]), made_up())


@pytest.mark.parametrize("damage", ["gone", "cut", "text"])
def test_completions_that_cannot_be_read_are_one_sentence(damage, tmp_path):
    file = tmp_path / "a.gz"
    write_rows(made_up(), file)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:30] if damage == "cut" else b"completions")
    with pytest.raises(CasebookError, match="no completions can be read from"):
        read_rows(file)


def test_completions_are_graded_against_their_own_rows():
    table = untrained.graded("poker", "smoke", [Part("label", "test", 3)], made_up())
    assert table["strict"].tolist() == [True, False, False]
    assert table["correct"].tolist() == [True, False, True]
    assert table["answered"].tolist() == [True, False, True]
    assert untrained.form_and_answers(table) == {
        **{"both": 1, "form alone": 0, "answer alone": 1, "neither": 1},
    }
    figure = untrained.figures(table, ["correct"])["correct"]
    assert (figure["value"], figure["n"]) == (pytest.approx(2 / 3), 3)


def test_an_interval_counts_rows_and_not_samples():
    table = pd.DataFrame({"row": [0] * 8 + [1] * 8, "correct": [True] * 8 + [False] * 8})
    assert untrained.figures(table, ["correct"])["correct"]["n"] == 2


# Silent groups


@pytest.mark.parametrize("size", [2, 3, 5])
def test_silent_groups_are_those_that_can_be_drawn(size):
    rewards = np.random.default_rng(0).choice([0.0, 0.125, 1.0], (6, 5), p=(0.7, 0.2, 0.1))
    shares = [
        np.mean([len(set(group)) == 1 for group in combinations(row, size)]) for row in rewards
    ]
    assert untrained.silent(rewards, size) == pytest.approx(np.array(shares))


def test_rewards_that_differ_by_rounding_alone_are_the_same():
    assert untrained.silent([[0.1 + 0.2, 0.3]], 2).tolist() == [1.0]


@pytest.mark.parametrize("size", [0, 1, 5])
def test_a_group_of_more_than_there_are_is_refused(size):
    with pytest.raises(CasebookError, match=f"a group of {size} cannot be drawn from 4 samples"):
        untrained.silent([[0, 0, 1, 1]], size)


def test_every_reward_has_its_silent_groups():
    table = pd.DataFrame({"row": [0, 1] * 4, "sample": [0, 0, 1, 1, 2, 2, 3, 3]})
    table = table.assign(strict=[False, True] * 4, total=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    found = untrained.silent_groups(table, ["strict", "total"])
    assert {size: figure["value"] for size, figure in found["strict"].items()} == {"2": 1, "4": 1}
    assert found["total"]["2"]["value"] == pytest.approx((1 / 3 + 1) / 2, abs=1e-6)
    assert found["total"]["4"]["value"] == 0.5
