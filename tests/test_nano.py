"""The embedded models: their builder, and what the shipped checkpoints must be like."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from casebook import load_case, nano
from casebook.case import CasebookError, known_cases
from casebook.evaluation import evaluate


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return nano.build("poker", tmp_path_factory.mktemp("nano"), steps=3, log=lambda line: None)


def test_a_few_steps_give_a_model_that_loads_and_generates(built):
    model = AutoModelForCausalLM.from_pretrained(built)
    tokenizer = AutoTokenizer.from_pretrained(built)
    prompt = tokenizer(load_case("poker").load("test")[0]["prompt"], return_tensors="pt")
    assert model.generate(**prompt, max_new_tokens=4).shape[1] <= prompt.input_ids.shape[1] + 4


def test_the_same_seed_builds_the_same_weights(built, tmp_path):
    again = nano.build("poker", tmp_path, steps=3, log=lambda line: None)
    weights = [load_file(path / "model.safetensors") for path in (built, again)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_tokenizer_reads_back_what_it_wrote_and_knows_every_word():
    case = load_case("poker")
    tokenizer = nano.build_tokenizer(case)
    for row, _ in zip(case.demonstrations(7), range(200), strict=False):
        ids = tokenizer(row["prompt"] + row["completion"]).input_ids
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == row["prompt"] + row["completion"]


def test_labels_are_several_tokens_and_padding_is_not_the_end():
    tokenizer = nano.build_tokenizer(load_case("poker"))
    assert len(tokenizer("four of a kind").input_ids) == 4
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_prompts_are_not_learned_and_only_whole_completions_end():
    tokenizer = nano.build_tokenizer(load_case("poker"))
    rows = [
        {"prompt": "Hand: 2C\n", "completion": "flush", "ends": True},
        {"prompt": "Hand: 2C\n", "completion": "<think>\n2 2 2", "ends": False},
    ]
    batch = nano.collate(tokenizer, rows)
    learned = [[i for i in row.tolist() if i != -100] for row in batch["labels"]]
    assert tokenizer.decode(learned[0]) == "flush<eos>"
    assert tokenizer.decode(learned[1]) == "<think>\n2 2 2"


@pytest.mark.parametrize("steps", [0, -1])
def test_a_build_needs_a_step(tmp_path, steps):
    with pytest.raises(CasebookError, match="at least one"):
        nano.build("poker", tmp_path, steps=steps)


@pytest.mark.parametrize("case", known_cases())
def test_the_shipped_model_is_small_and_in_float32(case):
    weights = load_file(nano.folder(case) / "model.safetensors")
    assert sum(tensor.numel() for tensor in weights.values()) <= 1_000_000
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert (nano.folder(case) / "model.safetensors").stat().st_size <= 4_000_000
    config = json.loads((nano.folder(case) / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]


@pytest.mark.slow
def test_the_shipped_poker_model_is_as_half_able_as_a_base_model_should_be():
    case = load_case("poker")
    model = AutoModelForCausalLM.from_pretrained(nano.folder("poker"))
    tokenizer = AutoTokenizer.from_pretrained(nano.folder("poker"), padding_side="left")
    evaluation = evaluate(model, tokenizer, case, "validation", samples=4, greedy=False)
    figures = evaluation.summary()
    assert 0.25 <= figures["sampled_accuracy"]["value"] <= 0.50
    assert 0.5 <= figures["well_formed"]["value"] <= 0.8
    rows = evaluation.rows.to_dict("records")
    assert set(case.skills) <= {case.style(row["completion"], row) for row in rows}
