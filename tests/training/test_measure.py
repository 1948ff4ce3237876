"""Before and after: the same model with its adapter off and on, resumable, one harness."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file

from casebook import evaluation, models, paths, training
from casebook.backend import unsloth_chosen
from casebook.case import CasebookError, load_case
from casebook.models import generation
from casebook.records import first_and_last, has_test_figures, machine
from casebook.training import log, loop, measure
from casebook.training.progress import Progress

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


def test_a_base_that_is_loaded_rounds_as_one_whose_adapter_is_off(adapter, config, monkeypatch):
    # Row 117, sample 18 of poker draws a number that lies 4e-8 from the boundary of two tokens: a
    # last layer that could be trained, beside one that is frozen, was enough to tell them apart.
    frozen = []

    def listening(config, model, tokenizer, *more):
        frozen.append(not any(weights.requires_grad for weights in model.parameters()))
        return {}, None

    monkeypatch.setattr(measure, "measure_test", listening)
    monkeypatch.setattr(measure, "kept_before", lambda rows: [])
    monkeypatch.setattr(measure, "_MEASURED", {})
    measure.measure_base(config)
    monkeypatch.setattr(measure, "_MEASURED", {})
    measure.measure_base(config, models.load_saved(adapter)[:2])
    assert frozen == [True, True]


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


def test_a_record_keeps_one_completion_a_row(adapter, config, tmp_path):
    kept = measured(adapter, config, tmp_path)["completions"]
    assert [entry["row"] for entry in kept] == list(range(6))
    assert {entry["decoding"] for entry in kept} == {"sample"}
    json.dumps(kept)


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


DAMAGES = {
    "empty": b"",
    "another object": b"{}\n",
    "too short": b"[1]\n",
    "zeroed": bytes(64),
    "other types": b'["a", 1, [], "x", 2]\n',
    "no text": b"\xff\xfe\x80\n",
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [*(("after/test.jsonl", damage) for damage in DAMAGES)]
    + [(name, "no text") for name in ("before/test.jsonl", "policy")],
)
def test_what_is_damaged_is_written_anew(adapter, config, tmp_path, monkeypatch, name, damage):
    whole = measured(adapter, config, tmp_path)
    monkeypatch.setattr(measure, "_MEASURED", {})
    (tmp_path / name).write_bytes(DAMAGES[damage])
    assert measured(adapter, config, tmp_path) == whole


def test_the_smallest_batch_is_still_known_after_a_stop(adapter, config, tmp_path, monkeypatch):
    monkeypatch.setattr(generation, "batch_that_fits", lambda *_: 4)
    scarce = measured(adapter, config, tmp_path)
    assert (scarce["before"]["batch"], scarce["after"]["batch"]) == (4, 4)
    monkeypatch.setattr(generation, "batch_that_fits", lambda *_: 256)
    store = tmp_path / "after" / "test.jsonl"
    store.write_text("".join(store.read_text().splitlines(keepends=True)[:-3]))
    assert measured(adapter, config, tmp_path) == scarce


def test_arms_that_share_a_base_have_its_completions(adapter, config, tmp_path, monkeypatch):
    first = measured(adapter, config, tmp_path / "first")
    monkeypatch.setattr(measure, "measure_test", lambda *a: pytest.fail("measured again"))
    before, kept = measure.measure_base(config, None, tmp_path / "second" / "before")
    assert (before, kept) == (first["before"], first["completions_before"])
    stores = [tmp_path / name / "before" / "test.jsonl" for name in ("first", "second")]
    assert stores[0].read_text() == stores[1].read_text()


def test_measuring_says_how_far_it_is(adapter, config, tmp_path):
    progress = Quiet("poker/smoke")
    measure.measure(adapter, config, tmp_path, progress)
    assert progress.lines[0] == "poker/smoke: measuring before, 6 of 18 completions"
    assert any("measuring after" in line for line in progress.lines)


def test_what_another_policy_wrote_is_thrown_away(adapter, config, tmp_path):
    whole = measured(adapter, config, tmp_path / "here")
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    tensors = load_file(other / "adapter_model.safetensors")
    save_file({k: 0 * v for k, v in tensors.items()}, other / "adapter_model.safetensors")
    found = measured(other, config, tmp_path / "here")
    assert found["after"] == whole["before"]


# What a record holds


@pytest.mark.slow
def test_a_record_holds_what_it_was_made_from_and_what_was_written(tmp_path, monkeypatch):
    told = iter(["forgotten", 321])
    monkeypatch.setattr(loop, "forget_peak", lambda: next(told))
    monkeypatch.setattr(loop, "peak_mb", lambda: next(told))
    monkeypatch.setattr(measure, "KEPT_ROWS", 5)
    monkeypatch.setattr(measure, "KEPT_BEFORE", 3)
    options = {"max_steps": 1, "save_strategy": "no", "evaluate_every": 0, "train_limit": 16}
    config = training.read_config(SMOKE, FEW | options)
    record = training.train(config, tmp_path / "run").record()
    model = record["provenance"]["model"]
    assert model["weights"] == models.weights_hash(paths.DATA / "nano" / "poker")
    assert (model["name"], model["dtype"]) == ("data/nano/poker", "float32")
    assert model["generator"] == ("unsloth" if unsloth_chosen() else "transformers")
    assert record["provenance"]["machine"] == machine()
    assert record["provenance"]["threads"] == os.environ["OMP_NUM_THREADS"]
    assert record["peak_memory_mb"] == 321
    assert record["inputs"] == training.input_digests(config)
    case = load_case("poker")
    answers = case.load("test", "smoke")["answer"]
    assert [entry["row"] for entry in record["completions"]] == list(range(5))
    assert [entry["row"] for entry in record["completions_before"]] == list(range(3))
    assert "test" not in record
    for entry in (*record["completions_before"], *record["completions"]):
        grade = case.grade(entry["completion"], answers[entry["row"]])
        assert (entry["well_formed"], entry["extracted"]) == (grade.well_formed, grade.answer)
        assert entry["correct"] == grade.correct


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


def test_every_column_of_the_rows_and_the_demonstrations_are_in_their_hashes(monkeypatch, config):
    first, plain = training.input_digests(config), load_case("poker")
    assert set(first["rows"]) == {"train", "validation", "test"}
    columns = plain.load("test", "smoke").column_names
    assert len(columns) > 2
    for column in columns:

        def changed(split, *arguments, column=column, **more):
            rows = plain.load(split, *arguments, **more)
            values = rows[column][:]
            return rows.remove_columns(column).add_column(column, values[::-1])

        monkeypatch.setattr(
            measure, "load_case", lambda name, load=changed: replace(plain, load=load)
        )
        found = training.input_digests(config)
        assert all(found["rows"][split] != first["rows"][split] for split in first["rows"])
        assert found["demonstrations"] == first["demonstrations"]
    fewer = replace(plain, demonstrations=lambda seed: plain.demonstrations(seed + 1))
    monkeypatch.setattr(measure, "load_case", lambda name: fewer)
    found = training.input_digests(config)
    assert found["rows"] == first["rows"]
    assert found["demonstrations"] != first["demonstrations"]
