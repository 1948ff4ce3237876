"""The poker write-up's loop, as the benchmark has it: its rule, its scores, one whole record."""

import json

import pytest
import torch

from casebook.evaluation import token_logps
from casebook.models.decoding import constraint_for


@pytest.fixture(scope="module")
def benchmark(script):
    return script("source_loop")


@pytest.fixture(scope="module")
def loop(benchmark):
    return benchmark.SourceLoop("nano", "4x4", seed=0)


def test_the_rule_is_the_one_by_position(benchmark, loop):
    labels = benchmark.load_case("poker").labels
    rule = constraint_for("position", labels, loop.tokenizer)
    for position in range(7):
        assert sorted(loop.allowed(position)) == rule.allowed([0] * position)


def test_a_completion_scores_the_sum_of_its_tokens_its_end_included(loop):
    prompts = [row["prompt"] for row in loop.rows[:3] for _ in range(2)]
    torch.manual_seed(0)
    sequences, start = loop.generate(prompts)
    end, batch = loop.tokenizer.eos_token_id, []
    for prompt, ids in zip(prompts, sequences[:, start:].tolist(), strict=True):
        ids = ids[: ids.index(end) + 1] if end in ids else ids
        batch.append((loop.tokenizer(prompt).input_ids, ids))
    logps, mask = token_logps(loop.model, batch)
    scored = loop.sequence_logps(sequences, start)
    torch.testing.assert_close(scored.detach(), (logps * mask).sum(1), rtol=1e-4, atol=1e-4)


def test_a_step_moves_the_weights_and_is_timed(benchmark, loop):
    before = [parameter.detach().clone() for parameter in loop.model.parameters()]
    for _ in range(3):  # one group in two has no gradient
        loop.step()
    moved = zip(before, loop.model.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in moved)
    assert {name: len(loop.watch.seconds[name]) for name in benchmark.PHASES} == dict.fromkeys(
        benchmark.PHASES, 3
    )


def test_loops_differ_in_what_is_trained_and_in_how_prompts_are_computed(benchmark):
    for profile in benchmark.PROFILES:
        settings = [benchmark.asked(profile, loop, "4x4") for loop in benchmark.LOOPS]
        found = [(one["use_peft"], one["prompts_once"]) for one in settings]
        assert found == [(False, False), (True, False), (False, True), (True, True)]
        assert {one["num_generations"] for one in settings} == {4}
        for one in settings:
            benchmark.read_config(("poker", profile), one)


@pytest.mark.slow
def test_the_record_has_every_loop(benchmark, tmp_path, capsys, monkeypatch):
    small = benchmark.PROFILES["nano"]._replace(batches={"4x4": (4, 4)})
    monkeypatch.setitem(benchmark.PROFILES, "nano", small)
    output = tmp_path / "record.json"
    benchmark.main(output, seconds=0.1, rounds=1, steps=2, rows=8)
    record = json.loads(output.read_text())
    assert set(record["samples_per_second"]["4x4"]) == {"source", *benchmark.LOOPS}
    assert set(record["times_the_source"]["4x4"]) == set(benchmark.LOOPS)
    for row in record["seconds_of_a_step"]:
        assert sum(row[name] for name in benchmark.SPENT) == pytest.approx(row["step"])
    reached = record["accuracy_at_equal_seconds"]
    assert [row["loop"] for row in reached] == ["base", "source", *benchmark.LOOPS]
    assert all(set(benchmark.RULES) <= set(row) for row in reached)
    assert capsys.readouterr().out.count("samples/s") == 5
