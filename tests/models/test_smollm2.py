"""SmolLM2 itself, where `make smol` has fetched it."""

import pytest
import torch

from casebook import models
from casebook.models import pretrained
from casebook.models.generation import token_ids

ENTRY = pretrained.MODELS["smollm2"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ENTRY.folder.exists(), reason="SmolLM2 is not here: make smol"),
]
TEXT = (
    "Water boils at 100 degrees Celsius at sea level. Higher up the air is thinner, and it boils "
    "at a lower temperature; that is why eggs take longer to cook on a mountain."
)


@pytest.fixture(scope="module")
def smollm2():
    model, tokenizer = models.load_base(models.read_settings("poker", "smol"))
    return model.eval(), tokenizer


def test_it_is_a_plain_model_in_float32(smollm2):
    model, _ = smollm2
    # as every record of it says: the expansion is exact, whichever version made it
    assert models.weights_hash(ENTRY.folder).startswith("a672150fb4f99d7c")
    assert model.num_parameters() == 134_515_008
    assert {weights.dtype for weights in model.parameters()} == {torch.float32}
    assert not hasattr(model.config, "quantization_config")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize(
    ("text", "ids"),  # of llama.cpp's tokenizer on the same file
    [
        ("The capital of France is", [504, 3575, 282, 4649, 314]),
        ("Hello 1234 world", [19556, 216, 33, 34, 35, 36, 905]),
        ("Hand: 2H 2D\n", [10985, 42, 216, 34, 56, 216, 34, 52, 198]),
        ("Steps:\n\n1. Wash 12  34", [21831, 42, 1116, 33, 30, 21886, 216, 33, 34, 256, 35, 36]),
    ],
)
def test_texts_have_the_known_token_ids(text, ids, smollm2):
    _, tokenizer = smollm2
    assert token_ids(tokenizer, text) == ids
    assert tokenizer.decode(ids) == text


def test_a_chat_has_the_known_token_ids(smollm2):
    _, tokenizer = smollm2
    ids = token_ids(tokenizer, [{"role": "user", "content": "What is 12+7?"}])
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    asked = [1, 4093, 198, 1780, 314, 216, 33, 34, 27, 39, 47, 2, 198, 1, 520, 9531, 198]
    assert tokenizer.decode(ids).startswith(f"<|im_start|>system\n{system}<|im_end|>\n")
    assert ids[-len(asked) :] == asked


def test_it_predicts_a_plain_text(smollm2):
    model, tokenizer = smollm2
    ids = torch.tensor([token_ids(tokenizer, TEXT)])
    with torch.inference_mode():
        perplexity = float(model(ids, labels=ids).loss.exp())
    # llama.cpp's with its own expansion of the same file to float32
    assert perplexity == pytest.approx(22.6935, rel=1e-4)
