"""The land-use configurations: what they claim of the source, and the chat template beside them."""

import pytest
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment

from casebook import paths, training

FOLDER = paths.CONFIGS / "landuse"
PROFILES = ("smoke", "nano", "t4", "gpu24", "a100", "a100_source")
REASONED = "<think>\n7 5 3\n</think>\n<answer>\noat\n</answer>"


def settings(name):
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", PROFILES)
def test_the_three_parts_have_the_sources_weights(name):
    assert settings(name)["reward_weights"] == [3.0, 2.0, 1.0]
    assert settings(name)["reward_kwargs"]["repetition"] == {"ngram_size": 3, "max_penalty": -1.0}
    assert settings(name)["beta"] == 0.04


def test_the_sources_own_settings_under_todays_names():
    overrides = {"bf16": False, "use_cpu": True}  # whether there is a GPU is asked otherwise
    config = training.read_config(FOLDER / "a100_source.yaml", overrides)
    asked = config.trainer_arguments()
    assert (asked.learning_rate, asked.temperature, asked.num_generations) == (1e-6, 0.7, 4)
    assert asked.lr_scheduler_type == "cosine_with_min_lr"
    assert asked.lr_scheduler_kwargs == {"min_lr_rate": 0.1}
    # The source's 4 x 4, half of them at a time: by the estimate 4 leave no tenth of 80 GB free.
    at_once, times = asked.per_device_train_batch_size, asked.gradient_accumulation_steps
    assert at_once * times == at_once * asked.steps_per_generation == 4 * 4
    assert config.max_seq_length == 5000 + asked.max_completion_length
    assert asked.vllm_max_model_length == config.max_seq_length
    paid = {reward.__name__: reward for reward in training.reward_functions(config)}
    assert paid["label_match"](["oat"], answer=["oat|soy"], plan_label=["soy"]) == [0.0]
    assert paid["open_r1_format"]([REASONED]) == [1.0]


def test_its_steps_are_four_epochs_of_the_training_rows():
    from casebook.cases.landuse.data import ROWS

    asked = settings("a100_source")
    prompts = asked["per_device_train_batch_size"] * asked["gradient_accumulation_steps"]
    prompts //= asked["num_generations"]
    assert asked["max_steps"] == 4 * ROWS["train"] // prompts


def render(messages, add_generation_prompt=False):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((FOLDER / "deepseek_r1_keeps_think.jinja").read_text())
    return template.render(
        messages=messages,
        add_generation_prompt=add_generation_prompt,
        bos_token="<bos>",
        eos_token="<eos>",
    )


ASKED = {"role": "user", "content": " Which label?\n"}


def test_the_chat_template_opens_no_tag_for_the_model():
    assert render([ASKED], add_generation_prompt=True) == (
        "<bos><｜User｜> Which label?\n<｜Assistant｜>"
    )


def test_the_chat_template_keeps_the_reasoning_of_every_turn():
    messages = [
        {"role": "system", "content": "You plan land use."},
        *([ASKED, {"role": "assistant", "content": REASONED}] * 2),
    ]
    turn = f"<｜User｜> Which label?\n<｜Assistant｜>{REASONED}<eos>"
    assert render(messages) == f"<bos>You plan land use.{turn}{turn}"
