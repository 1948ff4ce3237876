"""What an untrained model writes: resumed, graded by its own rows, and silent groups counted."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from casebook import load_case, paths, untrained
from casebook.records import read_rows, studies
from casebook.untrained import Part

PARTS = (Part("reason", "test", 3), Part("reason", "validation", 2, 4, 0.7))


def test_a_study_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr(paths, "RESULTS", tmp_path)

    def record():
        least = {"max_completion_length": 4}
        return untrained.study("smol_poker", "poker", "smoke", PARTS, least, lambda rows: len(rows))

    made = record()
    assert (made["parts"], made["provenance"]["model"]["name"]) == (11, "data/nano/poker")
    kept = studies.completions_path("smol_poker")
    before = kept.read_bytes()
    assert read_rows(kept).groupby("part").size().tolist() == [3, 8]
    [store] = [f for f in tmp_path.rglob("*.jsonl") if len(f.read_text().splitlines()) == 8]
    store.write_text("".join(store.read_text().splitlines(keepends=True)[:5]))
    assert record()["parts"] == 11
    assert kept.read_bytes() == before


def test_completions_are_graded_against_their_own_rows():
    rows = load_case("poker").load("test", profile="smoke", variant="label")
    texts = [rows[0]["answer"], "no hand", rows[0]["answer"]]
    kept = [["label, test, greedy", i, "greedy", 0, text, 3, False] for i, text in enumerate(texts)]
    made_up = pd.DataFrame(kept, columns=list(untrained.KEPT))
    table = untrained.graded("poker", "smoke", [Part("label", "test", 3)], made_up)
    assert table["strict"].tolist() == [True, False, rows[2]["answer"] == rows[0]["answer"]]
    assert table["answered"].tolist() == [True, False, True]
    assert sum(untrained.form_and_answers(table).values()) == 3
    figure = untrained.figures(table, ["answered"])["answered"]
    assert (figure["value"], figure["n"]) == (pytest.approx(2 / 3), 3)


def test_an_interval_counts_rows_and_not_samples():
    table = pd.DataFrame({"row": [0] * 8 + [1] * 8, "correct": [True] * 8 + [False] * 8})
    assert untrained.figures(table, ["correct"])["correct"]["n"] == 2


@pytest.mark.parametrize("size", [2, 3, 5])
def test_silent_groups_are_those_that_can_be_drawn(size):
    rewards = np.random.default_rng(0).choice([0.0, 0.125, 1.0], (6, 5), p=(0.7, 0.2, 0.1))
    shares = [
        np.mean([len(set(group)) == 1 for group in combinations(row, size)]) for row in rewards
    ]
    assert untrained.silent(rewards, size) == pytest.approx(np.array(shares))
    assert untrained.silent([[0.1 + 0.2, 0.3]], 2).tolist() == [1.0]


def test_every_reward_has_its_silent_groups():
    table = pd.DataFrame({"row": [0, 1] * 4, "sample": [0, 0, 1, 1, 2, 2, 3, 3]})
    table = table.assign(strict=[False, True] * 4, total=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    found = untrained.silent_groups(table, ["strict", "total"])
    assert {size: figure["value"] for size, figure in found["strict"].items()} == {"2": 1, "4": 1}
    assert found["total"]["2"]["value"] == pytest.approx((1 / 3 + 1) / 2, abs=1e-6)
    assert found["total"]["4"]["value"] == 0.5
