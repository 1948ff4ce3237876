"""GSM8K rows: generated and real problems, prompts, and the corpus of the embedded model."""

import re
from collections import Counter

import pytest

from casebook import load_case
from casebook.case import UnknownName
from casebook.cases import problem_sets
from casebook.cases.gsm8k import data
from casebook.experiments import nano

CASE = load_case("gsm8k")
PROMPT_OF = {skill: prompt for prompt, skills in CASE.skills.items() for skill in skills}
needs_gsm8k = pytest.mark.skipif(
    not problem_sets.available("gsm8k"), reason="CASEBOOK_DATA_DIR names no folder with gsm8k"
)


def sums(rows):
    """What a problem asks, whoever is in it: its text without names and things, and its notes."""
    words = "|".join((*data.templates.NAMES, *data.templates.THINGS))
    strip = re.compile(rf"\b({words})\b")
    return {(strip.sub("_", row["question"]), tuple(data.notes(row["solution"]))) for row in rows}


# Generated problems


@pytest.mark.parametrize(("split", "rows"), [("train", 2400), ("validation", 256), ("test", 1000)])
def test_rows_hold_a_problem_and_its_solution(split, rows):
    loaded = CASE.load(split)
    assert len(loaded) == rows
    assert set(loaded.column_names) == {"prompt", *data.COLUMNS}
    for row in loaded.select(range(100)):
        assert row["source"] == "generated"
        assert row["prompt"] == f"{row['question']}\n"
        assert row["answer"] == row["gold"] == row["solution"].rpartition("#### ")[2]
        assert row["steps"] == len(data.notes(row["solution"])) in (1, 2, 3)


def test_no_sum_is_in_two_splits_whatever_the_seeds():
    train = sums(CASE.load("train", seed=0)) | sums(CASE.load("train", seed=1))
    test = sums(CASE.load("test", seed=2)) | sums(CASE.load("test", seed=3))
    validation = sums(CASE.load("validation", seed=4))
    assert not train & (test | validation)
    assert not test & validation


@pytest.mark.parametrize("number", [5, 8])
def test_solved_examples_stand_before_the_question(number):
    row = CASE.load("test", variant=f"shots{number}")[0]
    assert row["prompt"].count("<answer>\n") == number
    assert row["prompt"].endswith(f"</answer>\n{row['question']}\n")
    trained = CASE.load("train")["question"][:]
    assert all(shot["question"] in trained for shot in data.examples("nano", number))


@pytest.mark.parametrize("arguments", [{"split": "dev"}, {"split": "test", "variant": "shots6"}])
def test_unknown_names_are_one_sentence(arguments):
    with pytest.raises(UnknownName):
        CASE.load(**arguments)


# Real problems


@needs_gsm8k
def test_the_real_splits_are_disjoint_and_complete():
    splits = {split: data.real_rows(split) for split in ("train", "validation", "test")}
    assert [len(rows) for rows in splits.values()] == [7217, 256, 1319]
    questions = [row["question"] for split in ("train", "validation") for row in splits[split]]
    assert len(set(questions)) == 7473
    assert {row["source"] for rows in splits.values() for row in rows} == {"folder"}


@needs_gsm8k
def test_the_reference_of_every_real_test_problem_is_well_formed_and_right():
    for row in data.real_rows("test"):
        assert CASE.grade(CASE.reference(row), row["answer"]).strict
        assert "<<" not in CASE.reference(row)


@needs_gsm8k
@pytest.mark.parametrize("profile", ["t4", "a100"])
def test_chat_profiles_ask_as_the_source_does(profile):
    row = CASE.load("validation", profile=profile, variant="reason")[0]
    assert row["prompt"] == [
        {"role": "system", "content": data.SYSTEM},
        {"role": "user", "content": row["question"]},
    ]
    shots = CASE.load("test", profile=profile, variant="shots5")[0]["prompt"]
    assert [turn["role"] for turn in shots] == ["system", *["user", "assistant"] * 5, "user"]
    assert all(CASE.grade(turn["content"], 0).well_formed for turn in shots[2::2])


@needs_gsm8k
def test_a_base_model_is_asked_in_plain_text():
    row = CASE.load("validation", profile="smol", variant="answer")[0]
    assert row["prompt"] == f"Question: {row['question']}\nAnswer:"
    row = CASE.load("validation", profile="smol", variant="shots8")[0]
    assert row["prompt"].startswith(data.SYSTEM)
    assert row["prompt"].count("Question: ") == 9


