"""What a training's file may say: the table of fields, and the sentence a wrong value gets."""

import math

import pytest
import yaml

from casebook import paths, settings
from casebook.case import CasebookError
from casebook.settings import FIELDS, checked, chosen_runs, parse_yaml, read_arms

SMOKE = paths.CONFIGS / "poker" / "smoke.yaml"
CONFIGS = [path for path in sorted(paths.CONFIGS.glob("*/*.yaml")) if path.stem != "experiments"]
OTHER_TYPES = (True, "many", [1, "a"], {"a": 1}, None, math.nan, -math.inf, "", [], 2.5, {1: 2})


def refusal(overrides, source=SMOKE):
    """The sentence that settings get."""
    with pytest.raises(CasebookError) as error:
        checked(source, overrides)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(source))
    return str(error.value)


# What is taken


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_shipped_configuration_is_taken(path):
    assert checked(path) == yaml.safe_load(path.read_text())


@pytest.mark.parametrize(("written", "value"), [("1e-3", 0.001), (0, 0.0), (0.5, 0.5)])
def test_a_number_is_a_float_however_it_is_written(written, value):
    found = checked(SMOKE, {"adam_beta1": written})["adam_beta1"]
    assert (found, type(found)) == (value, float)


# What is not


def wrong_values(field):
    """Values that a field does not take: beyond its bounds, and of other types."""
    beyond = []
    if field.kind in ("whole", "number"):
        step = 1 if field.kind == "whole" else 1e-6
        beyond = [field.low - step, field.high + step * max(1, field.high), *field.but, 10**400]
        beyond = [value for value in beyond if value not in (math.inf, -math.inf)]
        if field.kind == "whole":
            beyond = [int(value) for value in beyond]
    elif field.kind == "word":
        beyond = [field.choices[0] + "x", field.choices[0].upper(), list(field.choices)]
    elif field.kind == "names":
        beyond = [["a", "a"], [""], "a"]
    elif field.kind == "numbers":
        beyond = [[math.nan], ["a"], [True], [math.inf], ["1"], 1.0]
    elif field.kind == "text":
        beyond = ["a\0b", "a\nb", "  "]
    return [*beyond, *(value for value in OTHER_TYPES if not field.takes(value))]


WRONG = [(name, value) for name, field in FIELDS.items() for value in wrong_values(field)]


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_that_a_field_does_not_take_is_one_sentence_that_names_it(name):
    values = [value for other, value in WRONG if other == name]
    assert len(values) >= 5
    for value in values:
        assert name in refusal({name: value})


MATH = {"case": "math", "reward_funcs": ["exact_match"], "reward_weights": None}
KL = {"reward_funcs": ["kl_penalty"], "reward_weights": [1.0]}
MIN_LR = {"lr_scheduler_type": "cosine_with_min_lr"}
PLAIN = {"method": "plain_grpo"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learning_rat": 1}, "unknown field 'learning_rat': did you mean 'learning_rate'?"),
        ({None: 1}, "unknown field None"),
        ({"num_generations": 3}, "16 completions at a time .* not divisible by num_generat"),
        ({"num_generations": 0}, "num_generations is 0, and must be a whole number from 2"),
        ({"max_steps": True}, "max_steps is True, and must be a whole number from 1"),
        ({"max_steps": None}, "the field 'max_steps' is missing"),
        ({"lora_r": None}, "lora_r is None"),
        ({"lora_dropout": 1}, "lora_dropout is 1, and must be a number from 0 to 1, but not 1"),
        ({"constraint": "tree"}, "'tree', and must be one of none, position, trie"),
        ({"reward_funcs": ["corect"]}, "unknown reward 'corect': known are correct, .*kl_penalty"),
        ({"reward_funcs": ["rung_choice"]}, "reward 'rung_choice' needs a variant rung-"),
        ({"reward_weights": [1.0]}, "3 reward_funcs, but 1 reward_weights"),
        ({"case": "pokr"}, "unknown case 'pokr'"),
        ({"variant": "both"}, "unknown variant 'both'"),
        (PLAIN | {"constraint": "trie"}, "'plain_grpo' samples without a constrai"),
        ({"reward_kwargs": {"kl_penalty": {}}}, "unknown reward in reward_kwargs 'kl_penalty'"),
        ({"reward_kwargs": {"correct": 3}}, "reward_kwargs of correct must be a mapping"),
        ({"reward_kwargs": {"tag_format": {"tagz": 1}}}, "reward_kwargs do not fit: .*tagz"),
        (KL | {"reward_kwargs": {"kl_penalty": {"beta": 1}}}, "reward_kwargs do not fit: .*beta"),
        ({"also_evaluate": {"free": None}}, "also_evaluate must map names to settings"),
        ({"also_evaluate": {"hot": {"temperature": 2}}}, "of also_evaluate 'hot' 'temperature'"),
        ({"also_evaluate": {"free": {"variant": "lable"}}}, "unknown variant 'lable'"),
        ({"also_evaluate": {"few": {"limit": -1}}}, "limit is -1"),
        ({"max_completion_length": 128}, "128 leaves no room for a prompt in max_seq_length 128"),
        ({"prompts_once": True, "gradient_checkpointing": True}, "prompts_once needs"),
        ({"logging_steps": 5}, "logging_steps is 5, but there are only 3 steps"),
        (MIN_LR, "needs lr_scheduler_kwargs with min_lr or"),
        ({"lr_scheduler_kwargs": {"power": 2}}, "unknown parameter of cosine 'power'"),
        ({"fast_inference": True}, "fast_inference needs vllm_gpu_memory_utilization"),
        ({"measure": "validation", "evaluate_every": 0}, "needs evaluate_every above 0"),
        (MATH | {"constraint": "trie"}, "'trie' needs labels, and math has none"),
        (MATH | {"also_evaluate": {"x": {"constraint": "trie"}}}, "'trie' needs labels"),
        ({"method": "plain_ppo", "entropy_coef": 1}, "the plain loop takes entropy_coef only as 0"),
        (PLAIN | {"loss_type": "cispo"}, "unknown loss type 'cispo'"),
        (PLAIN | {"steps_per_generation": 4}, "takes steps_per_generation only as"),
        ({"method": "plain_ppo", "beta": 0.1}, "beta needs the algorithm 'grpo'"),
        (PLAIN | MIN_LR | {"lr_scheduler_kwargs": {"min_lr": 0}}, "lr_scheduler_kwargs only as"),
    ],
)
def test_what_cannot_be_says_what_would_be_right(overrides, message):
    with pytest.raises(CasebookError, match=message):
        checked(SMOKE, overrides)


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(CasebookError, match="one training is one process on one GPU"):
        checked(SMOKE)


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    with pytest.raises(CasebookError, match="use_vllm True needs vllm, which is not installed"):
        settings.check_present(checked(SMOKE, {"use_vllm": True}))
    settings.check_present(checked(SMOKE))


