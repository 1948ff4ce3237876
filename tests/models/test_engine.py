"""vLLM inside Unsloth, with a stand-in that remembers what it was asked: no GPU is here."""

import importlib.machinery
import sys
import types
import weakref

import pytest

from casebook import evaluation, models, training
from casebook.case import CasebookError
from casebook.models import engine, generation, load
from casebook.training import measure

SETTINGS = models.read_settings("poker", "smoke")
train = training.train  # brings TRL, which would ask the stand-in for vLLM's version


class Engine:
    """In the place of vLLM: always writes the same four tokens, and sleeps as Unsloth's does."""

    def __init__(self):
        self.calls, self.log, self.model = [], [], None
        asleep = types.SimpleNamespace(enable_sleep_mode=True)
        config = types.SimpleNamespace(model_config=asleep)
        self.llm_engine = types.SimpleNamespace(vllm_config=config)

    def wake_up(self):
        self.log.append("wake")

    def sleep(self, level):
        self.log.append("sleep")

    def generate(self, prompts, sampling_params, lora_request, use_tqdm):
        self.calls.append((prompts, sampling_params, lora_request))
        self.log.append("generate")
        written = [[11, 12, sampling_params[0].stop_token_ids[0], 13]] * len(prompts)
        return [
            types.SimpleNamespace(outputs=[types.SimpleNamespace(token_ids=tuple(ids))])
            for ids in written
        ]


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch):
    monkeypatch.setattr(engine, "_carriers", weakref.WeakSet())
    monkeypatch.setattr(engine, "_engine", None)


@pytest.fixture
def vllm(monkeypatch):
    """Stand-ins for the two libraries; engines that were ended are in its `deleted`."""
    module = types.ModuleType("vllm")
    module.SamplingParams = lambda **fields: types.SimpleNamespace(**fields)
    zoo, utils = types.ModuleType("unsloth_zoo"), types.ModuleType("unsloth_zoo.vllm_utils")
    utils.delete_vllm, module.deleted = lambda llm: module.deleted.append(llm), []
    for name, stand_in in (("vllm", module), ("unsloth_zoo", zoo)):
        monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.setitem(sys.modules, "unsloth_zoo.vllm_utils", utils)
    return module


@pytest.fixture
def policy(vllm):
    """A policy with an adapter and an engine, as Unsloth returns it."""
    model, tokenizer = models.load_policy("poker", "smoke", settings=SETTINGS)
    carried = Engine()
    for part in (model, model.get_base_model()):
        part.vllm_engine, part.fast_generate = carried, carried.generate
        part.load_lora = lambda folder, load_tensors: ("adapter", load_tensors)
        engine.remember(part)
    return model, tokenizer


def test_the_engine_writes_under_the_runs_own_settings(policy):
    model, tokenizer = policy
    settings = SETTINGS | {"temperature": 0.7, "top_p": 0.9, "top_k": 50}
    settings |= {"repetition_penalty": 1.2, "max_completion_length": 9}
    decoding = generation.decoding_of(settings)
    asked = [[5, 6, 7], [8, 9]]
    found = generation.generate(model, tokenizer, asked, keys=[(0, 3, 1), (0, 3, 2)], **decoding)
    ((prompts, parameters, adapter),) = model.vllm_engine.calls
    assert [prompt["prompt_token_ids"] for prompt in prompts] == asked
    one, other = map(vars, parameters)
    ends = generation.end_ids(model, tokenizer)
    expected = {"max_tokens": 9, "temperature": 0.7, "top_p": 0.9, "top_k": 50}
    assert expected.items() <= one.items()
    assert (one["repetition_penalty"], one["stop_token_ids"]) == (1.2, ends)
    assert one["seed"] != other["seed"]  # each completion its own
    assert adapter == ("adapter", True)
    assert model.vllm_engine.log == ["wake", "generate", "sleep"]
    assert [c["ids"][1] for c in found] == [[11, 12, ends[0]]] * 2  # nothing behind the end
    assert [(c["tokens"], c["truncated"]) for c in found] == [(3, False)] * 2


def test_greedy_decoding_and_all_tokens_have_vllms_own_words(policy):
    for temperature in (None, 1.0):
        generation.generate(*policy, [[5, 6]], 8, temperature, keys=[(0, 0, 0)])
    greedy, sampled = (vars(call[1][0]) for call in policy[0].vllm_engine.calls)
    assert greedy["temperature"] == 0.0
    assert "seed" not in greedy
    assert sampled["top_k"] == -1


