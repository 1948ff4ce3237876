"""The supervised controls: which texts they learn from, and which of their tokens count."""

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from casebook import load_case, models
from casebook.experiments import nano
from casebook.models import generation
from casebook.models.decoding import PrefixTrie
from casebook.training import read_config, supervised

pytestmark = pytest.mark.slow
CASE = load_case("poker")
SMOKE = models.read_settings("poker", "smoke")


@pytest.fixture(scope="module")
def base():
    return models.load_base(SMOKE)


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(nano.folder("poker"))


# What the oracle would write


@pytest.mark.parametrize("variant", ["reason", "label"])
def test_what_is_taught_is_right_well_formed_and_ends(variant):
    rows = CASE.load("validation", variant=variant)
    texts = supervised.taught("poker", rows, variant)
    assert [text["prompt"] for text in texts] == rows["prompt"][:]
    for row, text in zip(rows, texts, strict=True):
        assert CASE.grade(text["completion"], row["answer"], variant=variant).strict
        assert text["ends"]


# What the model itself gets right


@pytest.mark.parametrize("variant", ["reason", "label"])
def test_what_is_accepted_is_right_and_well_formed(base, variant):
    settings = SMOKE | {"variant": variant, "num_generations": 8}
    rows = CASE.load("train", variant=variant).select(range(16))
    answers = dict(zip(rows["prompt"], rows["answer"], strict=True))
    torch.manual_seed(0)
    kept = supervised.accepted(*base, "poker", rows, settings)
    assert 0 < len(kept) < 16 * 8
    for text in kept:
        graded = CASE.grade(text["completion"], answers[text["prompt"]], variant=variant)
        assert graded.strict
        assert text["ends"]


def test_every_prompt_is_sampled_as_often_as_grpo_would_under_its_constraint(base, monkeypatch):
    asked, keyed, ruled = [], [], []

    def right(model, tokenizer, prompts, keys, constraint, **decoding):
        asked.extend(prompts)
        keyed.extend(keys)
        ruled.append(constraint)
        for number in reversed(range(len(prompts))):  # in an order of its own
            yield 1, [number], [{"completion": answers[prompts[number]], "truncated": not number}]

    monkeypatch.setattr(supervised, "generate_all", right)
    rows = CASE.load("train", variant="label").select(range(3))
    answers = dict(zip(rows["prompt"], rows["answer"], strict=True))
    settings = SMOKE | {"variant": "label", "num_generations": 4, "constraint": "trie"}
    kept = supervised.accepted(*base, "poker", rows, settings)
    assert asked == [prompt for prompt in rows["prompt"] for _ in range(4)]
    assert [text["prompt"] for text in kept] == asked[1:]  # the first was cut off
    assert len(set(keyed)) == 12
    assert isinstance(ruled[0], PrefixTrie)


# Messages


@pytest.fixture(scope="module", params=["llama3_1", "qwen2_5", "tulu"])
def chat(request, chat_model):
    return models.load_base(SMOKE | {"model_name_or_path": str(chat_model(request.param))})


def test_what_is_taught_follows_the_chat_template_and_ends_once(chat):
    _, tokenizer = chat
    variant = models.read_settings("poker", "t4")["variant"]
    asked = CASE.load("train", profile="t4").select(range(4))
    rows = supervised.taught("poker", asked, variant)
    batch = supervised.collate(tokenizer, rows, 4096)
    for row, ids, labels in zip(rows, batch["input_ids"], batch["labels"], strict=True):
        prompt = generation.token_ids(tokenizer, row["prompt"])
        assert ids[: len(prompt)].tolist() == prompt
        learned = [token for token in labels.tolist() if token != supervised.IGNORED]
        assert tokenizer.decode(learned) == row["completion"] + tokenizer.eos_token
        assert tokenizer.bos_token_id not in learned


# Tokens


def test_prompts_are_not_learned_and_only_whole_completions_end(tokenizer):
    rows = [
        {"prompt": "Hand: 2C\n", "completion": "flush", "ends": True},
        {"prompt": "Hand: 2C\n", "completion": "<think>\n2 2 2", "ends": False},
    ]
    batch = supervised.collate(tokenizer, rows, nano.MAX_LENGTH)
    learned = [[i for i in row.tolist() if i != supervised.IGNORED] for row in batch["labels"]]
    assert tokenizer.decode(learned[0]) == "flush<eos>"
    assert tokenizer.decode(learned[1]) == "<think>\n2 2 2"


def test_padding_stands_on_the_right_and_counts_nowhere(tokenizer):
    rows = [
        {"prompt": "Hand: 2C\n", "completion": " one pair", "ends": True},
        {"prompt": "Hand: 2C 2D\n", "completion": " four of a kind", "ends": True},
    ]
    batch = supervised.collate(tokenizer, rows, nano.MAX_LENGTH)
    text = rows[0]["prompt"] + rows[0]["completion"] + tokenizer.eos_token
    length = len(tokenizer(text).input_ids)
    assert batch["attention_mask"].sum(1).tolist() == [length, batch["input_ids"].shape[1]]
    assert (batch["input_ids"][0, length:] == tokenizer.pad_token_id).all()
    assert (batch["labels"][0, length:] == supervised.IGNORED).all()


def test_what_is_too_long_is_cut_and_has_no_end(tokenizer):
    row = {"prompt": "Hand: 2C\n", "completion": " four of a kind", "ends": True}
    whole = supervised.collate(tokenizer, [row], 128)["input_ids"]
    cut = supervised.collate(tokenizer, [row], whole.shape[1] - 2)
    assert torch.equal(cut["input_ids"], whole[:, :-2])
    assert tokenizer.eos_token_id not in cut["labels"]


def test_the_trainer_learns_what_it_is_shown(tmp_path):
    options = {"max_steps": 12, "learning_rate": 1e-2, "save_strategy": "no"}
    config = read_config(("poker", "smoke"), options)
    arguments = config.trainer_arguments(tmp_path)
    model, tokenizer = models.load_policy("poker", "smoke")
    prompt = CASE.load("train", variant="label")[0]["prompt"]
    texts = [{"prompt": prompt, "completion": " four of a kind", "ends": True}] * 16
    trainer = supervised.trainer(model, tokenizer, texts, arguments, [], 128)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(losses) == 12
    assert losses[-1] < 0.2 < losses[0]


def test_prompts_computed_once_give_the_same_loss_and_gradient(tmp_path):
    config = read_config(("poker", "smoke"), {"max_steps": 1, "save_strategy": "no"})
    rows = supervised.taught("poker", CASE.load("validation", "smoke").select(range(16)), "label")
    found = []
    for once in (False, True):
        model, tokenizer = models.load_policy("poker", "smoke")
        arguments = config.trainer_arguments(tmp_path / str(once))
        trainer = supervised.trainer(model, tokenizer, rows, arguments, [], 128, once)
        trainer.train()
        found.append([trainer.state.log_history[0][name] for name in ("loss", "grad_norm")])
    assert found[0] == pytest.approx(found[1], rel=1e-4)