@pytest.mark.parametrize("name", ["data/nano/pokr", "./poker", "/nowhere", "~/model"])
def test_a_model_folder_that_is_not_there_is_named(name):
    with pytest.raises(CasebookError, match=f"there is no model folder at {name}"):
        settings.check_present(checked(SMOKE, {"model_name_or_path": name}))
    for known in ("data/nano/poker", "allenai/Llama-3.1-Tulu-3-8B-SFT", "gpt2"):
        settings.check_present(checked(SMOKE, {"model_name_or_path": known}))


@pytest.mark.parametrize("name", settings.marked("plain"))
def test_what_only_a_plain_loop_needs_is_asked_for_by_it_alone(name, tmp_path):
    less = {n: value for n, value in yaml.safe_load(SMOKE.read_text()).items() if n != name}
    (tmp_path / "less.yaml").write_text(yaml.safe_dump(less))
    assert checked(tmp_path / "less.yaml") == less
    with pytest.raises(CasebookError, match=f"the field '{name}' is missing; a plain loop"):
        checked(tmp_path / "less.yaml", {"method": "plain_grpo"})


# Files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"- a\n- b\n", "contains no mapping"),
        (b"a: [", "not valid YAML"),
        (b"case: poker\n", "the field 'profile' is missing"),
        ("title: Königsweg".encode("latin-1"), "not a text in UTF-8"),
        (b"case: " + b"[" * 5000, "not valid YAML"),
        (b"# a comment\n" * 100_000, "those have at most 1 MiB"),
        (b"seed: 1\nbeta: 0.1\nseed: 2\n", "the key 'seed' is there twice in line 3"),
        (b"seed: &a [*a]", "seed is .* and must be a whole number"),
        (b"case: !!python/object:os.system x", "not valid YAML"),
        (b"case: 2020-13-45", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path, content, message):
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(CasebookError, match=message) as error:
        checked(tmp_path / "config.yaml")
    assert "config.yaml" in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(CasebookError, match="cannot be read"):
        checked(tmp_path / "nothing.yaml")


def test_an_anchor_may_be_used_where_arms_share_values():
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, x: 2}") == {"a": {"x": 1}, "b": {"x": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no mapping"),
        ("a: 3", "the arm 'a' needs overrides, profile, question, seeds"),
        ("a: {question: q, profile: smoke, seeds: 3, overrides: {}}", "a list of seeds"),
        ("a: {question: q, profile: smoke, seeds: [-1], overrides: {}}", "'a' of .* seed is -1"),
        ("a: {question: q, profile: smoke, seeds: [0], overrides: {beta: -1}}", "beta is -1"),
    ],
)
def test_arms_that_cannot_be_trained_are_one_sentence(text, message, tmp_path, monkeypatch):
    (tmp_path / "poker").mkdir()
    (tmp_path / "poker" / "smoke.yaml").write_text(SMOKE.read_text())
    (tmp_path / "poker" / "experiments.yaml").write_text(text)
    monkeypatch.setattr(paths, "CONFIGS", tmp_path)
    with pytest.raises(CasebookError, match=message):
        chosen_runs("poker", "smoke", None, None)


def test_seeds_and_arms_that_are_named_are_checked():
    with pytest.raises(CasebookError, match="seed is -1, and must be a whole number from 0"):
        chosen_runs("poker", "nano", ["grpo"], [-1])
    with pytest.raises(CasebookError, match="unknown arm of poker/nano 'gpro'"):
        chosen_runs("poker", "nano", ["gpro"], None)
    named = chosen_runs("poker", "nano", ["grpo", "grpo"], [1, 0, 1])  # each of them once
    assert [(name, seed) for name, seed, _ in named] == [("grpo", 1), ("grpo", 0)]


def test_an_extension_is_made_only_when_it_is_named():
    extension = {name for name, arm in read_arms("poker").items() if "extension_hours" in arm}
    core = {name for name, _, _ in chosen_runs("poker", "smol", None, None)}
    assert min(len(extension), len(core)) > 0 == len(extension & core)
    [run] = chosen_runs("poker", "smol", ["published_kl_1000"], None)
    assert run[:2] == ("published_kl_1000", 0)
