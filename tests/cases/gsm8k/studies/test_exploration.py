import json
import math
import sys
import types

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import problem_sets
from casebook.case import CasebookError
from casebook.cases.gsm8k.studies import exploration
from casebook.paths import plain
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


@pytest.mark.parametrize(
    "solution", ["18", "#### ", "#### 3.5", "#### 12,00", "#### eighteen", "#### 1 8", ""]
)
def test_an_answer_that_is_no_whole_number_is_named(solution):
    rows = {"question": ["?"], "answer": [solution]}
    with pytest.raises(CasebookError, match="problem 0 of train: a whole number was expected"):
        exploration.described({"train": rows})


@given(st.integers(-(10**9), 10**9), st.booleans(), st.text(max_size=40))
def test_whatever_stands_before_it_the_gold_answer_is_read(number, commas, before):
    gold = f"{number:,}" if commas else str(number)
    assert exploration.gold_of(f"{before}\n#### {gold}") == gold


def test_generated_problems_come_in_the_same_columns_and_say_what_they_are():
    frame = exploration.generated_problems()
    assert list(frame) == list(toy())
    assert {entry["source"] for entry in frame.attrs["provenance"]} == {"generated"}
    assert (frame["steps"] > 0).all()


# Answers and steps


def test_facts_are_counted_split_by_split():
    rows = {"question": ["?"] * 3, "answer": ["<<1>> #### 1,000", "#### -2", "#### 0"]}
    more = {"question": ["?"] * 2, "answer": ["<<1>> #### 7", "<<1>> #### 8"]}
    facts = exploration.answer_facts(exploration.described({"train": rows, "test": more}))
    assert facts["train"] == {
        "rows": 3,
        "commas": 1,
        "negative": 1,
        "zero": 1,
        "largest": 1000,
        "without notes": 2,
    }
    assert facts["test"]["commas"] == facts["test"]["negative"] == 0


def test_step_shares_add_up_and_the_difference_is_of_means(found):
    facts = found.steps
    for split in ("train", "test"):
        assert sum(facts["shares"][split]) == pytest.approx(1)
    steps = found.frame.groupby("split")["steps"].mean()
    gap = facts["difference"]
    assert gap["value"] == pytest.approx(steps["test"] - steps["train"])
    assert gap["low"] < gap["value"] < gap["high"]


# The same story


def pairs_of(*questions, least=0.0):
    return exploration.similar_pairs(pd.DataFrame({"question": questions}), least)


def test_numbers_do_not_make_another_story():
    one = "Ann buys 3 boxes of 12 pens and gives 7 away."
    two = "Ann buys 1,200 boxes of 3.5 pens and gives 3/4 away."
    assert pairs_of(one, two)["share"].tolist() == [1.0]


def test_the_share_is_jaccards_index():
    one, two = "a b c d e f", "a b c d e g"  # three runs of four each, two of them common
    pair = pairs_of(one, two, "x y z w").iloc[0]
    assert pair["share"] == pytest.approx(2 / 4)
    assert (pair["first"], pair["second"]) == (0, 1)


@pytest.mark.parametrize("question", ["", "?", "too short now", "123 456"])
def test_a_question_without_runs_is_like_none(question):
    assert pairs_of(question, question, "a b c d e").empty


def test_no_question_is_its_own_double():
    assert pairs_of("a b c d e", "v w x y z").empty


def test_a_retold_training_question_is_found():
    train = ["Ann buys 3 boxes of 12 pens.", "Bob walks 5 miles to the old mill."]
    test = ["Bob walks 9 miles to the old mill.", "The moon is made of green cheese, they say."]
    rows = {"train": train, "test": test}
    frame = exploration.described(
        {s: {"question": q, "answer": ["#### 1"] * len(q)} for s, q in rows.items()}
    )
    facts = exploration.leak_facts(frame)
    assert (facts["exact"], facts["numbers aside"]) == (0, 1)
    assert facts["test"] == [1] * len(exploration.SHARES)
    assert facts["train"] == [0] * len(exploration.SHARES)
    assert facts["pairs"] == [{"test": 0, "train": 1, "share": 1.0}]


def test_a_copied_question_is_exact_whatever_its_spaces():
    rows = {"question": ["Ann  has 3 pens, she says."], "answer": ["#### 3"]}
    copied = {"question": ["ann has 3 pens she says"], "answer": ["#### 3"]}
    frame = exploration.described({"train": rows, "test": copied})
    assert exploration.leak_facts(frame)["exact"] == 1


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
    assert exploration.neighbours(vectors, 99).shape == (5, 4)


def test_clusters_are_named_by_what_sets_them_apart(found):
    labels, names = found.clusters
    assert len(names) == len(set(labels)) <= exploration.CLUSTERS
    sizes = np.bincount(labels)
    assert (np.diff(sizes) <= 0).all()  # the largest first
    assert any("years" in name.split(", ") for name in names)


