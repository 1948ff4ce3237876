"""The GSM8K configurations: what they claim of the source, and arms that change one thing."""

import pytest

from casebook import training
from casebook.records import studies
from casebook.settings import read_arms

ANYWHERE = {"bf16": False, "fp16": False, "use_cpu": True}  # is there a GPU is asked otherwise
TEXT = "<reasoning>\n16*100=1600\n</reasoning>\n<answer>\n1600\n</answer>\n"


@pytest.mark.parametrize("profile", ["t4_source", "a100", "a100_source"])
def test_the_sources_settings_stand_under_todays_names(profile):
    asked = training.read_config(("gsm8k", profile), ANYWHERE)
    assert (asked.learning_rate, asked.adam_beta1, asked.adam_beta2) == (5e-6, 0.9, 0.99)
    assert (asked.weight_decay, asked.warmup_steps, asked.max_grad_norm) == (0.1, 0.1, 0.1)
    assert (asked.num_generations, asked.gradient_accumulation_steps) == (8, 2)
    assert (asked.max_steps, asked.max_completion_length) == (350, 200)
    assert (asked.beta, asked.temperature, asked.loss_type) == (0.04, 0.9, "grpo")
    assert asked.optim == "paged_adamw_8bit"
    assert asked.lora_r == asked.lora_alpha == 32
    assert asked.load_in_4bit
    assert "3.1-8B-Instruct" in asked.model_name_or_path


@pytest.mark.parametrize("profile", ["t4_source", "a100", "a100_source"])
def test_the_rewards_of_the_source_are_those_it_published(profile):
    config = training.read_config(("gsm8k", profile), ANYWHERE)
    paid = {f.__name__: f for f in training.reward_functions(config)}
    columns = {"answer": ["1600"], "gold": ["1,600"]}
    assert paid["correctness"]([TEXT], **columns) == [0.0]  # the comma, as published
    assert paid["strict_format"]([TEXT], **columns) == [0.5]


@pytest.mark.parametrize("profile", ["smoke", "nano"])
def test_the_embedded_model_is_paid_by_the_mended_rewards(profile):
    config = training.read_config(("gsm8k", profile))
    columns = {"answer": ["1600"], "gold": ["1,600"]}
    paid = [f([TEXT], **columns)[0] for f in training.reward_functions(config)]
    assert sum(paid) == pytest.approx(4.0, abs=0.01)


def test_the_real_model_is_trained_where_its_study_finds_that_a_training_can_start():
    arm = read_arms("gsm8k")["with_examples"]["overrides"]
    name = f"{arm['variant']}, validation, 16 samples at {arm['temperature']:g}"
    assert studies.read("smol_gsm8k")["parts"][name]["can start"]
