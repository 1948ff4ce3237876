import errno
import json
import math
import os
import re
import subprocess
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook import cli, paths
from casebook.case import CasebookError
from casebook.cases import problem_sets

TRAIN = ["train", "--config", str(paths.CONFIGS / "poker" / "smoke.yaml")]


def replace(monkeypatch, module, name, function):
    """Put a module with one function in the place of one that imports torch."""
    stand_in = types.ModuleType(f"casebook.{module}")
    setattr(stand_in, name, function)
    monkeypatch.setitem(sys.modules, f"casebook.{module}", stand_in)
    monkeypatch.setattr(f"casebook.{module}", stand_in, raising=False)
    return stand_in


@pytest.mark.parametrize("command", ["", "train", "nano build", "record check"])
def test_every_command_explains_itself(command, casebook, capsys):
    assert casebook(*command.split(), "--help") == 0
    assert f"Usage: {' '.join(['casebook', command]).strip()} [OPTIONS]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["execute", "pker"], "unknown case or notebook 'pker': known are all, start, poker"),
        (["execute", "-p", "PROFILE=huge"], "unknown profile 'huge'"),
        (["execute", "-p", "SEED"], "'SEED' is not a parameter: write NAME=VALUE"),
        (["experiments", "poker", "--seeds", "0,one"], "--seeds takes whole numbers with commas"),
        (["nano", "build", "pker"], "unknown case 'pker'"),
        (["models", "fetch", "smollm"], "unknown model 'smollm': known are smollm2"),
        (["evaluate", "--case", "math", "--data-dir", "nowhere"], "there is no such folder"),
        (["evaluate", "--case", "poker", "--model", "docs"], "no model folder at docs"),
        (["evaluate", "--case", "poker", "--profile", "t5"], "unknown profile 't5'"),
        (["try", "poker/nano/gpro", "--row", "1"], "poker/nano/gpro contains no policy"),
        (["evaluate", "--case", "poker", "--output", "/proc/no/e.json"], "cannot be written"),
        (["nano", "build", "poker", "--without", "care"], "unknown skill of poker 'care'"),
        (["site", "--output", "/proc/no"], "/proc/no cannot be written"),
        (["experiments", "poker", "--arm", "gpro"], "unknown arm of poker/nano 'gpro'"),
        (["experiments", "landuse", "--profile", "smol"], "made only where --arm names them"),
        ([*TRAIN, "--set", "beta=-1"], "smoke.yaml: beta is -1, and must be a number, at least 0"),
        ([*TRAIN, "--set", "model_name_or_path=data/nano/pokr"], "no model folder at data/nano/p"),
        ([*TRAIN, "--set", "reward_kwargs={correct: {x: 1}}"], "smoke.yaml: reward_kwargs do not"),
        ([*TRAIN, "--set", "seed=&a [*a]"], "]]]]]]], and must be a whole number from 0"),
        ([*TRAIN, "--set", "seed=" + "[" * 5000], "the value of seed is not valid YAML"),
        (["train", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["train", "--config", "x.yaml", "--data-dir", "nowhere"], "nowhere, but there is no such"),
        (["evaluate", "--case", "poker", "--shots", "5"], "unknown variant 'shots5'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments, sentence, casebook, capsys):
    assert casebook(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("casebook: ")
    assert sentence in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "--case", "poker", "--shots", "-1"],
        ["execute", "--jobs", "0"],
        [*TRAIN, "--seed", "-1"],
        [*TRAIN, "--seed", "4294967296"],
        ["trian"],
    ],
)
def test_a_wrong_call_is_exit_code_2(arguments, casebook, capsys):
    assert casebook(*arguments) == 2
    assert "Usage:" in capsys.readouterr().err


def test_a_typing_mistake_is_answered_before_torch_is_imported():
    mistakes = (
        *([*TRAIN, "--set", "bta=1"], [*TRAIN, "--set", "reward_funcs=[corect]"]),
        *(["evaluate", "--case", "poker", "--model", "docs"], ["nano", "build", "pker"]),
        *(["experiments", "poker", "--arm", "gpro"], ["replay", "poker", "--arm", "gpro"]),
        *(["nano", "build", "poker", "--size", "nope"], ["execute", "-p", "SEED=-5"]),
        *(["record", "export", "docs"], ["try", "docs"]),
    )
    code = (
        f"import sys; from casebook import cli\nfor arguments in {mistakes!r}:\n"
        "    sys.argv = ['casebook', *arguments]\n"
        "    try:\n        cli.main()\n    except SystemExit as end:\n        print(end.code)\n"
        "slow = {'torch', 'trl', 'transformers', 'datasets', 'papermill'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["2"] * len(mistakes) + ["[]"]
    assert len(done.stderr.splitlines()) == len(mistakes)


def test_without_a_checkout_one_sentence_says_so(casebook, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(paths, "CONFIGS", tmp_path / "configs")
    assert casebook("execute", "poker") == 2
    assert "there is no checkout here; set CASEBOOK_ROOT" in capsys.readouterr().err
    assert casebook("--version") == 0
    assert re.match(r"casebook \d[\d.]+, commit \w+", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.EROFS, "Read-only file system", "reports/index.html"),
            "Read-only file system: reports/index.html",
        ),
        (RuntimeError("PytorchStreamWriter failed\nat once"), "PytorchStreamWriter failed"),
        (ModuleNotFoundError(name="geopandas"), "geopandas is not installed here: pip install -r"),
    ],
)
def test_what_cannot_be_written_or_imported_is_one_sentence(
    error, sentence, casebook, monkeypatch, capsys
):
    def build_site(output, **_):
        raise error

    replace(monkeypatch, "site", "build_site", build_site)
    assert casebook("site") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