def test_a_cluster_about_relatives_says_so(found):
    topics = {topic["name"]: topic for topic in found.topics}
    for name, topic in topics.items():
        assert topic["family"] == (1.0 if "years" in name.split(", ")[:3] else 0.0)
        assert 0 <= topic["test"] <= 1
    assert sum(topic["rows"] for topic in topics.values()) == len(found.frame)


def test_the_map_is_small_numbers_only(found):
    columns = found.map
    assert {len(column) for column in columns.values()} == {120}
    assert max(map(abs, columns["x"] + columns["y"])) == 100
    assert sum(columns["test"]) == 30


def test_a_sentence_model_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(CasebookError, match="sentence-transformers is not installed here"):
        exploration.embed(THINGS * 3, "all-MiniLM-L6-v2")


@pytest.fixture
def sentence_model(monkeypatch):
    """A stand-in for sentence-transformers that knows one model."""

    class SentenceTransformer:
        def __init__(self, name):
            if name != "known":
                raise OSError(f"{name} is not a local folder\nand more")

        def encode(self, texts, normalize_embeddings):
            assert normalize_embeddings
            return np.ones((len(texts), 1), dtype=np.float32)

    stand_in = types.ModuleType("sentence_transformers")
    stand_in.SentenceTransformer = SentenceTransformer
    monkeypatch.setitem(sys.modules, "sentence_transformers", stand_in)


def test_a_sentence_model_makes_the_vectors_instead(sentence_model):
    found = exploration.embed(THINGS * 3, "known")
    assert (found.vectors.shape, found.made_by) == ((30, 1), "known")


def test_an_unknown_sentence_model_is_one_sentence(sentence_model):
    with pytest.raises(CasebookError, match=r"no model 'other' here: other is not a local folder$"):
        exploration.embed(THINGS * 3, "other")


# Tests that could go either way


@pytest.mark.parametrize(
    ("scores", "value"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], 0.0), ([1, 1, 1, 1], 0.5)]
)
def test_area_under_the_curve(scores, value):
    figure = exploration.area(scores, [False, False, True, True])
    assert figure["value"] == value
    assert 0 <= figure["low"] <= value <= figure["high"] <= 1


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


def test_one_kind_alone_cannot_be_told_apart():
    with pytest.raises(CasebookError, match="two kinds"):
        exploration.area([1, 2], [True, True])


def test_delongs_interval_covers_as_it_says():
    rng = np.random.default_rng(0)
    true = 0.5 * (1 + math.erf(0.5))  # of two normals, one standard deviation apart
    covered = 0
    for _ in range(300):
        scores = np.concatenate([rng.normal(1, 1, 40), rng.normal(0, 1, 60)])
        figure = exploration.area(scores, np.arange(100) < 40)
        covered += figure["low"] <= true <= figure["high"]
    assert 0.91 <= covered / 300 <= 0.98


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


def test_a_record_holds_numbers_and_names_but_no_problem(found):
    found.frame.attrs["provenance"] = [{"source": "toy"}]
    text = json.dumps(plain(found.record()))
    assert json.loads(text)["topics"] == json.loads(json.dumps(found.topics))
    assert not any(question in text for question in found.frame["question"])


def test_the_committed_record_is_of_the_pinned_set_and_small():
    record = studies.read("exploration")
    pinned = problem_sets.SETS["gsm8k"]
    assert {p["split"]: p["checksum"] for p in record["provenance"]} == dict(pinned.checksums)
    assert {s: facts["rows"] for s, facts in record["answers"].items()} == dict(pinned.rows)
    assert studies.path("exploration").stat().st_size < 60_000


def test_the_committed_record_is_what_the_real_problems_give():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    record = studies.read("exploration")
    live = exploration.Exploration(exploration.real_problems())
    assert record["answers"] == live.answers
    assert record["leaks"] == live.leaks
    assert record["steps"]["difference"] == pytest.approx(live.steps["difference"])
    total = pd.DataFrame(live.answers).sum(axis=1)
    assert (total["commas"], total["negative"], total["rows"]) == (93, 5, 8792)


def test_the_projector_gets_as_many_lines_as_questions(found, tmp_path):
    frame = found.frame.copy()
    frame.loc[0, "question"] = "A question\twith a tab\nand a line end."
    changed = exploration.Exploration(frame)
    vectors, metadata = exploration.export(tmp_path / "new", changed)
    rows = metadata.read_text().splitlines()
    assert len(rows) == len(frame) + 1
    assert {row.count("\t") for row in rows} == {5}
    assert rows[0].startswith("question\tsplit")
    assert rows[1].startswith("A question with a tab and a line end.\ttrain\t0\t")
    assert np.loadtxt(vectors, delimiter="\t").shape == changed.embedding.vectors.shape


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


def test_without_a_system_prompt_the_dates_stand_alone():
    assert "2025\n\n<|eot_id|>" in exploration.llama_text([], date="2025")
