"""What a set of word problems looks like: stories told twice, and vectors of questions."""

import numpy as np
import pandas as pd
import pytest

from casebook.cases import problem_sets
from casebook.cases.gsm8k.studies import exploration
from casebook.records import studies

THINGS = ("pens", "books", "trees", "miles", "hours", "cats", "chairs", "years", "eggs", "coins")


@pytest.fixture(scope="module")
def toy():
    """Problems about ten things."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(120):
        thing = str(rng.choice(THINGS))
        a, b = rng.integers(2, 50, 2)
        rows.append((f"Ann counts {a} {thing} and {b} more {thing} today.", thing))
    return pd.DataFrame(rows, columns=["question", "thing"])


def test_the_share_is_jaccards_index():
    one, two = "a b c d e f", "a b c d e g"  # three runs of four each, two of them common
    frame = pd.DataFrame({"question": [one, two, "x y z w"]})
    pair = exploration.similar_pairs(frame).iloc[0]
    assert pair["share"] == pytest.approx(2 / 4)
    assert (pair["first"], pair["second"]) == (0, 1)


def test_a_retold_training_question_is_found():
    train = ["Ann buys 3 boxes of 12 pens.", "Bob walks 5 miles to the old mill."]
    test = ["Bob walks 9 miles to the old mill.", "The moon is made of green cheese, they say."]
    frame = pd.DataFrame({"question": train + test, "split": ["train"] * 2 + ["test"] * 2})
    found = exploration.retold(frame)
    assert found["test"] == [1] * len(exploration.SHARES)
    assert found["train"] == [0] * len(exploration.SHARES)


def test_vectors_have_length_one_and_know_what_is_alike(toy):
    vectors, about = exploration.embed(list(toy["question"])), toy["thing"].to_numpy()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    nearest = (vectors @ vectors.T - 2 * np.eye(len(vectors))).argmax(axis=1)
    assert (about[nearest] == about).mean() > 0.95


def test_the_committed_record_is_what_the_real_problems_give():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    record = studies.read("exploration")
    read = {split: problem_sets.read("gsm8k", split) for split in exploration.SPLITS}
    frame = pd.concat(read, names=["split"]).reset_index("split")
    frame["steps"] = frame["answer"].str.count("<<")
    found = exploration.retold(frame.reset_index(drop=True))
    assert found == {split: record["leaks"][split] for split in found}
    for split, part in frame.groupby("split"):
        golds = part["answer"].str.rpartition("####")[2]
        assert golds.str.contains(",").sum() == record["answers"][split]["commas"]
        assert golds.str.contains("-").sum() == record["answers"][split]["negative"]
        assert part["steps"].mean() == pytest.approx(record["steps"]["means"][split]["value"])
        shares = part["steps"].value_counts(normalize=True)
        kept = record["steps"]["shares"][split]
        assert [shares.get(n, 0.0) for n in range(len(kept))] == pytest.approx(kept)


def test_the_template_puts_dates_before_a_system_prompt():
    messages = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": " 2? "}]
    text = exploration.llama_text(messages)
    assert text == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n2?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert messages[0]["content"] == " Be brief. "  # nothing was taken from the list itself
