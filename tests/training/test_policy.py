"""A trained policy that is asked: how it answers, what that is worth, and every wrong question."""

import io
import shutil
import sys

import pytest

from casebook import models, paths
from casebook.case import CasebookError
from casebook.records import read_record
from casebook.training.policy import Policy, lines

COMMITTED = "poker/nano/grpo"
HAND = "2H 2D 2C 9S 9H"
ALL_PARTS = {"correct": 1.0, "tag_format": 1.0, "answer_grammar": 1.0}


@pytest.fixture(scope="module")
def poker():
    return Policy(COMMITTED)


def paid(one):
    return {n.partition("/")[2]: value for n, value in one.items() if n.startswith("reward/")}


def test_a_row_is_answered_as_it_was_measured(poker):
    record = read_record(paths.RESULTS / "poker" / "nano" / "grpo" / "seed0.json")
    for measured in record["completions"][:3]:
        _, table = poker.ask(row=measured["row"], samples=1)
        (sampled,) = table[table["decoding"] == "sample"].to_dict("records")
        for name in ("completion", "tokens", "truncated", "well_formed", "extracted", "correct"):
            assert sampled[name] == measured[name]


@pytest.mark.parametrize(
    ("answer", "correct", "reward"),
    [("full house", 1.0, 1.4), ("flush", 0.0, 0.4)],  # weights 1, 0.2 and 0.2
)
def test_a_prompt_of_ones_own_is_graded_and_paid(answer, correct, reward, poker):
    asked, table = poker.ask(HAND, answer=answer)
    (one,) = table.to_dict("records")
    assert asked.endswith(f"Hand: {HAND}\n")
    assert (one["extracted"], one["strict"]) == ("full house", bool(correct))
    assert paid(one) == ALL_PARTS | {"correct": correct}
    assert one["reward"] == pytest.approx(reward)


def test_without_an_answer_the_form_alone_is_graded_and_paid(poker):
    (one,) = poker.ask(HAND)[1].to_dict("records")
    assert one["correct"] is one["strict"] is one["reward"] is None
    assert one["well_formed"]
    assert paid(one) == {"tag_format": 1.0, "answer_grammar": 1.0}


def test_a_reward_that_needs_a_column_of_the_row_is_left_out():
    landuse = Policy("landuse/nano/grpo")
    assert "label_match" in landuse.settings["reward_funcs"]
    assert "reward/label_match" in landuse.ask("parcel 1 4 - - 5", answer="oat")[1]
    assert "reward/label_match" not in landuse.ask("parcel 1 4 - - 5")[1]


def test_the_base_is_asked_the_same():
    _, table = Policy("math/nano/grpo").ask(row=3, base=True, samples=2)
    each = ["greedy", "sample", "sample"]
    assert table["model"].tolist() == ["policy"] * 3 + ["base"] * 3
    assert table["decoding"].tolist() == each * 2
    assert table["completion"][0] != table["completion"][3]


def test_rewards_are_those_of_the_run_and_not_of_its_profile(tmp_path):
    shutil.copytree(paths.RESULTS / "poker" / "nano" / "adapter", tmp_path / "adapter")
    own = "reward_funcs: [answer_grammar, kl_penalty]\nreward_weights: [0.5, 1.0]\n"
    (tmp_path / "config.yaml").write_text(own + "reward_kwargs: {}\n")
    (one,) = Policy(tmp_path).ask(row=0)[1].to_dict("records")
    assert list(paid(one)) == ["answer_grammar"]
    assert one["reward"] is None  # the other part needs the base


@pytest.mark.slow
def test_a_chat_model_is_asked_by_its_template(tmp_path, chat_model):
    model, tokenizer = models.load.PeftLanguageModel.from_pretrained(str(chat_model("qwen2_5")))
    settings = models.read_settings("poker", "t4") | {
        **{"model_name_or_path": str(chat_model("qwen2_5")), "dtype": "float32"},
        **{"load_in_4bit": False, "fast_inference": False, "use_cpu": True},
        **{"max_completion_length": 8, "use_peft": False, "max_seq_length": 2048},
    }
    models.save_policy(model, tokenizer, tmp_path / "policy", settings)
    asked, table = Policy(tmp_path / "policy").ask(HAND, answer="full house", base=True)
    assert asked[0]["content"].startswith(f"Which poker hand is {HAND}? Ranks are")
    assert table["model"].tolist() == ["policy"]  # all weights were trained: no base beside it
    assert (table["tokens"] <= 8).all()
    assert table["reward"].notna().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "name a prompt or a row"),
        ({"prompt": HAND, "row": 1}, "name a prompt or a row of the case, and not both"),
        ({"row": 1000}, "no row 1000: the test rows are 0 to 999"),
        ({"prompt": "2H " * 400}, r"the prompt has \d+ tokens, but there is room for"),
    ],
)
def test_a_wrong_question_is_one_sentence(arguments, message, poker):
    with pytest.raises(CasebookError, match=message):
        poker.ask(**arguments)


def test_a_folder_without_a_policy_is_named(tmp_path):
    for run in (tmp_path, "nowhere", "poker/nano/lr_third"):
        with pytest.raises(CasebookError, match="contains no policy: name the folder of a"):
            Policy(run)


def test_a_person_reads_it_and_may_type_prompts(casebook, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{HAND}\n\n3C 4D 9H JS KS\n"))
    assert casebook("try", COMMITTED, "--answer", "full house") == 0
    said = capsys.readouterr().out
    assert said.count("--- policy, greedy") == 2
    assert "well_formed True, extracted full house, correct True" in said
    assert "reward 1.4 (correct 1, tag_format 1, answer_grammar 1)" in said


def test_what_a_model_writes_steers_no_terminal(poker):
    _, table = poker.ask(HAND)
    (_, _, said, _) = lines("asked", table.assign(completion="\x1b[2J\nflush"))
    assert said == "\\x1b[2J\nflush"