@needs_gsm8k
@pytest.mark.parametrize(
    ("variant", "system", "shots"),
    [("chat-shots2", data.SYSTEM, 2), ("chat-unsloth-shots4", data.SYSTEM_UNSLOTH, 4)],
)
def test_a_small_chat_model_is_asked_in_messages_with_solved_training_problems(
    variant, system, shots
):
    row = CASE.load("test", profile="smol", variant=variant)[0]
    first, *examples, last = row["prompt"]
    assert first == {"role": "system", "content": system}
    assert last == {"role": "user", "content": row["question"]}
    assert [turn["role"] for turn in examples] == ["user", "assistant"] * shots
    trained = {row["question"]: row["answer"] for row in data.real_rows("train")}
    for asked, solved in zip(examples[::2], examples[1::2], strict=True):
        assert CASE.grade(solved["content"], trained[asked["content"]]).strict
    assert CASE.load("test", profile="t4", variant=variant)[0]["prompt"] == row["prompt"]


# The corpus


def test_demonstrations_come_in_the_stated_shares_of_their_prompt(corpus):
    rows = Counter(PROMPT_OF[row["skill"]] for row in corpus)
    assert rows["answer"] / len(corpus) == pytest.approx(data.ANSWER_SHARE, abs=0.03)
    shares = Counter(row["skill"] for row in corpus)
    for prompt, skills in CASE.skills.items():
        for skill, (share, _) in skills.items():
            assert shares[skill] / rows[prompt] == pytest.approx(share, abs=0.05)


def test_no_test_prompt_has_a_piece_the_embedded_model_does_not_know():
    tokenizer = nano.build_tokenizer(CASE)
    for variant in ("reason", "answer"):
        rows = CASE.load("test", variant=variant)
        texts = [row["prompt"] + CASE.reference(row, variant) for row in rows]
        assert not any(tokenizer.unk_token_id in ids for ids in tokenizer(texts).input_ids)


def test_prompt_and_completion_fit_into_the_training(corpus):
    tokenizer = nano.build_tokenizer(CASE)
    settings = nano.read_settings("gsm8k", "nano")
    for row in corpus:
        if row["skill"] in ("careful", "no tags", "careless"):
            length = len(tokenizer(row["completion"]).input_ids) + 1  # the end of sequence
            assert length <= settings["max_completion_length"]
        if row["skill"] == "rambling":
            assert len(tokenizer(row["completion"]).input_ids) > settings["max_completion_length"]
        prompt = len(tokenizer(row["prompt"]).input_ids)
        assert prompt + settings["max_completion_length"] <= settings["max_seq_length"]


def test_demonstrations_come_from_training_sums(corpus):
    held_out = {row["question"] for split in ("test", "validation") for row in CASE.load(split)}
    assert not {row["prompt"].removesuffix("Answer:").strip() for row in corpus} & held_out


@pytest.mark.parametrize("seed", [0, 1])
def test_what_a_completion_shows_is_what_was_planted(seed):
    rows = {row["question"]: row for row in CASE.load("train", seed=seed)}
    seen = Counter()
    for problem in data.generated("train", seed)[:300]:
        rng = data.np.random.default_rng(seed)
        for skill in CASE.skills["reason"]:
            row = rows[problem.question]
            text = data._completion(skill, problem, rng)
            seen[skill, data.style(text, row)] += 1
            if skill in data.CAREFUL:
                assert CASE.grade(text, row["answer"]).correct
            if skill in ("careless", "first number"):
                assert not CASE.grade(text, row["answer"]).correct
            assert CASE.grade(text, row["answer"]).strict == (
                skill == "careful"
                or (skill == "in the head" and CASE.grade(text, row["answer"]).correct)
            )
    assert {shown for _, shown in seen} == set(CASE.skills["reason"])
    assert all(planted == shown for planted, shown in seen)


ONE_STEP = "<reasoning>\nso 4 * 6 = 24"
TWO_STEPS = f"{ONE_STEP}\nso 24 - 5 = 19"


@pytest.mark.parametrize(
    ("completion", "style"),
    [
        (f"{ONE_STEP}\n</reasoning>\n<answer>\n24\n</answer>", "careless"),
        (f"{TWO_STEPS}\n</reasoning>\n<answer>\n18\n</answer>", "careless"),
        (f"{ONE_STEP}\n</reasoning>\n<answer>\n24 pens\n</answer>", "other"),
        ("so 4 * 6 = 24\n#### 24", "other"),
        (f"{ONE_STEP}\nso 4 * 6 = 24", "rambling"),
        ("", "other"),
        (None, "other"),
        ([{"role": "assistant", "content": "19"}], "bare number"),
    ],
)
def test_a_style_is_named_after_what_is_written(completion, style):
    row = {"solution": "<<4*6=24>> <<24-5=19>>\n#### 19", "answer": "19", "source": "generated"}
    assert data.style(completion, row) == style