def results_of(*statuses):
    from casebook.site.series import Result

    def execute(*arguments, **options):
        results = [Result(f"1{n}_a", status) for n, status in enumerate(statuses)]
        for result in results:
            arguments[8](result)
        return results

    return execute


@pytest.mark.parametrize(
    ("statuses", "code"), [(["ok", "ok"], 0), (["ok", "failed", "skipped"], 1)]
)
def test_execute_fails_when_a_notebook_did_and_the_pages_are_built(
    statuses, code, casebook, monkeypatch, capsys
):
    built = []
    monkeypatch.setattr("casebook.site.series.execute", results_of(*statuses))
    replace(monkeypatch, "site", "build_site", lambda *_, **__: built.append(1))
    assert casebook("execute", "--site") == code
    assert built
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{statuses.count('ok')} ok, ")


ACCURACIES = ("greedy_accuracy", "sampled_accuracy")
FIGURES = {when: {name: {"value": 0.5} for name in ACCURACIES} for when in ("before", "after")}


def test_train_reads_the_file_with_the_overrides_and_trains(
    casebook, monkeypatch, tmp_path, capsys
):
    asked = {}

    class Run:
        path = tmp_path

        def record(self):
            return FIGURES

    def train(config, output, resume):
        asked.update(config, output=output, resume=resume)
        return Run()

    monkeypatch.setattr(cli, "checked", lambda path, overrides: {"profile": "t4", **overrides})
    monkeypatch.setattr(cli, "check_present", lambda settings: None)
    monkeypatch.setattr(cli, "choose_backend", lambda profile: asked.update(profile=profile))
    training = replace(monkeypatch, "training", "train", train)
    training.read_config = lambda path, overrides: {"path": path, **overrides}
    arguments = f"--config c.yaml --seed 3 --set beta=0.1 --resume --output {tmp_path}"
    assert casebook("train", *arguments.split()) == 0
    assert (asked["seed"], asked["beta"], asked["resume"]) == (3, 0.1, True)
    assert (asked["output"], asked["profile"]) == (tmp_path, "t4")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "greedy_accuracy: 0.500 before, 0.500 after"
    assert lines[-1] == str(tmp_path / "record.json")


def test_evaluate_writes_its_record(casebook, monkeypatch, tmp_path):
    asked = []

    def measure(*arguments, progress):
        asked.extend(arguments)
        return {"case": "math", "drift": math.nan, "weights": {}}

    replace(monkeypatch, "evaluation", "evaluate_to_record", measure)
    arguments = "--case math --profile t4 --limit 7 --seed 3 --shots 3 --output"
    file = tmp_path / "e.json"
    assert casebook("evaluate", *arguments.split(), str(file)) == 0
    assert asked == ["math", None, "t4", "test", 7, 8, 3, "shots3"]
    record = json.loads(file.read_text())
    assert (record["case"], record["drift"], record["provenance"]["model"]) == ("math", None, {})


def test_the_data_folder_is_known_to_all_that_runs_below(casebook, monkeypatch, tmp_path):
    """A relative path counts from where one stands; the notebooks get it as their parameter."""
    asked = []
    monkeypatch.setenv(problem_sets.VARIABLE, "somewhere else")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets").mkdir()
    monkeypatch.setattr("casebook.site.series.execute", lambda *o, **_: asked.extend(o) or [])
    assert casebook("execute", "--data-dir", "sets", "--from", "12") == 0
    assert os.environ[problem_sets.VARIABLE] == str(tmp_path / "sets")
    given = {"DATA_DIR": str(tmp_path / "sets")}
    assert asked[:7] == ["all", "nano", 0, given, 1, 12, False]


# What is typed


@pytest.mark.parametrize("pair", ["SEED", "=3", "A B=1", "A=[1"])
def test_a_pair_that_is_no_parameter_is_refused(pair):
    with pytest.raises(CasebookError):
        cli.parse_parameters([pair])


@given(st.text())
def test_any_text_is_a_parameter_or_a_casebook_error(text):
    try:
        parameters = cli.parse_parameters([f"A={text}"])
    except CasebookError:
        return
    assert list(parameters) == ["A"]
