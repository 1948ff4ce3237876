"""A trained policy that is asked: how it answers, what that is worth, and every wrong question."""

import json
import shutil
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from casebook import cli, models, paths
from casebook.case import CasebookError, load_case
from casebook.policy import find_policy, show, try_policy, wrapped
from casebook.records import read_record
from casebook.training import Config, Run, read_config, train

COMMITTED = "poker/nano/grpo"
HAND = "2H 2D 2C 9S 9H"
LITTLE = {"test_limit": 8, "evaluate_every": 0, "max_steps": 1, "train_limit": 64}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of one step on the embedded model, finished."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return train(read_config(("poker", "smoke"), LITTLE | {"reward_kwargs": {}}), folder)


def only(tried):
    (attempt,) = tried.attempts
    return attempt


# What it writes


def test_a_row_is_answered_as_it_was_measured():
    record = read_record(paths.RESULTS / "poker" / "nano" / "grpo" / "seed0.json")
    for measured in record["completions"][:3]:
        tried = try_policy(COMMITTED, row=measured["row"], samples=1)
        (sampled,) = (a for a in tried.attempts if a.decoding == "sample")
        assert sampled.completion == measured["completion"]
        assert sampled.grade["correct"] == measured["correct"]
        assert sampled.grade["well_formed"] == measured["well_formed"]


def test_a_training_row_is_one_of_the_runs_own_seed(adapter):
    prompts = []
    for seed in (0, 1):
        (adapter.parent / "config.yaml").write_text(f"seed: {seed}\n")
        prompts.append(try_policy(adapter, row=0, split="train").prompt)
    rows = [load_case("poker").load("train", "nano", seed)[0] for seed in (0, 1)]
    assert prompts == [row["prompt"] for row in rows]
    assert prompts[0] != prompts[1]


def test_a_prompt_of_ones_own_is_graded_and_paid():
    attempt = only(try_policy(COMMITTED, HAND, answer="full house"))
    assert (attempt.model, attempt.decoding) == ("policy", "greedy")
    assert attempt.grade["answer"] == "full house"
    assert attempt.grade["strict"]
    assert attempt.rewards == {"correct": 1.0, "tag_format": 1.0, "answer_grammar": 1.0}
    assert attempt.reward == pytest.approx(1.4)  # weights 1, 0.2 and 0.2


def test_a_reward_and_a_grade_of_one_name_are_two_columns():
    (line,) = try_policy(COMMITTED, HAND, answer="full house").table().to_dict("records")
    assert line["correct"] is True
    assert line["reward/correct"] == 1.0
    assert line["reward"] == pytest.approx(1.4)


def test_a_wrong_answer_is_not_paid():
    attempt = only(try_policy(COMMITTED, HAND, answer="flush"))
    assert attempt.rewards["correct"] == 0.0
    assert attempt.grade["correct"] is False


def test_without_an_answer_the_form_alone_is_graded():
    tried = try_policy(COMMITTED, HAND)
    attempt = only(tried)
    assert attempt.grade["correct"] is attempt.grade["strict"] is attempt.reward is None
    assert attempt.grade["well_formed"]
    assert attempt.rewards == {"correct": None, "tag_format": 1.0, "answer_grammar": 1.0}
    assert tried.notes == ["the reward correct was not computed: it needs the column answer"]


def test_a_reward_that_needs_a_column_of_the_row_says_so():
    policy = find_policy("landuse/nano/grpo")
    assert "label_match" in policy.settings["reward_funcs"]
    tried = try_policy("landuse/nano/grpo", "parcel 1 4 - - 5", answer="oat")
    assert only(tried).rewards["label_match"] is not None
    tried = try_policy("landuse/nano/grpo", "parcel 1 4 - - 5")
    assert only(tried).rewards["label_match"] is None
    assert "label_match was not computed" in tried.notes[0]


def test_the_base_is_asked_the_same():
    tried = try_policy("math/nano/grpo", row=3, base=True, samples=2)
    asked = [(attempt.model, attempt.decoding) for attempt in tried.attempts]
    each = ["greedy", "sample", "sample"]
    assert asked == [(model, decoding) for model in ("policy", "base") for decoding in each]
    by_model = {a.model: a.completion for a in tried.attempts if a.decoding == "greedy"}
    assert by_model["policy"] != by_model["base"]


def test_samples_follow_their_seed():
    def sampled(seed):
        tried = try_policy(COMMITTED, row=3, samples=4, seed=seed)
        return [a.completion for a in tried.attempts if a.decoding == "sample"]

    assert sampled(0) == sampled(0)
    assert len(sampled(0)) == 4


