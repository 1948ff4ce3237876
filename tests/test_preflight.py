"""`casebook preflight`: sizes, the estimate of the memory, and the command."""

import json

import pytest
import yaml

from casebook import paths, preflight, records
from casebook.case import CasebookError, known_cases
from casebook.preflight import estimate, sizes
from casebook.preflight.estimate import memory, weights_bytes
from casebook.preflight.sizes import GIB, cards, known_shapes, shape_of
from casebook.settings import checked

MODELS = yaml.safe_load((paths.ROOT / "src/casebook/preflight/models.yaml").read_text())
LLAMA = known_shapes()["unsloth/Meta-Llama-3.1-8B-Instruct"]
QWEN = known_shapes()["Qwen/Qwen2.5-1.5B-Instruct"]
SMOL = known_shapes()["HuggingFaceTB/SmolLM2-135M-Instruct"]
CONFIG, T4 = (paths.CONFIGS / "poker" / f"{name}.yaml" for name in ("nano", "t4"))
OF_PROFILE = {"t4": "t4", "gpu24": "24", "a100": "a100-80"}


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """No hub, and runs that go to a folder of the test."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.delenv("CASEBOOK_BACKEND", raising=False)


def settings(case="poker", profile="t4", **changes):
    return checked((case, profile), changes)


@pytest.mark.parametrize("name", MODELS)
def test_a_shape_on_the_list_has_as_many_parameters_as_its_page_says(name):
    # Qwen3 norms queries and keys, some thousand parameters that are left out.
    assert known_shapes()[name].parameters == pytest.approx(MODELS[name]["parameters"], rel=2e-5)


def test_shape_and_adapter_are_those_of_the_model_itself():
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    shape, names = shape_of("data/nano/gsm8k"), ["q_proj", "v_proj", "down_proj"]
    model = AutoModelForCausalLM.from_pretrained(paths.ROOT / "data/nano/gsm8k")
    assert shape.parameters == model.num_parameters()
    tuned = get_peft_model(model, LoraConfig(r=8, target_modules=names))
    assert shape.adapter(8, names) == tuned.get_nb_trainable_parameters()[0]


def test_an_adapter_on_matrices_that_no_layer_has_is_refused():
    with pytest.raises(CasebookError, match="no layer has one of c_attn"):
        shape_of("data/nano/gsm8k").adapter(8, ["c_attn"])


def test_a_model_that_is_nowhere_is_not_guessed_at():
    with pytest.raises(CasebookError, match="the shape of nobody/nothing is not known here"):
        shape_of("nobody/nothing")


# Memory


def test_eight_billion_parameters_take_16_gb_and_in_4_bits_less_than_6():
    whole = settings("math", "a100")
    assert weights_bytes(whole, LLAMA) == 2 * LLAMA.parameters
    assert 5.4e9 < weights_bytes({**whole, "load_in_4bit": True}, LLAMA) < 6e9
    assert LLAMA.kv_bytes(2) == 128 * 1024


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"per_device_train_batch_size": 16}, "activations"),
        ({"gradient_checkpointing": False}, "activations"),
        ({"max_completion_length": 500}, "logits"),
        ({"lora_r": 64}, "optimiser"),
    ],
)
def test_a_larger_setting_takes_more(change, part):
    one, more = (
        estimate.learning(settings() | new, QWEN, cards()["24"], 200)
        | memory(settings() | new, QWEN, cards()["24"], 200)
        for new in ({}, change)
    )
    assert more[part] > one[part]


def test_without_an_adapter_gradients_and_moments_are_those_of_the_model():
    parts = memory(settings("poker", "smol"), SMOL, cards()["24"], 100)
    assert parts["gradients"] == parts["weights"] == 4 * SMOL.parameters
    assert parts["optimiser"] == 8 * SMOL.parameters


def test_the_larger_of_writing_and_learning_counts():
    wanted, card = settings(gradient_accumulation_steps=64), cards()["24"]
    wanted["steps_per_generation"] = 64
    parts = memory(wanted, QWEN, card, 200)
    count, length = wanted["per_device_train_batch_size"] * 64, wanted["max_completion_length"]
    cache = count * (200 + length) * QWEN.kv_bytes(2)
    assert parts["keys and values"] == cache + cache // QWEN.layers
    assert "logits" not in parts
    assert "logits" in memory(settings("landuse", "a100"), QWEN, cards()["a100-80"], 1700)


def test_vllm_keeps_its_share_of_the_card_and_has_to_hold_the_weights():
    tuned = settings("gsm8k", "t4") | {"fast_inference": True, "vllm_gpu_memory_utilization": 0.5}
    card = cards()["a100-40"]
    parts = memory(tuned, LLAMA, card, 256)
    assert parts["weights"] + parts["vLLM's reserve"] == int(0.5 * card.total)
    small = {"vllm_gpu_memory_utilization": 0.3}
    found = preflight.preflight(paths.CONFIGS / "math/a100.yaml", "a100-40", overrides=small)
    assert found["verdict"] == "does not fit"
    assert "raise vllm_gpu_memory_utilization" in found["reasons"][0]


def test_a_prompt_that_is_computed_once_for_its_group_counts_once():
    wanted = settings("poker", "smol", prompts_once=False)
    each, once = (
        estimate.learning(wanted | {"prompts_once": value}, SMOL, cards()["24"], 1000)
        for value in (False, True)
    )
    assert each["activations"] > 2 * once["activations"]


@pytest.mark.parametrize(
    "run", [*(f"{case}/nano/grpo" for case in known_cases()), "poker/smol/choose_8x8_1e-4"]
)
def test_recorded_trainings_took_what_is_estimated_within_its_error_bar(run):
    # The last one measured no test rows: measuring fits its batches to the memory that is free.
    record = records.read_record(paths.RESULTS / run / "seed0.json")
    if "smol" in run:  # 83 tokens, as its own tokenizer counts them, which need not be here
        shape, prompt = SMOL, 83
    else:
        shape = shape_of(record["config"]["model_name_or_path"])
        prompt, _ = preflight.longest_prompt(record["config"], shape)
    machine = sizes.Machine("a machine", 8 * GIB, 8 * GIB, gpu=False)
    most = sum(memory(record["config"], shape, machine, prompt).values())
    ratio = record["peak_memory_mb"] * 2**20 / most
    assert abs(ratio - 1) <= estimate.ERROR_CPU


def test_the_page_says_what_is_estimated(script):
    module, page = script("model_by_card"), paths.ROOT / "docs" / "fits.md"
    said = page.read_text(encoding="utf-8")
    assert said == module.page(), "run: python benchmarks/model_by_card.py"


def test_long_contexts_take_what_unsloth_says_of_them(monkeypatch):
    # https://unsloth.ai/blog/grpo: Llama 3.1 8B, 20,000 tokens, 8 completions, 54.3 GB
    changes = {"use_gradient_checkpointing": "unsloth", "max_completion_length": 20_000}
    changes |= {"max_seq_length": 20_456, "beta": 0.0, "fast_inference": True}
    wanted = settings("gsm8k", "t4", **changes, vllm_gpu_memory_utilization=0.1)
    parts = memory(wanted, LLAMA, cards()["a100-80"], 256)
    without = sum(n for name, n in parts.items() if name != "vLLM's reserve")
    assert without == pytest.approx(54.3e9, rel=0.2)
    longer = wanted | {"max_completion_length": 65_536}  # more pieces of 4,096 tokens
    piece = memory(longer, LLAMA, cards()["a100-80"], 256)["logits"]
    assert piece == pytest.approx(4096 * LLAMA.vocabulary * 12, rel=0.01)
    # What transformers and PEFT train keeps its checkpoints on the card.
    monkeypatch.setenv("CASEBOOK_BACKEND", "peft")
    asked = wanted | {"fast_inference": False, "load_in_4bit": False}
    plain = {name: value for name, value in asked.items() if name != "use_gradient_checkpointing"}
    both = (memory(one, LLAMA, cards()["a100-80"], 256) for one in (asked, plain))
    assert next(both)["activations"] == next(both)["activations"]


def test_what_a_card_or_a_backend_cannot_do_is_a_reason(monkeypatch):
    (said,) = preflight.impossible(settings(profile="a100"), cards()["t4"])
    assert "has no bf16" in said
    monkeypatch.setenv("CASEBOOK_BACKEND", "peft")
    (said,) = preflight.impossible(settings("gsm8k", "a100"), cards()["a100-80"])
    assert "only Unsloth knows load_in_4bit and fast_inference" in said


def test_without_data_and_tokenizer_the_longest_prompt_is_an_upper_bound(monkeypatch, tmp_path):
    wanted = settings("poker", "t4")
    longest, how = preflight.longest_prompt(wanted, QWEN)
    assert how.startswith("from their characters")
    monkeypatch.setenv("CASEBOOK_DATA_DIR", str(tmp_path))
    wanted = settings("math")
    shape = known_shapes()[wanted["model_name_or_path"]]
    longest, how = preflight.longest_prompt(wanted, shape)
    assert longest == wanted["max_seq_length"] - wanted["max_completion_length"]
    assert how.endswith("the data are not here")


# The command


@pytest.mark.parametrize(
    "config",
    [file for profile in OF_PROFILE for file in sorted(paths.CONFIGS.glob(f"*/{profile}*.yaml"))],
    ids=lambda file: f"{file.parent.name}-{file.stem}",
)
def test_every_configuration_for_a_gpu_fits_its_card(config):
    found = preflight.preflight(config, gpu=OF_PROFILE[config.stem.partition("_")[0]])
    assert (found["verdict"], found["reasons"]) == ("fits", [])


@pytest.mark.parametrize(
    ("config", "gpu", "verdict"),
    [
        ("landuse/a100", "a100-40", "does not fit"),
        ("math/a100_qlora", "t4", "does not fit"),
        ("poker/a100", "24", "does not fit"),
        ("math/smol", "t4", "close"),
        ("poker/nano", "t4", "fits"),
    ],
)
def test_the_verdict_is_the_exit_code_and_one_of_three_words(
    config, gpu, verdict, casebook, capsys
):
    code = casebook("preflight", paths.CONFIGS / f"{config}.yaml", "--gpu", gpu, "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], code) == (verdict, int(verdict != "fits"))
    need = found["memory"]
    assert need["low"] < sum(need["parts"].values()) < need["high"]
    assert (need["high"] > need["there"]) == (verdict != "fits")


def test_it_is_printed_with_the_parts_of_the_memory(casebook, capsys):
    assert casebook("preflight", T4, "--gpu", "t4") == 0
    printed = capsys.readouterr().out
    assert "GiB, and there are 14.6" in printed
    assert printed.endswith("fits\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([CONFIG, "--gpu", "rtx"], "unknown GPU 'rtx': known are t4, 24, a100-40"),
        ([CONFIG, "--gpu", "t4", "--measure"], "--measure runs the training here"),
        ([T4], "name one with --gpu"),
        ([CONFIG, "--set", "max_seq_length=40"], "raise max_seq_length to at least 51"),
        ([CONFIG, "--set", "model_name_or_path=nobody/nothing"], "nobody/nothing"),
        ([CONFIG, "--set", "method=sft", "--measure"], "supports only TRL's GRPO"),
    ],
)
def test_what_cannot_be_told_is_one_sentence(arguments, said, casebook, capsys):
    assert casebook("preflight", *arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.slow
def test_measuring_makes_the_first_steps_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = preflight.preflight(paths.CONFIGS / "poker" / "smoke.yaml", measure=True)
    figures = found["measured"]
    assert figures["prompts"] > 4
    for name in ("silent", "truncated", "well_formed", "correct"):
        assert 0 <= figures[name]["low"] <= figures[name]["value"] <= figures[name]["high"] <= 1
    assert figures["seconds"] > 0
    assert "seconds per step" in "\n".join(preflight.lines(found))
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("preflight-")] == []
    assert not (tmp_path / "runs").exists()
