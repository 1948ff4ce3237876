"""A sentence encoder on word problems: vectors, and what is compared by them."""

import numpy as np
import pytest

from casebook.case import CasebookError
from casebook.cases.gsm8k.studies import embedding, exploration

TEXTS = ["ann has pens", "a much longer one about the ages of ann and the pens", "pens"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The folder of a small encoder with random weights."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("models") / "minilm"
    words = sorted({word for text in TEXTS for word in text.split()})
    vocabulary = folder.with_suffix(".txt")
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    tokenizer = BertTokenizer(vocab_file=str(vocabulary), vocab=str(vocabulary))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(words) + 5, num_hidden_layers=2, **size)
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def encoder(tiny, monkeypatch):
    monkeypatch.setenv("CASEBOOK_MODELS", str(tiny.parent))


def test_a_vector_depends_on_its_own_text_alone(encoder):
    together = embedding.encode(TEXTS, "float32")
    assert together.shape == (3, 16)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    for text, vector in zip(TEXTS, together, strict=True):
        assert embedding.encode([text], "float32")[0] == pytest.approx(vector, abs=1e-5)
    assert abs(together[0] @ together[1]) < 0.9999


def test_a_model_that_is_not_here_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path))
    with pytest.raises(CasebookError, match="is not here: casebook models fetch minilm"):
        embedding.encode(TEXTS)


def toy():
    rng = np.random.default_rng(0)
    questions = [
        f"Ann counts {rng.integers(2, 50)} {thing}{' and is 9 years old, an older sister' * old}."
        for thing, old in [("pens", 0), ("books", 0), ("eggs", 0), ("birthdays", 1)] * 15
    ]
    rows = {"question": questions, "answer": ["1+1=<<1+1=2>>2\n#### 2"] * len(questions)}
    return exploration.described({"train": rows, "test": rows})


def test_the_cluster_about_ages_is_found():
    explored = exploration.Exploration(toy())
    facts = embedding.ages_facts(explored)
    assert facts["about ages"] == 30
    assert (facts["share"], facts["holds"]) == (1.0, 1.0)
    assert facts["family"] == 1.0
    assert facts["rows"] == 30