def test_an_evaluation_is_written_by_the_engine_and_says_so(policy, monkeypatch):
    # Step 0 of math/a100 once wanted 58 GB for `generate` beside vLLM's reserve.
    model, tokenizer = policy
    monkeypatch.setattr(model, "generate", lambda **_: pytest.fail("the model's own generate"))
    measured = evaluation.evaluate(
        model, tokenizer, "poker", "validation", "smoke", limit=3, samples=2
    )
    assert len(measured.rows) == 9
    assert measured.batch == generation.LARGEST_BATCH
    assert models.describe(model, SETTINGS)["generator"] == "vllm"


def test_a_constraint_is_kept_without_the_engine(policy):
    from casebook.models.decoding import constraint_for

    model, tokenizer = policy
    rule = constraint_for("trie", ("high card", "flush"), tokenizer)
    generation.generate(model, tokenizer, [[5, 6]], 4, constraint=rule)
    assert model.vllm_engine.calls == []


class Loader:
    """In the place of Unsloth's class: models that bring an engine where they are asked to."""

    def __init__(self):
        self.engines, self.loads = [], 0

    def from_pretrained(self, model_name, fast_inference, **arguments):
        self.loads += 1
        model, tokenizer = load.PeftLanguageModel.from_pretrained(model_name)
        if fast_inference:
            model.vllm_engine = Engine()
            self.engines.append(model.vllm_engine)
        return model, tokenizer

    def get_peft_model(self, model, **arguments):
        carried = getattr(model, "vllm_engine", None)
        model = load.PeftLanguageModel.get_peft_model(model, **arguments)
        if carried:
            model.vllm_engine, model.fast_generate = carried, carried.generate
            model.load_lora = lambda folder, load_tensors: ("adapter", load_tensors)
        return model


FAST = SETTINGS | {"fast_inference": True, "vllm_gpu_memory_utilization": 0.5}


@pytest.fixture
def loader(monkeypatch):
    monkeypatch.setattr(load, "FastLanguageModel", stand_in := Loader())
    return stand_in


def test_a_second_engine_is_refused_until_the_first_is_freed(loader, vllm):
    # Notebook 13 once loaded one by hand and another to train, and vLLM stopped in an assertion.
    model, _ = models.load_policy("poker", "smoke", settings=FAST)
    with pytest.raises(CasebookError, match=r"a vLLM engine runs in this process already"):
        models.load_policy("poker", "smoke", settings=FAST)
    models.load_base(FAST)  # the base brings none
    models.free_engine()
    assert vllm.deleted == loader.engines
    assert engine.of(model) is None
    assert engine.of(model.get_base_model()) is None
    models.load_policy("poker", "smoke", settings=FAST)
    assert len(loader.engines) == 2


# A whole training whose policy carries an engine


@pytest.fixture
def fast_run(loader, vllm, monkeypatch, tmp_path):
    """Trains the smoke model with an engine; what it was asked to load is in `loader`."""
    vllm.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    monkeypatch.setattr(measure, "_MEASURED", {})
    changes = {"max_steps": 2, "evaluate_every": 1, "evaluate_rows": 4, "test_limit": 6}
    changes |= {"train_limit": 64, "max_completion_length": 16, "fast_inference": True}
    changes |= {"vllm_gpu_memory_utilization": 0.5, "test_samples": 1}
    config = training.read_config(("poker", "smoke"), changes)
    return lambda: train(config, tmp_path / "run")


@pytest.mark.slow
def test_a_run_loads_one_model_measures_it_by_its_engine_and_frees_it(fast_run, loader, vllm):
    # A copy of the base and one of the policy once stood beside vLLM's share, after hours.
    record = fast_run().record()
    (one,) = loader.engines
    assert loader.loads == 1
    assert vllm.deleted == [one]
    assert record["provenance"]["model"]["generator"] == "vllm"
    adapters = [call[2] for call in one.calls]
    before, after = adapters[-4:-2], adapters[-2:]  # greedy and sampled, of all test rows
    assert before == [None, None]
    assert after == [("adapter", True)] * 2
    assert set(adapters[:-4]) == {("adapter", True)}  # on the way the policy is evaluated
    assert record["before"]["greedy_accuracy"]["n"] == 6