@pytest.mark.slow
def test_a_run_and_its_adapter_are_the_same_policy(run):
    by_run, by_adapter = (try_policy(folder, row=0) for folder in (run.path, run.adapter))
    assert by_run.attempts == by_adapter.attempts
    assert by_run.profile == "smoke"


@pytest.mark.slow
def test_rewards_are_those_of_the_run_and_not_of_its_profile(tmp_path):
    changes = {"reward_funcs": ["answer_grammar"], "reward_weights": [0.5], "reward_kwargs": {}}
    run = train(read_config(("poker", "smoke"), LITTLE | changes), tmp_path / "run")
    attempt = only(try_policy(run.path, row=0))
    assert list(attempt.rewards) == ["answer_grammar"]
    assert attempt.reward == 0.5 * attempt.rewards["answer_grammar"]


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [True, False])
def test_a_reward_that_looks_at_the_policy_needs_its_base(tmp_path, adapter):
    changes = {"reward_funcs": ["kl_penalty"], "reward_weights": [1.0], "use_peft": adapter}
    changes |= {"reward_kwargs": {}, "learning_rate": 0.05}
    run = train(read_config(("poker", "smoke"), LITTLE | changes), tmp_path / "run")
    tried = try_policy(run.path, row=0, base=True)
    policy, base = tried.attempts
    assert (policy.rewards["kl_penalty"] is None) == (not adapter)
    if adapter:
        assert base.rewards["kl_penalty"] == pytest.approx(0.0, abs=1e-6)
    else:
        assert "its base is another model" in tried.notes[0]


@pytest.mark.slow
def test_a_chat_model_is_asked_by_its_template(tmp_path, chat_model):
    model, tokenizer = models.PeftLanguageModel.from_pretrained(str(chat_model("qwen2_5")))
    settings = models.read_settings("poker", "t4") | {
        **{"model_name_or_path": str(chat_model("qwen2_5")), "dtype": "float32"},
        **{"load_in_4bit": False, "fast_inference": False, "use_cpu": True},
        **{"max_completion_length": 8, "use_peft": False, "max_seq_length": 2048},
    }
    models.save_policy(model, tokenizer, tmp_path / "policy", settings)
    tried = try_policy(tmp_path / "policy", HAND, answer="full house")
    assert [message["role"] for message in tried.prompt] == ["user"]
    assert tried.prompt[0]["content"].startswith(f"Which poker hand is {HAND}? Ranks are")
    assert only(tried).tokens <= 8
    assert tried.table()["reward"].notna().all()


# How a prompt is put into form


@given(st.text(), st.lists(st.text(max_size=8), min_size=1, max_size=4), st.text(), st.text())
def test_what_is_there_is_not_put_there_again(text, middles, begin, end):
    known = [begin + middle + end for middle in middles]
    once = wrapped(text, known)
    assert text in once
    assert wrapped(once, known) == once


def test_a_whole_prompt_is_asked_as_it_is():
    whole = try_policy(COMMITTED, row=0).prompt
    assert try_policy(COMMITTED, whole).prompt == whole
    assert try_policy(COMMITTED, whole.split("Hand: ")[1]).prompt == whole
    assert try_policy(COMMITTED, HAND, as_is=True).prompt == HAND


# Wrong questions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "name a prompt or a row"),
        ({"prompt": HAND, "row": 1}, "name a prompt or a row of the case, and not both"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": " \n"}, "the prompt is empty"),
        ({"row": 1000}, "no row 1000: poker/nano has the test rows 0 to 999"),
        ({"row": -1}, "no row -1"),
        ({"row": 1, "answer": "flush"}, "row 1 has an answer of its own"),
        ({"row": 1, "split": "tests"}, "unknown split 'tests'"),
        ({"row": 1, "samples": -1}, "-1 samples"),
        ({"prompt": "2H " * 400}, r"the prompt is too long: it has \d+ tokens, and of the model's"),
    ],
)
def test_a_wrong_question_is_one_sentence(arguments, message):
    with pytest.raises(CasebookError, match=message):
        try_policy(COMMITTED, **arguments)


def test_a_prompt_longer_than_those_of_the_training_is_noted():
    tried = try_policy(COMMITTED, "2H " * 60)
    assert any("prompts of its training had at most" in note for note in tried.notes)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(CasebookError, match="neither a run nor a policy"):
        try_policy(tmp_path, HAND)
    with pytest.raises(CasebookError, match="there is no folder at nowhere"):
        try_policy("nowhere", HAND)
    with pytest.raises(CasebookError, match="there is no folder at pker/nano/grpo"):
        try_policy("pker/nano/grpo", HAND)


