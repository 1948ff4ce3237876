"""Any tool's log becomes one table; what is no log becomes one sentence."""

import json
import math

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebook import paths
from casebook.case import CasebookError
from casebook.doctor import diagnose, read_log

ROWS = [
    {"step": n, "loss": 0.0, "reward": 0.1 * n, "kl": 0.01, "grad_norm": 0.5 + n}
    for n in range(1, 13)
]
PART = {"rewards/format_reward/mean": 0.25, "rewards/format_reward/std": 0.1}
SUMMARY = {"train_runtime": 9.0, "train_loss": 0.1, "step": 12}
STATE = [*(row | PART for row in ROWS), {"eval_reward": 0.3, "eval_loss": 1.0, "step": 6}, SUMMARY]
QUOTED = [{n: str(v) for n, v in (row | PART).items() if n != "step"} for row in ROWS]
CONSOLE = "\n".join(
    ["loading ... {not a dict} {'model': 'x'}", "  8%|▊ | 1/12 [00:01<00:11]"]
    + [f"\r{row | {'epoch': n / 12}}" for n, row in enumerate(QUOTED)]
    + ["{'train_runtime': '9.0', 'train_loss': '0.1'}"]
)
VERL = "".join(
    f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{r['step']} - actor/pg_loss:0.0 - "
    f"actor/grad_norm:{r['grad_norm']} - critic/score/mean:np.float64({r['reward']}) - "
    f"actor/kl_loss:0.01 - response_length/clip_ratio:0.5 - timing_s/gen:1.0\n"
    for r in ROWS
)
TITLES = ["Step", "Training Loss", "reward", "kl", "rewards / format_reward / mean"]
SHOWN = [TITLES, *([r["step"], 0.0, r["reward"], 0.01, 0.25] for r in ROWS)]
HTML = "".join("<tr>" + "".join(f"<td>{v}</td>" for v in row) + "</tr>" for row in SHOWN)
CELLS = [{"outputs": [{"data": {"text/html": ["<table>", HTML, "</table>"]}}]}, {"source": "x"}]
FRAME = pd.DataFrame(ROWS).rename(columns={"reward": "my run - train/reward"}).assign(**PART)
KINDS = {
    "trainer_state.json": json.dumps({"log_history": STATE, "global_step": 12}),
    **{"train.log": CONSOLE, "misnamed.json": CONSOLE, "verl.txt": VERL},
    "pretty.log": CONSOLE.replace(", '", ",\n '"),
    "run.ipynb": json.dumps({"cells": CELLS}),
    **{"steps.csv": FRAME.to_csv(index=False), "steps.tsv": FRAME.to_csv(index=False, sep="\t")},
    "log.jsonl": "\n".join(json.dumps(row | PART) for row in ROWS) + '\n{"reward": 0.',
    "openrlhf.log": "\n".join(
        f"Global step {r['step']}: reward={r['reward']:.3f}, kl=1.0e-2, loss=0.0" for r in ROWS
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_log_is_read_whoever_wrote_it(name, tmp_path):
    (tmp_path / name).write_text(KINDS[name])
    for path in (tmp_path / name, tmp_path)[: 1 + (name != "misnamed.json")]:
        log = read_log(path)
        assert math.isclose(log.steps["reward"].iloc[-1], 1.2)
        assert (log.file, set(log.steps["kl"])) == (name * (path == tmp_path), {0.01})
        assert log.steps["step"].tolist() == [*range(1, 13)]
        if name not in ("verl.txt", "openrlhf.log"):
            assert set(log.steps["part/format_reward"]) == {0.25}


def test_evaluations_are_kept_apart_and_what_is_not_known_is_named(tmp_path):
    for name in ("trainer_state.json", "verl.txt"):
        (tmp_path / name).write_text(KINDS[name])
    assert read_log(tmp_path / "trainer_state.json").evaluations["eval_reward"].tolist() == [0.3]
    assert read_log(tmp_path / "verl.txt").ignored == ["timing_s/gen"]
    rows = "_step,train/global_step,train/reward,train/loss\n0,10,0.5,NaN\n1,20,0.5,\n"
    (tmp_path / "wandb.csv").write_text(rows)
    log = read_log(tmp_path / "wandb.csv")
    assert (log.steps["step"].tolist(), log.odd["loss"].tolist()) == ([10, 20], [True])


def test_completions_of_trl_give_the_steps_as_well(tmp_path):
    (tmp_path / "completions").mkdir()
    for step in (1, 2):
        texts = {"step": step, "prompt": ["a"] * 4 + ["b"] * 4, "completion": "x", "advantage": 0.0}
        paid = {"correct_reward": [1.0, 0, 0, 0] + [1.0] * 4, "format_reward": 0.5}
        pd.DataFrame(texts | paid).to_parquet(tmp_path / f"completions/completions_{step}.parquet")
    log = read_log(tmp_path)
    assert len(log.completions) == 16
    assert log.steps["silent"].tolist() == [0.5, 0.5]
    assert log.steps["reward"].tolist() == [1.125, 1.125]
    assert {"part/correct_reward", "part/format_reward"} <= set(log.steps)


def test_a_committed_record_is_read_with_its_settings():
    log = read_log(paths.RESULTS / "poker/nano/grpo/seed0.json")
    assert log.settings["num_generations"] > 1
    assert "lenient_accuracy" in log.evaluations
    assert diagnose(log).healthy


SEVERAL_RUNS = "Step,a - reward,b - reward\n1,2,3\n"
NO_LOG = ["", "hi", "{}", "[]", "[1, 2]", '{"loss": 1}', "a,b\n1,2\n", SEVERAL_RUNS]


@pytest.mark.parametrize("content", NO_LOG)
@pytest.mark.parametrize("suffix", [".json", ".csv", ".ipynb", ".log", ".parquet", ".jsonl"])
def test_what_is_no_log_is_told_in_one_sentence(content, suffix, tmp_path):
    (tmp_path / f"x{suffix}").write_text(content)
    for path in (tmp_path / f"x{suffix}", tmp_path, tmp_path / "nothing"):
        with pytest.raises(CasebookError) as caught:
            read_log(path)
        assert "\n" not in str(caught.value)


BITS = st.sampled_from([
    *[b"{'reward': ", b"step:1 - ", b"reward=", b"critic/score/mean:", b"np.float64(", b"\x1b[3m"],
    *[b'{"log_history": [', b'{"reward": 1, "step": ', b"reward,step\n", b"1,2\n", b"<tr><td>"],
    *[b"nan", b"inf", b"1e999", b"-3", b"}", b"]", b"\n", b"\r", b", ", b"\x00", b"\xff", b'"'],
])  # fmt: skip


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(BITS | st.binary(max_size=8), max_size=30), st.sampled_from([*KINDS, "x.parquet"]))
def test_any_bytes_give_a_report_or_one_sentence(tmp_path, bits, name):
    (tmp_path / name).write_bytes(b"".join(bits))
    try:
        diagnosis = diagnose(tmp_path / name)
    except CasebookError:
        return
    json.dumps(diagnosis.to_dict())
    assert str(diagnosis)
