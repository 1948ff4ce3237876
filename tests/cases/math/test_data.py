"""MATH rows: splits, prompts of every profile, and the corpus of the nano model."""

import json
import re
from collections import Counter
from itertools import islice

import pytest

from casebook import load_case
from casebook.case import CasebookError
from casebook.cases import problem_sets
from casebook.cases.math import data, templates
from casebook.cases.math.rewards import VARIANTS
from casebook.experiments.nano import PIECES, build_tokenizer

CASE = load_case("math")
EXAMPLES = "Question: What is $1+1$?\nAnswer:It is $\\boxed{2}$.\n\n"


def pieces(text):
    return len(re.findall(PIECES, text))


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder with a small RLVR-MATH and a small MATH-500, in place of the real ones."""
    rlvr = [
        {
            "messages": [{"role": "user", "content": f"{EXAMPLES}Question: What is ${i}+{i}$?"}],
            "ground_truth": str(2 * i),
            "dataset": "MATH",
        }
        for i in range(40)
    ]
    test = [
        {
            "problem": f"What is ${i}^2$?",
            "solution": f"It is $\\boxed{{{i * i}}}$.",
            "answer": str(i * i),
            "subject": "Algebra",
            "level": 1,
            "unique_id": f"test/algebra/{i}.json",
        }
        for i in range(5)
    ]
    changed = {"rlvr-math": ("rlvr-math/train.jsonl", "train", rlvr)}
    changed["math500"] = ("math/math500.jsonl", "test", test)
    sets = dict(problem_sets.SETS)
    for name, (path, split, rows) in changed.items():
        file = tmp_path / path
        file.parent.mkdir()
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fields = vars(sets[name]) | {"rows": {split: len(rows)}, "checksums": {split: None}}
        sets[name] = problem_sets.ProblemSet(**fields)
    monkeypatch.setattr(problem_sets, "SETS", sets)
    monkeypatch.setattr(data, "VALIDATION_ROWS", 8)
    monkeypatch.setenv(problem_sets.VARIABLE, str(tmp_path))
    data._real_rows.cache_clear()
    data._real_examples.cache_clear()
    yield
    data._real_rows.cache_clear()
    data._real_examples.cache_clear()


# Generated rows


@pytest.mark.parametrize("split", data.ROWS)
def test_a_split_has_its_rows_each_of_them_once(split):
    rows = CASE.load(split)
    assert len(rows) == len(set(rows["unique_id"])) == data.ROWS[split]
    assert set(rows["source"]) == {"generated"}


def test_splits_are_disjoint_whatever_the_seeds():
    texts = [{problem.text for problem in pool} for pool in templates.pools().values()]
    assert sum(map(len, texts)) == len(set().union(*texts))
    for split, pool in templates.pools().items():
        asked = {text for seed in range(3) for text in CASE.load(split, seed=seed)["problem"]}
        assert asked <= {problem.text for problem in pool}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_has_a_prompt_that_the_tokenizer_knows(variant):
    tokenizer = build_tokenizer(CASE)
    for prompt in CASE.load("validation", variant=variant)["prompt"]:
        assert tokenizer.unk_token_id not in tokenizer(prompt).input_ids


def test_a_cut_prompt_is_the_end_of_the_whole_one():
    whole, cut = (CASE.load("test", variant=v)["prompt"][:] for v in ("reason", "cut"))
    assert all(long.endswith(short) for long, short in zip(whole, cut, strict=True))
    shorter = sum(long != short for long, short in zip(whole, cut, strict=True))
    assert 0.5 < shorter / len(whole) < 1


def test_solved_examples_come_from_other_problems_than_the_rows_of_the_test():
    prompt = CASE.load("test", variant="shots3")["prompt"][0]
    assert prompt.count("\\boxed{") == data.SHOTS
    shown = [line for line in prompt.splitlines() if line.startswith(("Compute", "Solve"))]
    assert not set(shown[: data.SHOTS]) & set(CASE.load("test")["problem"])


# Real rows


def test_real_problems_are_not_taken_where_no_folder_and_no_hub_gives_them(monkeypatch):
    monkeypatch.delenv(problem_sets.VARIABLE, raising=False)

    def refuse(*arguments, hub):
        raise CasebookError(f"asked the {'hub' if hub else 'folder'}")

    monkeypatch.setattr(problem_sets, "read", refuse)
    data._real_rows.cache_clear()
    with pytest.raises(CasebookError, match="asked the hub"):
        CASE.load("test", "t4")


def test_training_rows_are_those_of_rlvr_math_without_its_examples(shared):
    rows = CASE.load("train", "t4")
    assert len(rows) == 32
    assert set(rows["source"]) == {"folder"}
    for row in rows:
        first = int(re.search(r"\$(\d+)\+", row["problem"])[1])
        assert row["answer"] == str(2 * first)
        assert row["prompt"][0]["content"].startswith(row["problem"])


def test_held_back_rows_are_not_trained_on(shared):
    train, held = (set(CASE.load(split, "a100")["problem"]) for split in ("train", "validation"))
    assert len(held) == 8
    assert not train & held


def test_shots_are_the_examples_of_the_set_itself_on_train_and_test(shared):
    for split in ("train", "test"):
        row = CASE.load(split, "a100", variant="shots3")[0]
        assert row["prompt"][0]["content"] == f"{EXAMPLES}Question: {row['problem']}"


def test_a_real_prompt_is_cut_at_its_limit(shared, monkeypatch):
    monkeypatch.setattr(data, "CUT", {"real": 8})
    row = CASE.load("test", "a100", variant="cut")[0]
    content = row["prompt"][0]["content"]
    assert f"Question: {row['problem']}".endswith(content)
    assert len(data.TOKEN.findall(content)) == 8


def test_math_500_as_it_is():
    if not problem_sets.available("math500"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with math/math500.jsonl")
    data._real_rows.cache_clear()
    rows = CASE.load("test", "t4")
    assert len(rows) == 500
    assert Counter(rows["level"]).keys() == {1, 2, 3, 4, 5}
    for row in rows.select(range(40)):
        assert CASE.grade(CASE.reference(row), row["answer"]).strict
    parts = {split: data.math500_rows(split) for split in ("train", "validation", "test")}
    assert [len(part) for part in parts.values()] == [350, 50, 100]
    assert len({row["unique_id"] for part in parts.values() for row in part}) == 500
    asked = CASE.load("test", "smol", variant="chat-math500")
    assert set(asked["unique_id"]) == {row["unique_id"] for row in parts["test"]}
    assert asked[0]["prompt"][0]["content"] == f"{asked[0]['problem']}\n\n{data.ASKED}"


# The corpus


def test_skills_come_in_the_planted_shares(corpus):
    asked = [row for row in corpus if not row["prompt"].endswith("Answer:")]
    found = Counter(row["skill"] for row in asked)
    for name, (share, _) in CASE.skills["reason"].items():
        assert found[name] / len(asked) == pytest.approx(share, abs=0.03)


def test_demonstrations_fit_and_come_from_training_problems(corpus):
    taught = {problem.text for problem in templates.pools()["train"]}
    for row in corpus:
        assert row["prompt"].removesuffix("Answer:").rstrip("\n") in taught
        assert pieces(row["completion"]) <= 70
        assert not row["ends"] or pieces(row["completion"]) < 38  # nothing that ends is cut


@pytest.fixture(scope="module")
def gold_of():
    return {problem.text: problem.gold for problem in templates.problems()}


def test_a_style_is_what_was_planted(corpus, gold_of):
    for row in corpus[:1500]:
        if row["skill"] in CASE.skills["reason"]:
            gold = gold_of[row["prompt"].rstrip("\n")]
            assert CASE.style(row["completion"], {"answer": gold}) == row["skill"], row


# Skill -> strict and lenient, where the grade is certain.
GRADES = {
    "careful": (True, True),
    "other form": (True, True),
    "no think": (True, True),
    "no box": (False, True),
    "calculation in the box": (False, True),
    "two boxes": (False, True),
    "careless": (False, False),
}


@pytest.mark.parametrize("skill", GRADES)
def test_a_skill_is_graded_as_its_name_says(skill, corpus, gold_of):
    found = [row for row in corpus if row["skill"] == skill][:60]
    for row in found:
        grade = CASE.grade(row["completion"], gold_of[row["prompt"].rstrip("\n")])
        assert (grade.strict, grade.correct) == GRADES[skill], row


def test_a_seed_and_what_is_left_out_decide_the_corpus():
    first, again, other = (list(islice(CASE.demonstrations(seed), 20)) for seed in (0, 0, 1))
    assert first == again != other
    rows = islice(CASE.demonstrations(0, without=tuple(data.CAREFUL)), 500)
    assert not {row["skill"] for row in rows} & set(data.CAREFUL)
