"""Before and after: the same model with its adapter off and on, resumable, one harness."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from casebook import evaluation, models, training
from casebook.case import CasebookError
from casebook.training import measure
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


@pytest.mark.parametrize("damage", ["", "{}\n", "[1]\n", "\x00\x00\n", '["a", 1, [], "x"]\n'])
def test_lines_of_a_damaged_store_are_written_anew(adapter, config, tmp_path, damage):
    whole = measured(adapter, config, tmp_path)
    (tmp_path / "after" / "test.jsonl").write_text(damage)
    assert measured(adapter, config, tmp_path) == whole


def test_arms_that_share_a_base_have_its_completions(adapter, config, tmp_path, monkeypatch):
    first = measured(adapter, config, tmp_path / "first")
    monkeypatch.setattr(measure, "measure_test", lambda *a: pytest.fail("measured again"))
    before = measure.measure_base(config, None, tmp_path / "second" / "before")
    assert before == first["before"]
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