def test_an_arm_whose_adapter_is_not_here_says_what_makes_it():
    with pytest.raises(CasebookError, match="--profile nano --arm lr_third makes it"):
        find_policy("poker/nano/lr_third")
    with pytest.raises(CasebookError, match="unknown arm of poker 'gpro'"):
        find_policy("poker/nano/gpro")
    with pytest.raises(CasebookError, match="unknown profile 'huge'"):
        find_policy("poker/huge/grpo")


def test_an_unfinished_run_says_how_to_go_on(tmp_path):
    (tmp_path / "config.yaml").write_text("case: poker\n")
    with pytest.raises(CasebookError, match=r"has not come to its end .* --resume"):
        try_policy(tmp_path, HAND)


@pytest.mark.slow
def test_a_run_that_was_not_measured_can_be_asked(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "record.json").unlink()
    assert not Run(tmp_path / "run").finished
    tried = try_policy(tmp_path / "run", row=0)
    assert tried.notes == ["the run was trained to its end, and not yet measured"]


@pytest.fixture
def adapter(tmp_path):
    return shutil.copytree(paths.RESULTS / "poker" / "nano" / "adapter", tmp_path / "adapter")


def test_a_base_that_is_not_there_is_named(adapter):
    file = adapter / "adapter_config.json"
    settings = json.loads(file.read_text()) | {"base_model_name_or_path": "data/nano/gone"}
    file.write_text(json.dumps(settings))
    with pytest.raises(CasebookError, match="no model could be loaded from 'data/nano/gone'"):
        try_policy(adapter, HAND)


@pytest.mark.parametrize("card", ["{}", "[]", "null", "{", '{"case": "poker"}'])
def test_a_damaged_card_is_named(adapter, card):
    (adapter / "casebook.json").write_text(card)
    with pytest.raises(CasebookError, match=r"casebook\.json"):
        try_policy(adapter, HAND)


def test_damaged_weights_are_named(adapter):
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CasebookError, match="is damaged"):
        try_policy(adapter, HAND)


# On the command line


def casebook(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["casebook", "try", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0


def test_json_holds_prompt_completion_grade_and_rewards(monkeypatch, capsys):
    assert casebook(monkeypatch, COMMITTED, "--row", "3", "--base", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["answer"] == "two pair"
    assert said["prompt"].startswith("Classify this poker hand.")
    assert [attempt["model"] for attempt in said["attempts"]] == ["policy", "base"]
    for attempt in said["attempts"]:
        assert set(attempt["grade"]) == {"well_formed", "answer", "correct", "strict"}
        assert set(attempt["rewards"]) == {"correct", "tag_format", "answer_grammar"}


def test_a_person_reads_the_same(monkeypatch, capsys):
    assert casebook(monkeypatch, COMMITTED, "--prompt", HAND, "--answer", "full house") == 0
    said = capsys.readouterr().out
    for words in ("Hand: 2H 2D 2C 9S 9H", "right answer: full house", "policy, greedy"):
        assert words in said
    assert "well formed; answer: full house; right; 24 tokens" in said
    assert "reward 1.4 (correct 1, tag_format 1, answer_grammar 1)" in said


def test_what_a_model_writes_is_shown_and_not_carried_out():
    """Markup of rich's and codes of a terminal in a completion are text."""
    tried = try_policy(COMMITTED, "[red]\x1b[2J[/red]" + HAND, as_is=True)
    console = Console(record=True, width=80)
    show(tried, console)
    said = console.export_text()
    assert r"[red]\x1b[2J[/red]2H" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([COMMITTED], "name a prompt or a row"),
        ([COMMITTED, "--row", "5000"], "there is no row 5000"),
        (["nowhere", "--row", "1"], "there is no folder at nowhere"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments, sentence, monkeypatch, capsys):
    assert casebook(monkeypatch, *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


def test_settings_of_a_committed_arm_are_those_of_its_record():
    record = read_record(paths.RESULTS / "gsm8k" / "nano" / "grpo" / "seed0.json")
    policy = find_policy("gsm8k/nano/grpo")
    for name in ("reward_funcs", "reward_weights", "temperature", "max_completion_length"):
        assert policy.settings[name] == Config(record["config"]).settings[name]
