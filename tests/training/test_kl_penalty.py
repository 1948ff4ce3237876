"""The penalty asks a chat model with the very tokens that its rollouts began with."""

import pytest
import torch

from casebook import models
from casebook.models import generation
from casebook.training import kl_penalty

MESSAGES = [{"role": "user", "content": "Hand: 2H 2D 2C 9S 9H"}]


@pytest.mark.parametrize("kind", ["llama3_1", "qwen2_5", "tulu"])
def test_the_penalty_of_messages_is_that_of_their_tokens(chat_model, kind):
    settings = models.read_settings("poker", "smoke") | {
        "model_name_or_path": str(chat_model(kind)),
        "lora_target_modules": "all-linear",
    }
    model, tokenizer = models.load_policy("poker", "smoke", settings=settings)
    torch.manual_seed(0)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.3)
    penalty = kl_penalty.KlPenalty()
    penalty.bind(model, tokenizer)
    asked = generation.token_ids(tokenizer, MESSAGES)
    assert asked.count(tokenizer.bos_token_id) == ("bos_token" in tokenizer.chat_template)
    completion = generation.completion_ids(tokenizer, "flush")
    (found,) = penalty([MESSAGES], ["flush"], [completion])

    def logps():
        with torch.no_grad():
            logits = model(torch.tensor([asked + completion])).logits[0, len(asked) - 1 : -1]
        return logits.log_softmax(-1)[range(len(completion)), completion]

    policy = logps()
    with model.disable_adapter():
        base = logps()
    assert found == pytest.approx(float((base - policy).mean()), abs=1e-5)
    assert abs(found) > 1e-4
