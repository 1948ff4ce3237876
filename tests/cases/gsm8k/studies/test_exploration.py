"""What a set of word problems looks like: counts, leaks, and tests that could go either way."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import problem_sets
from casebook.cases.gsm8k.studies import exploration
from casebook.records import studies

THINGS = ("pens", "books", "trees", "miles", "hours", "cats", "chairs", "years", "eggs", "coins")


def toy(train=90, test=30, seed=0):
    """Problems about ten things; those about years take more steps, and are about relatives."""
    rng = np.random.default_rng(seed)
    splits = {}
    for split, size in (("train", train), ("test", test)):
        rows = {"question": [], "answer": []}
        for _ in range(size):
            thing = str(rng.choice(THINGS))
            a, b = rng.integers(2, 50, 2)
            more = "and her sister counts older years again" * (thing == "years")
            rows["question"].append(f"Ann counts {a} {thing} and {b} more {thing} {more} today.")
            notes = f"{a}+{b}=<<{a}+{b}={a + b}>>{a + b}\n" * (3 if thing == "years" else 1)
            rows["answer"].append(f"{notes}#### {a + b}")
        splits[split] = rows
    return exploration.described(splits)


@pytest.fixture(scope="module")
def found():
    return exploration.Exploration(toy())


# Problems


def test_a_problem_is_described_by_what_can_be_counted():
    row = {
        "question": ["Ann has 1,200 pens and 3.5 boxes?"],
        "answer": ["So 5-10=<<5-10=-5>>-5.\nor so\n\n#### -1,200"],
    }
    frame = exploration.described({"train": row, "test": row})
    assert list(frame["split"]) == ["train", "test"]
    one = frame.iloc[1]
    assert (one["id"], one["gold"], one["answer"]) == (0, "-1,200", -1200)
    assert (one["steps"], one["lines"], one["words"], one["numbers"]) == (1, 2, 7, 2)


# Answers and steps


# The same story


def pairs_of(*questions, least=0.0):
    return exploration.similar_pairs(pd.DataFrame({"question": questions}), least)


def test_the_share_is_jaccards_index():
    one, two = "a b c d e f", "a b c d e g"  # three runs of four each, two of them common
    pair = pairs_of(one, two, "x y z w").iloc[0]
    assert pair["share"] == pytest.approx(2 / 4)
    assert (pair["first"], pair["second"]) == (0, 1)


def test_a_retold_training_question_is_found():
    train = ["Ann buys 3 boxes of 12 pens.", "Bob walks 5 miles to the old mill."]
    test = ["Bob walks 9 miles to the old mill.", "The moon is made of green cheese, they say."]
    rows = {"train": train, "test": test}
    frame = exploration.described(
        {s: {"question": q, "answer": ["#### 1"] * len(q)} for s, q in rows.items()}
    )
    facts = exploration.Exploration(frame).leaks
    assert (facts["exact"], facts["numbers aside"]) == (0, 1)
    assert facts["test"] == [1] * len(exploration.SHARES)
    assert facts["train"] == [0] * len(exploration.SHARES)
    assert facts["pairs"] == [{"test": 0, "train": 1, "share": 1.0}]


# Embedding


def test_vectors_have_length_one_and_know_what_is_alike(found):
    vectors = found.embedding.vectors
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    about = found.frame["question"].str.extract(r"\d+ (\w+)")[0].to_numpy()
    near = exploration.neighbours(vectors, 3)
    assert (about[near] == about[:, None]).mean() > 0.95


def test_nobody_is_a_neighbour_of_himself():
    vectors = np.eye(4)[[0, 0, 1, 2, 3]]
    near = exploration.neighbours(vectors, 2)
    assert all(row not in others for row, others in enumerate(near))
    assert exploration.neighbours(vectors, 1)[0].tolist() == [1]


def test_clusters_are_named_by_what_sets_them_apart(found):
    sizes = np.bincount(found.labels)
    assert len(sizes) == len(found.topics) <= exploration.CLUSTERS
    assert (np.diff(sizes) <= 0).all()  # the largest first
    assert any("years" in topic["name"].split(", ") for topic in found.topics)


# Tests that could go either way


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30).filter(
        lambda rows: 0 < sum(positive for _, positive in rows) < len(rows)
    )
)
def test_area_is_the_share_of_pairs_in_order(rows):
    scores, positive = zip(*rows, strict=True)
    high = [s for s, p in rows if p]
    low = [s for s, p in rows if not p]
    wins = sum((a > b) + (a == b) / 2 for a in high for b in low) / (len(high) * len(low))
    assert exploration.area(scores, positive)["value"] == pytest.approx(wins)


def test_a_classifier_finds_what_is_there_and_nothing_else():
    rng = np.random.default_rng(0)
    positive = rng.random(600) < 0.3
    noise = rng.normal(size=(600, 5))
    none = exploration.tell_apart(noise, positive)
    assert none["low"] < 0.5 < none["high"]
    some = exploration.tell_apart(noise + 2 * positive[:, None], positive)
    assert some["low"] > 0.9


def test_the_control_sees_the_steps_and_the_splits_are_mixed(found):
    assert found.splits["control"]["low"] > 0.8
    assert found.splits["vectors"]["low"] < 0.5 < found.splits["vectors"]["high"]


def test_explained_variance():
    values = np.array([1.0, 2.0, 3.0, 4.0] * 10)
    assert exploration.explained(values, values)["value"] == 1
    mean = exploration.explained(values, np.full(40, values.mean()))
    assert mean["value"] == 0
    worse = exploration.explained(values, values[::-1])
    assert worse["value"] < 0
    gain = exploration.explained(values, values, instead_of=np.full(40, values.mean()))
    assert gain["value"] == 1
    none = exploration.explained(values, values - 1, instead_of=values + 1)
    assert none == {"value": 0, "low": 0, "high": 0, "n": 40}


def test_steps_that_follow_the_topic_are_foreseen_by_the_vectors(found):
    assert found.difficulty["vectors"]["low"] > 0.8
    assert found.difficulty["neighbours"]["value"] > 0.8


def test_steps_drawn_at_random_are_not_foreseen():
    frame = toy(300, 100)
    frame["steps"] = np.random.default_rng(0).integers(0, 5, len(frame))
    chance = exploration.Exploration(frame).difficulty
    for name in ("length", "vectors", "neighbours", "both"):
        assert chance[name]["value"] < 0.05


# Record, export, template


def test_the_committed_record_is_what_the_real_problems_give():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    record = studies.read("exploration")
    live = exploration.Exploration(exploration.real_problems())
    assert record["answers"] == live.answers
    assert record["leaks"] == live.leaks
    assert record["steps"]["difference"] == pytest.approx(live.steps["difference"])
    assert record["steps"]["shares"]["test"] == pytest.approx(live.steps["shares"]["test"])
    total = pd.DataFrame(live.answers).sum(axis=1)
    assert (total["commas"], total["negative"], total["rows"]) == (93, 5, 8792)


def test_the_template_puts_dates_before_a_system_prompt():
    messages = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": " 2? "}]
    text = exploration.llama_text(messages, date="1 Jan 2025")
    assert text == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 1 Jan 2025\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n2?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert messages[0]["content"] == " Be brief. "  # nothing was taken from the list itself
