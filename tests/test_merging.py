"""A plain model of a trained adapter: does it load anywhere, and answer as the adapter does?"""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from casebook import merging, models, paths, pretrained
from casebook.case import CasebookError
from casebook.merging import compare, merge
from casebook.policy import try_policy

COMMITTED = "poker/nano/grpo"


@pytest.mark.parametrize("case", ["poker", "landuse", "gsm8k", "math"])
def test_in_float32_the_merged_model_writes_what_the_adapter_writes(case, tmp_path):
    merged = merge(f"{case}/nano/grpo", tmp_path / "merged")
    rows = compare(f"{case}/nano/grpo", merged, rows=32)
    assert len(rows) == 32
    assert rows["equal"].all()
    assert (rows["policy_strict"] == rows["merged_strict"]).all()


def test_a_base_of_16_bits_is_merged_in_float32(tmp_path):
    """Merged in its own bits it would lose differences as small as a step of learning."""
    run = tmp_path / "adapter"
    shutil.copytree(paths.RESULTS / "poker" / "nano" / "adapter", run)
    card = run / "casebook.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"dtype": "bfloat16"}))
    merged = AutoModelForCausalLM.from_pretrained(merge(run, tmp_path / "merged"))
    adapted, _, _ = models.load_saved(run)
    exact = adapted.to(torch.float32).merge_and_unload()
    for name, weights in exact.state_dict().items():
        assert torch.equal(weights, merged.state_dict()[name]), name


def test_it_loads_without_peft_and_without_the_casebook(tmp_path):
    merged = merge(COMMITTED, tmp_path / "merged")
    model = AutoModelForCausalLM.from_pretrained(merged)
    tokenizer = AutoTokenizer.from_pretrained(merged)
    assert not [name for name, _ in model.named_parameters() if "lora" in name]
    prompt = try_policy(COMMITTED, row=3).prompt
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    written = model.generate(ids, max_new_tokens=32, do_sample=False)[0, ids.shape[1] :]
    text = tokenizer.decode(written, skip_special_tokens=True)
    assert text == try_policy(COMMITTED, row=3).attempts[0].completion


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_16_bits_the_file_is_half_as_large(dtype, tmp_path):
    half = merge(COMMITTED, tmp_path / "half", dtype)
    whole = merge(COMMITTED, tmp_path / "whole")
    model = AutoModelForCausalLM.from_pretrained(half, dtype="auto")
    assert {weights.dtype for weights in model.parameters()} == {getattr(torch, dtype)}
    size = [(folder / "model.safetensors").stat().st_size for folder in (half, whole)]
    assert size[0] < 0.55 * size[1]


def test_a_difference_is_found(tmp_path):
    """The base in the merged model's place writes something else for some of the rows."""
    merged = merge("math/nano/grpo", tmp_path / "merged")
    base = AutoModelForCausalLM.from_pretrained(paths.DATA / "nano" / "math")
    base.save_pretrained(merged)
    rows = compare("math/nano/grpo", merged, rows=32)
    assert not rows["equal"].all()


def test_a_merged_policy_is_asked_as_an_adapter_is(tmp_path):
    merged = merge(COMMITTED, tmp_path / "merged")
    by_both = [try_policy(policy, row=3, base=True).attempts for policy in (merged, COMMITTED)]
    assert by_both[0] == by_both[1]


@pytest.mark.slow
@pytest.mark.skipif(
    not pretrained.MODELS["smollm2"].folder.exists(), reason="SmolLM2 is not here: make smol"
)
def test_an_adapter_of_smollm2_is_merged(tmp_path):
    """Of random weights: a real model's tied embedding and tokenizer outlive the merging."""
    settings = models.read_settings("poker", "smol") | {"max_completion_length": 12}
    settings |= {"use_peft": True, "constraint": "none"}
    model, tokenizer = models.load_base(settings)
    torch.manual_seed(0)
    kind = LoraConfig(r=8, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    kind.init_lora_weights = False  # B is not 0: it changes what the model writes
    model = get_peft_model(model, kind)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            weights.data *= 0.2  # enough to change what it writes, and it still writes
    models.save_policy(model, tokenizer, tmp_path / "adapter", settings)
    merged = merge(tmp_path / "adapter", tmp_path / "merged")
    rows = compare(tmp_path / "adapter", merged, rows=4)
    assert rows["equal"].all()
    assert rows["merged"].str.len().gt(0).all()
    with_base = try_policy(tmp_path / "adapter", row=0, base=True).attempts
    assert with_base[0].completion != with_base[1].completion
    half = merge(tmp_path / "adapter", tmp_path / "half", "bfloat16")
    assert len(compare(tmp_path / "adapter", half, rows=2)) == 2
    size = [(folder / "model.safetensors").stat().st_size for folder in (half, merged)]
    assert size[0] < 0.55 * size[1]


# What goes wrong


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for there in ("mine", "file"):
        with pytest.raises(CasebookError, match="not an empty folder"):
            merge(COMMITTED, tmp_path / there)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "merged").mkdir()
    assert (merge(COMMITTED, tmp_path / "merged") / "model.safetensors").exists()


def test_an_unknown_type_lists_the_known_ones(tmp_path):
    with pytest.raises(CasebookError, match="unknown dtype 'int8': known are float32, bfloat16"):
        merge(COMMITTED, tmp_path / "merged", "int8")


def test_a_stop_leaves_nothing_half_written(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merging, "_save", full)
    with pytest.raises(CasebookError, match="No space left on device"):
        merge(COMMITTED, tmp_path / "merged")
    assert not list(tmp_path.iterdir())


def test_weights_too_large_for_16_bits_are_refused(tmp_path):
    adapter = shutil.copytree(paths.RESULTS / "poker" / "nano" / "adapter", tmp_path / "adapter")
    from safetensors.torch import load_file, save_file

    file = adapter / "adapter_model.safetensors"
    save_file({name: tensor * 10_000 for name, tensor in load_file(file).items()}, file)
    with pytest.raises(CasebookError, match="has values that float16 cannot hold"):
        merge(adapter, tmp_path / "merged", "float16")
    assert not (tmp_path / "merged").exists()


def test_a_base_of_4_bits_is_refused_before_anything_is_loaded(tmp_path):
    adapter = shutil.copytree(paths.RESULTS / "poker" / "nano" / "adapter", tmp_path / "adapter")
    card = (
        (adapter / "casebook.json")
        .read_text()
        .replace('"load_in_4bit": false', '"load_in_4bit": true')
    )
    (adapter / "casebook.json").write_text(card)
    with pytest.raises(CasebookError, match=r"weights of 4 bits.*save_pretrained_merged"):
        merge(adapter, tmp_path / "merged")


@pytest.mark.parametrize("rows", [0, -1])
def test_no_rows_cannot_be_compared(rows, tmp_path):
    merged = merge(COMMITTED, tmp_path / "merged")
    with pytest.raises(CasebookError, match="rows cannot be compared"):
        compare(COMMITTED, merged, rows=rows)


def test_another_case_and_no_model_are_named(tmp_path):
    merged = merge("math/nano/grpo", tmp_path / "merged")
    with pytest.raises(CasebookError, match="was made for math/nano"):
        compare(COMMITTED, merged)
    with pytest.raises(CasebookError, match="holds no merged policy"):
        compare(COMMITTED, tmp_path / "nowhere")
