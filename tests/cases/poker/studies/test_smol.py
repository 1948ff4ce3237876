"""The untrained real model's answers, asked of the embedded one: nothing here is its figure."""

import pytest

from casebook import load_case, models
from casebook.cases.poker import oracle
from casebook.cases.poker.studies import smol as study
from casebook.evaluation import token_logps

CASE = load_case("poker")
SETTINGS = models.read_settings("poker", "nano") | {"max_completion_length": 8}


@pytest.fixture(scope="module")
def nano():
    model, tokenizer = models.load_base(SETTINGS)
    return model.eval(), tokenizer


def test_likelihood_chooses_what_a_plain_computation_finds_most_likely(nano):
    model, tokenizer = nano
    prompts = CASE.load("validation", variant="label")["prompt"][:10]
    found = study.answers(model, tokenizer, SETTINGS, prompts, "likelihood")
    texts = [[*tokenizer(f" {x}").input_ids, tokenizer.eos_token_id] for x in oracle.LABELS]
    for row, prompt in enumerate(prompts):
        asked = tokenizer(prompt).input_ids
        logps, mask = token_logps(model, [(asked, text) for text in texts])
        total = (logps * mask).sum(1)
        plain = {"likelihood": total, "likelihood_per_token": total / mask.sum(1)}
        for name, scores in plain.items():
            kept = found[name]
            answer = kept["texts"][int(kept["of"].split()[row])]
            assert answer == f" {oracle.LABELS[int(scores.argmax())]}"
            mass = float(kept["label_mass"].split()[row])
            assert mass == pytest.approx(float(total.exp().sum()), abs=2e-4)


def test_under_the_trie_every_answer_is_a_label_and_freely_some_are_not(nano):
    prompts = CASE.load("validation", variant="label")["prompt"][:24]
    trie = study.answers(*nano, SETTINGS, prompts, "trie")["trie"]
    assert set(trie["texts"]) <= {f" {label}" for label in oracle.LABELS}
    bare = study.answers(*nano, SETTINGS, prompts[:2], "trie", blank="")["trie"]
    assert set(bare["texts"]) <= set(oracle.LABELS)
    free = study.answers(*nano, SETTINGS, prompts, "free")["free"]
    assert study.figures(free, [0] * 24)["no_label"]["n"] == 24


def test_figures_are_those_of_the_kept_answers():
    texts = [" flush", "It is a flush.", " 2C 3D 4H", "\nflush\n\nClassify this"]
    kept = {"texts": texts, "of": "0 1 2 0", "truncated": "0 0 1 0"}
    found = study.figures(kept, [5, 5, 0, 0])
    values = {name: found[name]["value"] for name in ("accuracy", "lenient_accuracy", "no_label")}
    assert values == {"accuracy": 0.25, "lenient_accuracy": 0.5, "no_label": 0.25}
    assert found["truncated"]["value"] == 0.25
    after_shots = study.figures({"texts": texts, "of": "3", "truncated": "1"}, [5])
    assert after_shots["accuracy"]["value"] == 0
    assert after_shots["first_line_accuracy"]["value"] == 1
    assert found["histogram"] == {"flush": 3, "none": 1}
    assert found["labels_recalled"] == 1
    assert found["answer_entropy"] == 0  # one label, whatever the rows without any say


def test_a_record_can_be_graded_again(monkeypatch):
    monkeypatch.setattr(study, "PROFILE", "nano")
    monkeypatch.setattr(study, "PROMPTS", {"text": "label"})
    said = []
    record = study.record(limit=3, log=said.append)
    assert len(said) == 2 * 5
    for kind, ways in record["found"].items():
        right = [int(number) for number in record["rows"][kind]["right"].split()]
        assert len(right) == 3
        for found in ways["text"].values():
            again = study.figures(found["kept"], right)
            assert again == {name: found[name] for name in again}
