"""Shapes of models: the list against published counts, and any config.json."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from casebook import paths
from casebook.case import CasebookError
from casebook.preflight import shapes
from casebook.preflight.shapes import Shape, UnknownShape, known_shapes, parse_shape, shape_of

ROWS = yaml.safe_load((paths.ROOT / "src/casebook/preflight/models.yaml").read_text())


@pytest.mark.parametrize("name", ROWS)
def test_a_shape_on_the_list_has_as_many_parameters_as_its_page_says(name):
    assert known_shapes()[name].parameters == ROWS[name]["parameters"]


def test_every_model_that_a_gpu_configuration_names_is_on_the_list():
    for file in paths.CONFIGS.glob("*/*.yaml"):
        if file.stem.startswith(("t4", "gpu", "a100")):
            name = yaml.safe_load(file.read_text())["model_name_or_path"]
            assert name in known_shapes(), file


def test_a_shape_is_that_of_the_model_itself():
    from transformers import AutoModelForCausalLM

    shape, where = shape_of("data/nano/poker")
    model = AutoModelForCausalLM.from_pretrained(paths.ROOT / "data/nano/poker")
    assert shape.parameters == model.num_parameters()
    assert where == "config.json of data/nano/poker"


def test_an_adapter_is_counted_as_peft_makes_it():
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    shape, _ = shape_of("data/nano/gsm8k")
    model = AutoModelForCausalLM.from_pretrained(paths.ROOT / "data/nano/gsm8k")
    names = ["q_proj", "v_proj", "down_proj"]
    tuned = get_peft_model(model, LoraConfig(r=8, target_modules=names))
    assert shape.adapter(8, names) == tuned.get_nb_trainable_parameters()[0]


def test_llama_keeps_128_kib_of_keys_and_values_a_token():
    assert known_shapes()["unsloth/Meta-Llama-3.1-8B-Instruct"].kv_bytes(2) == 128 * 1024


def test_a_model_that_is_nowhere_is_not_guessed_at(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UnknownShape, match=r"the shape of nobody/nothing is not known here"):
        shape_of("nobody/nothing")


def test_a_family_that_is_not_counted_is_named():
    with pytest.raises(UnknownShape, match="not for 'mixtral'"):
        parse_shape({"model_type": "mixtral"}, "config.json")


SIZES = st.one_of(st.none(), st.integers(-5, 2**40), st.text(max_size=3), st.booleans())
NAMES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"),
)


@given(
    st.one_of(
        st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=3),
        st.fixed_dictionaries(
            {"model_type": st.just("llama")}, optional=dict.fromkeys(NAMES, SIZES)
        ),
    )
)
def test_any_config_gives_a_shape_or_a_sentence(config):
    try:
        shape = parse_shape(config, "config.json")
    except CasebookError:  # a sentence, and no other error
        return
    assert isinstance(shape, Shape)
    assert min(shape[:8]) > 0


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, '{"model_type": "llama"'])
def test_a_damaged_config_is_named(tmp_path, monkeypatch, content):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(content)
    monkeypatch.setattr(shapes.paths, "ROOT", tmp_path)
    with pytest.raises(CasebookError, match=r"config\.json is damaged"):
        shape_of("model")


def test_a_model_folder_without_a_config_is_named(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.setattr(shapes.paths, "ROOT", tmp_path)
    with pytest.raises(CasebookError, match="cannot be read"):
        shape_of("model")


def test_a_model_that_also_sees_is_read_by_its_text():
    config = json.loads((paths.ROOT / "data/nano/poker/config.json").read_text())
    both = {"model_type": "sees", "text_config": config}
    assert parse_shape(both, "x") == parse_shape(config, "x")
