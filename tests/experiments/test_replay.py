"""A replay says *same* where nothing changed, and names the first figure where something did.

The proof is by mutation: a source file of a copied checkout is edited, and the command is run.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from casebook import paths, training
from casebook.cli import app
from casebook.experiments import replay
from casebook.records import arms_with_completions, machine, read_record

ROOT = Path(__file__).parents[2]
HERE = {"machine": machine()}
ELSEWHERE = {"machine": machine() | {"processor": "another one"}}
FIGURE = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 100}


def compared(what, recorded, replayed, where=HERE, **more):
    """The comparisons of two trees of figures, on this kind of machine or another."""
    comparer = replay._Comparer({"provenance": where})
    comparer.tree(what, recorded, replayed, **more)
    return comparer.found


# How two figures are compared


def test_equal_figures_are_the_same_and_another_digit_differs():
    assert {c.verdict for c in compared("before/x", FIGURE, dict(FIGURE))} == {"same"}
    found = compared("before/x", FIGURE, FIGURE | {"low": 0.400001})
    first = next(c for c in found if c.verdict != "same")
    assert str(first) == "before/x/low: recorded 0.4, replayed 0.400001"
    assert first.verdict == "differs"


@pytest.mark.parametrize(
    ("what", "then", "now", "verdicts"),
    [
        ("before", {"a": 1}, {}, ["differs"]),
        ("before", {"a": 1}, {"a": 1, "b": 2}, ["same"]),
        ("before", {"a": [1]}, {"a": [1, 2]}, ["same", "differs"]),
        ("config", {"a": 1}, {"a": 1, "b": 2}, ["same", "differs"]),
        ("curve", {"seconds": [1], "step_time": [2]}, {"seconds": [3]}, []),
    ],
)
def test_what_is_gone_new_or_of_the_hour(what, then, now, verdicts):
    assert [c.verdict for c in compared(what, then, now)] == verdicts


@pytest.mark.parametrize(
    ("what", "replayed", "verdict"),
    [
        ("before/greedy_accuracy", 0.51, "same"),  # one row of 100
        ("before/greedy_accuracy", 0.53, "not comparable"),
        ("curve/reward", 0.5004, "same"),
        ("curve/reward", 0.51, "not comparable"),
        ("before/other_prompt_perplexity", 0.5001, "same"),
        ("before/sampled_accuracy", 0.9, None),  # another sample
        ("config/learning_rate", 0.51, "differs"),
    ],
)
def test_on_another_kind_of_machine_nothing_that_depends_on_it_differs(what, replayed, verdict):
    found = compared(what, 0.5, replayed, ELSEWHERE, row=0.01)
    assert [c.verdict for c in found] == [verdict] * bool(verdict)


# A real model


@pytest.fixture
def real(tmp_path, monkeypatch):
    """A record of SmolLM2, on a machine that has not fetched it."""
    monkeypatch.setenv("CASEBOOK_MODELS", str(tmp_path / "models"))
    for name in ("measure_base", "first_steps", "input_digests"):
        monkeypatch.setattr(training, name, lambda *_, name=name: pytest.fail(f"{name} ran"))
    return read_record(paths.RESULTS / "poker" / "smol" / "sound" / "seed1.json")


def test_a_model_that_was_not_fetched_is_told_in_one_sentence(real):
    found = replay.replay_record(real)
    said = "poker/smol/sound/seed1: not comparable: smollm2 is not here: make smol fetches"
    assert str(found).startswith(said)


def test_what_needs_no_model_is_compared_without_it(real):
    real["completions"][3]["correct"] = "edited"
    found = replay.replay_record(real)
    assert found.verdict == "differs"
    assert found.first_difference.what.startswith("test row 3: well formed")


def test_a_run_made_on_a_gpu_is_graded_again(real):
    real["config"]["use_cpu"] = False
    assert replay.replay_record(real).verdict == "regraded"


@pytest.mark.parametrize("arm", arms_with_completions("poker", "smol"))
def test_committed_completions_of_a_real_model_are_graded_and_paid_as_then(arm):
    record = read_record(paths.RESULTS / "poker" / "smol" / arm / "seed0.json")
    comparer = replay._Comparer(record)
    replay._compare_completions(record, comparer)
    assert len(comparer.found) > 100
    assert [found.what for found in comparer.found if found.verdict != "same"] == []


# The command


@pytest.mark.parametrize(
    ("verdicts", "missing", "code"),
    [
        (["reproduces"], "", 0),
        (["reproduces", "differs"], "", 1),
        (["not comparable"], "", 2),
        (["not comparable", "reproduces"], "make smol", 0),
    ],
)
def test_exit_codes(monkeypatch, verdicts, missing, code):
    results = [replay.Replay("poker/nano/grpo/seed0", v, [], missing, 1.0) for v in verdicts]
    monkeypatch.setattr(replay, "replay", lambda *args, **more: results)
    assert CliRunner().invoke(app, ["replay", "poker"]).exit_code == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pokr"], "known are"),
        (["poker", "--profile", "h100"], "unknown profile"),
        (["poker", "--arm", "grop"], "unknown recorded arm of poker 'grop'"),
        (["poker", "--arm", "grpo", "--seed", "9"], "has no record of seed"),
        (["poker", "--profile", "a100"], "there is no record"),
    ],
)
def test_what_cannot_be_replayed_is_one_sentence(arguments, said):
    outcome = CliRunner().invoke(app, ["replay", *arguments])
    assert outcome.exit_code
    assert said in str(outcome.exception)


# The committed records: one arm a case, by several methods, and under a constraint

ARMS = {"poker": "label_trie", "landuse": "label_sft", "gsm8k": "size_tiny", "math": "grpo"}
PACKAGE = "src/casebook"
HARMFUL = {
    "another learning rate": (
        "gsm8k",
        *("configs/gsm8k/nano.yaml", "learning_rate: 4.0e-3", "learning_rate: 5.0e-3"),
    ),
    "other values in the rows": (
        "landuse",
        f"{PACKAGE}/cases/landuse/data.py",
        "[list(map(float, v)) for v",
        "[[2 * float(x) for x in v] for v",
    ),
    "a digit of a record": (
        "gsm8k",
        *("results/gsm8k/nano/size_tiny/seed0.json", '"value": 0.', '"value": 1.'),
    ),
}


@pytest.fixture(scope="session")
def copied(tmp_path_factory):
    """A copy of the checkout that tests may change."""
    root = tmp_path_factory.mktemp("copied") / "checkout"
    for name in ("src", "configs", "data", "results"):
        without = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, root / name, ignore=without)
    for path in [ROOT / "pyproject.toml", *ROOT.glob("requirements*.txt")]:
        shutil.copy(path, root)
    return root


def replayed(root, case):
    """The exit code of `casebook replay` in a checkout, and what it printed."""
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "CASEBOOK_ROOT": str(root)}
    command = [sys.executable, "-m", "casebook.cli", "replay", case, "--arm", ARMS[case]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("case", ARMS)
def test_one_arm_of_each_case_reproduces(case):
    record = read_record(ROOT / "results" / case / "nano" / ARMS[case] / "seed0.json")
    code, printed = replayed(ROOT, case)
    if record["provenance"]["machine"] == machine():
        assert (code, "reproduces" in printed) == (0, True), printed
    assert code != 1, printed


@pytest.mark.heavy
@pytest.mark.parametrize("change", HARMFUL)
def test_what_changes_behaviour_is_caught(copied, change):
    case, file, old, new = HARMFUL[change]
    path = copied / file
    text = path.read_text()
    assert old in text, f"{file} has no {old!r}"
    path.write_text(text.replace(old, new))
    try:
        code, printed = replayed(copied, case)
    finally:
        path.write_text(text)
    assert (code, "differs" in printed) in ((1, True), (2, False)), printed
    record = read_record(ROOT / "results" / case / "nano" / ARMS[case] / "seed0.json")
    assert code == 1 or record["provenance"]["machine"] != machine(), printed
