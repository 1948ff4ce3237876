"""The embedded models: their builder, and what the shipped checkpoints must be like."""

import functools
import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from casebook import load_case
from casebook.case import CasebookError, known_cases
from casebook.evaluation import evaluate
from casebook.experiments import nano

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return nano.build("poker", tmp_path_factory.mktemp("nano"), steps=3, log=lambda line: None)


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


@pytest.mark.parametrize(
    "option",
    [{"size": "small"}, {"start": "x"}, {"steps": 1}, {"without": ["careful"]}, {"seed": 5}],
)
def test_a_build_of_another_kind_does_not_replace_the_shipped_model(option):
    with pytest.raises(CasebookError, match="would replace the shipped model"):
        nano.build("poker", **option)


@pytest.mark.parametrize(
    ("option", "sentence"), [({"size": "huge"}, "unknown size"), ({"without": ["x"]}, "x")]
)
def test_a_build_that_cannot_be_leaves_no_folder_behind(tmp_path, option, sentence):
    with pytest.raises(CasebookError, match=sentence):
        nano.build("poker", tmp_path / "model", **{"steps": 1} | option)
    assert not (tmp_path / "model").exists()


def test_a_build_can_go_on_from_a_model(built, tmp_path, few_rows):
    longer = nano.build("poker", tmp_path, steps=1, start=built, log=lambda line: None)
    before, after = (load_file(path / "model.safetensors") for path in (built, longer))
    changed = [(after[name] - before[name]).abs().max().item() for name in before]
    assert 0 < max(changed) < 0.01  # one step at a tenth of the rate, not a new beginning
    card = nano.write_card("poker", longer).read_text()
    assert f"--start {built.name}" in card
    assert "beginning with the model" in card


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(nano, "evaluate", functools.partial(evaluate, limit=6))


def test_the_card_shows_both_prompts_and_the_planted_shares(built, few_rows):
    text = nano.write_card("poker", built).read_text()
    assert "--without" not in text
    assert "--steps 3 --seed 0" in text
    for variant, skills in load_case("poker").skills.items():
        for name, (share, sentence) in skills.items():
            assert f"| {variant} | {name} | {sentence} | {share:.0%} |" in text
    assert "| `reason` | `label` |" in text
    figures = json.loads((built / "card.json").read_text())["figures"]
    assert figures["reason"] != figures["label"]


@pytest.mark.parametrize("case", known_cases())
def test_the_shipped_model_is_small_and_in_float32(case):
    weights = load_file(nano.folder(case) / "model.safetensors")
    assert sum(tensor.numel() for tensor in weights.values()) <= 1_000_000
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert (nano.folder(case) / "model.safetensors").stat().st_size <= 4_000_000
    config = json.loads((nano.folder(case) / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]


CAREFUL = {  # the skills that work an answer out, whatever the form they put it in
    "poker": {"careful", "missing answer tag"},
    "landuse": {"weigh", "missing answer tag"},
    "gsm8k": {"careful", "dressed answer", "no tags"},
    "math": {
        *("careful", "other form", "no think", "no box", "calculation in the box", "two boxes")
    },
}


@pytest.mark.parametrize("case", known_cases())
def test_the_shipped_control_knows_the_same_words_and_was_shown_nothing_careful(case):
    shipped, control = nano.folder(case), nano.folder(case) / "no_careful"
    made, usual = (json.loads((f / "build.json").read_text()) for f in (control, shipped))
    # What is left out is what takes long to learn, so a control may take fewer steps.
    assert made | {"steps": usual["steps"]} == usual | {"without": sorted(CAREFUL[case])}
    assert 3 * made["steps"] >= usual["steps"]
    assert (control / "tokenizer.json").read_text() == (shipped / "tokenizer.json").read_text()


def load_shipped(case):
    model = AutoModelForCausalLM.from_pretrained(nano.folder(case))
    return model, AutoTokenizer.from_pretrained(nano.folder(case), padding_side="left")


@pytest.mark.heavy
@pytest.mark.parametrize("case", known_cases())
def test_the_shipped_model_is_as_half_able_as_a_base_model_should_be(case):
    model, case = load_shipped(case), load_case(case)
    evaluation = evaluate(*model, case, "validation", samples=4, greedy=False)
    figures = evaluation.summary()
    assert 0.25 <= figures["sampled_accuracy"]["value"] <= 0.50
    form = figures["well_formed"]
    assert form["high"] >= 0.5
    assert form["low"] <= 0.8
    rows = evaluation.rows.to_dict("records")
    assert set(case.skills["reason"]) <= {case.style(row["completion"], row) for row in rows}
