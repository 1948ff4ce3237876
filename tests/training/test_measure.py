"""Before and after: the same model with its adapter off and on, resumable, one harness."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file

from casebook import evaluation, models, training
from casebook.case import CasebookError, load_case
from casebook.records import first_and_last, has_test_figures
from casebook.training import log, measure
from casebook.training.progress import Progress

pytestmark = pytest.mark.slow
SMOKE = ("poker", "smoke")
FEW = {"test_limit": 6, "test_samples": 2}


class Quiet(Progress):
    def say(self, line):
        self.lines = [*getattr(self, "lines", []), line]


@pytest.fixture(autouse=True)
def nothing_shared(monkeypatch):
    monkeypatch.setattr(measure, "_MEASURED", {})


@pytest.fixture(scope="module")
def config():
    return training.read_config(SMOKE, FEW)


@pytest.fixture(scope="module")
def adapter(config, tmp_path_factory):
    """A saved policy that has moved away from its base."""
    model, tokenizer = models.load_policy("poker", "smoke", settings=config.settings)
    torch.manual_seed(0)
    for name, weights in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.1)
    folder = tmp_path_factory.mktemp("policy") / "adapter"
    models.save_policy(model, tokenizer, folder, config.settings)
    return folder


def measured(adapter, config, folder):
    return measure.measure(adapter, config, folder, Quiet("run"))


def test_before_is_the_base_and_after_the_policy(adapter, config, tmp_path):
    found = measured(adapter, config, tmp_path)
    base, _ = measure.measure_test(config, *models.load_base(config.settings))
    policy, rows = measure.measure_test(config, *models.load_saved(adapter)[:2])
    assert found["before"] == base
    assert found["after"] == policy
    assert base != policy
    assert found["completions"] == measure.kept_rows(rows)


def test_before_and_after_are_one_model_whose_adapter_is_never_merged(
    adapter, config, tmp_path, monkeypatch
):
    loaded, written, plain = [], [], evaluation.generate_all

    def listening(model, *arguments, **decoding):
        layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer)]
        assert not any(layer.merged for layer in layers)
        written.append((model, {layer.disable_adapters for layer in layers}))
        return plain(model, *arguments, **decoding)

    def loading(folder):
        loaded.append(folder)
        return models.load_saved(folder)

    monkeypatch.setattr(evaluation, "generate_all", listening)
    monkeypatch.setattr(measure, "load_saved", loading)
    monkeypatch.setattr(measure, "load_base", lambda settings: pytest.fail("loaded a base"))
    measured(adapter, config, tmp_path)
    assert loaded == [adapter]
    assert len({id(model) for model, _ in written}) == 1
    assert [disabled for _, disabled in written] == [{True}] * 2 + [{False}] * 2


def test_after_all_weights_before_is_a_fresh_base(config, tmp_path):
    changes = {**FEW, "use_peft": False}
    whole = training.read_config(SMOKE, changes)
    model, tokenizer = models.load_policy("poker", "smoke", settings=whole.settings)
    with torch.no_grad():
        model.lm_head.weight.mul_(-1)
    models.save_policy(model, tokenizer, tmp_path / "policy", whole.settings)
    found = measured(tmp_path / "policy", whole, tmp_path / "measured")
    base, _ = measure.measure_test(whole, *models.load_base(whole.settings))
    assert found["before"] == base
    assert found["after"]["other_prompt_perplexity"] != base["other_prompt_perplexity"]


def test_a_record_keeps_what_the_base_wrote_with_its_prompt_and_answer(
    adapter, config, tmp_path, monkeypatch
):
    monkeypatch.setattr(measure, "KEPT_BEFORE", 3)
    found = measured(adapter, config, tmp_path)
    before, after = found["completions_before"], found["completions"]
    asked = load_case("poker").load("test", "smoke")
    assert [entry["row"] for entry in before] == [entry["row"] for entry in after][:3] == [0, 1, 2]
    assert [entry["prompt"] for entry in before] == asked["prompt"][:3]
    assert [entry["answer"] for entry in before] == asked["answer"][:3]
    assert [e["completion"] for e in before] != [e["completion"] for e in after[:3]]
    assert [entry["row"] for entry in after] == list(range(6))
    assert {entry["decoding"] for entry in after} == {"sample"}
    json.dumps(before)


def test_a_measurement_goes_on_where_a_stop_left_it(adapter, config, tmp_path, monkeypatch):
    whole = measured(adapter, config, tmp_path / "whole")
    written, plain = [], evaluation.generate_all

    def stopping(*arguments, **decoding):
        for size, numbers, completions in plain(*arguments, **decoding):
            if len(written) == 3:
                raise KeyboardInterrupt
            written.append(numbers)
            yield size, numbers, completions

    monkeypatch.setattr(measure, "_MEASURED", {})
    monkeypatch.setattr(evaluation, "generate_all", stopping)
    with pytest.raises(KeyboardInterrupt):
        measured(adapter, config, tmp_path / "cut")
    half = tmp_path / "cut" / "after" / "test.jsonl"
    half.write_text(half.read_text()[:-4])  # a kill in the middle of a line
    asked = []

    def counting(model, tokenizer, prompts, *arguments, **decoding):
        asked.append(len(prompts))
        return plain(model, tokenizer, prompts, *arguments, **decoding)

    monkeypatch.setattr(measure, "_MEASURED", {})
    monkeypatch.setattr(evaluation, "generate_all", counting)
    assert measured(adapter, config, tmp_path / "cut") == whole
    assert sum(asked) == 1 + 12  # the line that was cut, and all samples of the policy


def test_a_store_of_another_evaluation_is_refused(adapter, config, tmp_path):
    measured(adapter, config, tmp_path)
    fewer = training.read_config(SMOKE, FEW | {"test_limit": 3})
    with pytest.raises(CasebookError, match="another evaluation"):
        measured(adapter, fewer, tmp_path)


def test_what_another_policy_wrote_is_thrown_away(adapter, config, tmp_path):
    whole = measured(adapter, config, tmp_path / "here")
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    tensors = load_file(other / "adapter_model.safetensors")
    save_file({k: 0 * v for k, v in tensors.items()}, other / "adapter_model.safetensors")
    assert measured(other, config, tmp_path / "here")["after"] == whole["before"]


# What a record holds


@pytest.mark.slow
def test_a_run_that_chooses_a_setting_touches_no_test_row(tmp_path, monkeypatch):
    asked, plain = [], evaluation.evaluate

    def listening(*arguments, split, **more):
        asked.append(split)
        return plain(*arguments, split=split, **more)

    for module in (log, measure):
        monkeypatch.setattr(module, "evaluate", listening)
    options = {"max_steps": 1, "save_strategy": "no", "train_limit": 16, "measure": "validation"}
    options |= {"evaluate_every": 1, "evaluate_rows": 4}
    config = training.read_config(SMOKE, FEW | options)
    run = training.train(config, tmp_path / "run")
    record = run.record()
    assert asked == ["validation"] * 2
    assert [record[name] for name in ("test", "before", "after")] == [None] * 3
    assert not (run.path / "measured").exists()
    assert not has_test_figures(record)
    assert first_and_last(record, "greedy_accuracy") == tuple(
        record["validation"]["greedy_accuracy"]
    )


@pytest.mark.parametrize("changed", ["prompt", "answer"])
def test_every_column_of_the_rows_is_in_their_hashes(changed, monkeypatch, config):
    first, plain = training.input_digests(config), load_case("poker")

    def load(split, *arguments, **more):
        rows = plain.load(split, *arguments, **more)
        return rows.remove_columns(changed).add_column(changed, rows[changed][::-1])

    monkeypatch.setattr(measure, "load_case", lambda name: replace(plain, load=load))
    found = training.input_digests(config)
    assert all(found["rows"][split] != first["rows"][split] for split in first["rows"])
    assert found["demonstrations"] == first["demonstrations"]


def test_clusters_are_those_of_the_rows_that_are_measured_whatever_the_seed():
    clusters = {}
    for seed in (0, 1):
        config = training.read_config(("landuse", "smoke"), {"seed": seed})
        clusters[seed] = training.input_digests(config)["clusters"]
    where = load_case("landuse").load("test")["landscape"]
    of = dict(zip(clusters[0], where, strict=True))
    assert [of[number] for number in clusters[1]] == where
    assert 50 < len(of) < 100


@pytest.mark.parametrize("damage", [b"", b"[1]\n", b"\xff\xfe\x80\n"])
def test_what_is_damaged_is_written_anew(adapter, config, tmp_path, monkeypatch, damage):
    whole = measured(adapter, config, tmp_path)
    monkeypatch.setattr(measure, "_MEASURED", {})
    (tmp_path / "after" / "test.jsonl").write_bytes(damage)
    assert measured(adapter, config, tmp_path) == whole
