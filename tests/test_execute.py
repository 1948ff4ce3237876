import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import zipfile

import nbformat
import pytest
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
)

from casebook import execute, install, paths
from casebook.case import CasebookError, UnknownName
from casebook.execute import series
from casebook.records.writing import alone_in

PARAMETERS = 'PROFILE = "nano"\nSEED = 0\nRUNS_DIR = "runs"\nDATA_DIR = ""\nLIMIT = 0'


def write_notebook(folder, name, *code, parameters=PARAMETERS):
    cells = [
        new_markdown_cell(f"# {name}"),
        new_code_cell("import sys", metadata={"tags": ["install"]}),
        new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *map(new_code_cell, code),
    ]
    notebook = new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    path = folder / "notebooks" / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


def outputs_of(path):
    cells = nbformat.read(path, as_version=4).cells
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))


# Running


def test_a_series_leaves_executed_copies_and_their_status(checkout):
    write_notebook(checkout, "10_alpha_oracle", "print(PROFILE, SEED)")
    results = execute.execute(profile="smoke", seed=3)
    assert [(r.name, r.status) for r in results] == [("10_alpha_oracle", "ok")]
    assert outputs_of(checkout / "reports/executed/10_alpha_oracle.ipynb") == "smoke 3\n"
    entry = json.loads((checkout / "reports/execution.json").read_text())["10_alpha_oracle"]
    assert (entry["status"], entry["profile"], entry["seed"]) == ("ok", "smoke", 3)


@pytest.mark.slow
def test_kernels_run_at_the_root_in_this_environment_on_one_thread(checkout, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    write_notebook(
        checkout,
        "10_alpha_oracle",
        "import os, sys\nprint(os.getcwd(), sys.executable, os.environ['OMP_NUM_THREADS'])",
    )
    execute.execute()
    told = outputs_of(checkout / "reports/executed/10_alpha_oracle.ipynb").split()
    assert told == [str(checkout), sys.executable, "1"]


@pytest.mark.slow
def test_a_failure_skips_the_rest_of_its_case_and_nothing_else(checkout):
    write_notebook(checkout, "10_alpha_oracle", "print('kept')")
    write_notebook(checkout, "11_alpha_rewards", "hands = 3", "raise ValueError('wheel')", "1 + 1")
    write_notebook(checkout, "12_alpha_baseline", "print('never')")
    write_notebook(checkout, "20_beta_oracle", "print('other case')")
    lines, done = [], []
    results = execute.execute(log=lines.append, on_done=lambda r: done.append(r.name))
    assert [r.status for r in results] == ["ok", "failed", "skipped", "ok"]
    assert sorted(done) == [r.name for r in results]
    assert {p.stem for p in (checkout / "reports/executed").iterdir()} == {
        "10_alpha_oracle",
        "20_beta_oracle",
    }
    assert (checkout / "reports/failed/11_alpha_rewards.ipynb").exists()
    shown = "\n".join(lines)
    assert "    raise ValueError('wheel')\n" in shown
    assert "Traceback" in shown
    error = execute.read_status()["11_alpha_rewards"]["error"]
    assert error == "cell 4 of 5: ValueError: wheel"


def test_what_is_up_to_date_is_not_run_again(checkout, monkeypatch):
    # What the kernel would do does not matter here: the copy is the source.
    def run_nothing(series, source, output, *rest):
        shutil.copy(source, output)

    monkeypatch.setattr(series._Series, "_execute", run_nothing)
    path = write_notebook(checkout, "10_alpha_oracle", "print(1)")

    def reused(**options):
        (result,) = execute.execute(**options)
        assert result.status == "ok"
        return result.reused

    assert not reused()
    assert reused()
    assert not reused(force=True)
    assert not reused(seed=1)
    assert not reused()  # the copy there now is the one of seed 1
    write_notebook(checkout, "10_alpha_oracle", "print(2)")
    assert not reused()
    assert reused()
    (checkout / "data" / "rows.csv").write_text("other data")
    assert not reused()
    copy = checkout / "reports/executed" / path.name
    copy.unlink()
    assert not reused()
    for damaged in (copy.read_bytes()[:100], bytes(100), b"", b"[]", b"{}"):
        copy.write_bytes(damaged)
        assert not reused()
    assert reused()


def test_a_file_that_a_parameter_names_is_an_input(checkout, tmp_path, monkeypatch):
    def run_nothing(series, source, output, *rest):
        shutil.copy(source, output)

    monkeypatch.setattr(series._Series, "_execute", run_nothing)
    write_notebook(checkout, "10_alpha_oracle", parameters=f'{PARAMETERS}\nMAP = ""')
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.gpkg").write_text("a map")

    def run(**parameters):
        (result,) = execute.execute(parameters=parameters)
        return result

    first = run(MAP="my.gpkg")
    assert first.parameters["MAP"] == str(tmp_path / "my.gpkg")  # the kernel is elsewhere
    assert run(MAP="my.gpkg").reused
    (tmp_path / "my.gpkg").write_text("a better map")
    assert not run(MAP="my.gpkg").reused
    assert run(MAP="no.gpkg").parameters["MAP"] == "no.gpkg"
    (checkout / "data" / "shipped.gpkg").write_text("a map")
    shipped = run(MAP="data/shipped.gpkg").parameters["MAP"]
    assert shipped == str(checkout / "data" / "shipped.gpkg")
    (tmp_path / "nano").write_text("a file that happens to have a profile's name")
    assert run(PROFILE="nano").parameters["PROFILE"] == "nano"


@pytest.mark.slow
def test_a_failed_one_is_tried_again_and_its_copy_goes_when_it_succeeds(checkout):
    write_notebook(checkout, "10_alpha_oracle", "1 / 0")
    assert execute.execute()[0].status == "failed"
    assert execute.execute()[0].status == "failed"
    write_notebook(checkout, "10_alpha_oracle", "1 / 1")
    assert execute.execute()[0].status == "ok"
    assert not (checkout / "reports/failed/10_alpha_oracle.ipynb").exists()


@pytest.mark.slow
def test_what_a_process_prints_is_not_taken_for_its_report(checkout, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print(7)\nprint('{}')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    write_notebook(checkout, "10_alpha_oracle", "1 + 1")
    assert execute.execute()[0].status == "ok"


@pytest.mark.slow
def test_a_kernel_that_dies_is_a_failure_like_another(checkout):
    write_notebook(checkout, "10_alpha_oracle", "import os\nos._exit(3)")
    (result,) = execute.execute()
    assert result.status == "failed"
    assert result.error.startswith("cell 3 of 3: ")


@pytest.mark.slow
def test_cases_run_at_the_same_time(checkout):
    meet = "\n".join(
        [
            "import time",
            "from pathlib import Path",
            "Path('{}').touch()",
            "for _ in range(600):",
            "    if Path('{}').exists():",
            "        break",
            "    time.sleep(0.1)",
            "else:",
            "    raise TimeoutError('alone')",
        ]
    )
    write_notebook(checkout, "10_alpha_oracle", meet.format("alpha", "beta"))
    write_notebook(checkout, "20_beta_oracle", meet.format("beta", "alpha"))
    assert [r.status for r in execute.execute(jobs=2)] == ["ok", "ok"]


@pytest.mark.slow
def test_ctrl_c_stops_the_children_and_leaves_the_status_readable(checkout):
    write_notebook(
        checkout,
        "10_alpha_oracle",
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)",
    )
    write_notebook(checkout, "11_alpha_rewards", "print('never')")
    command = subprocess.Popen(
        [sys.executable, "-m", "casebook.cli", "execute"],
        # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    pid = wait_for(lambda: (checkout / "pid").exists() and (checkout / "pid").read_text())
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130
    assert execute.read_status()["10_alpha_oracle"]["status"] == "stopped"
    assert "11_alpha_rewards" not in execute.read_status()
    wait_for(lambda: not is_alive(int(pid)))


@pytest.mark.slow
def test_a_kill_ends_the_children_and_the_next_call_runs_what_is_left(checkout):
    write_notebook(checkout, "10_alpha_oracle", "print('done')")
    slow = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"
    write_notebook(checkout, "11_alpha_rewards", slow)
    command = subprocess.Popen([sys.executable, "-m", "casebook.cli", "execute"])
    pid = wait_for(lambda: (checkout / "pid").exists() and (checkout / "pid").read_text())
    with pytest.raises(CasebookError, match=r"executed into .* already: wait"):
        execute.execute()
    assert execute.read_status()["11_alpha_rewards"]["status"] == "running"
    command.kill()
    command.wait(60)
    wait_for(lambda: not is_alive(int(pid)))
    write_notebook(checkout, "11_alpha_rewards", "print('quick')")
    results = execute.execute()
    assert [(r.status, r.reused) for r in results] == [("ok", True), ("ok", False)]


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise TimeoutError("the condition never came true")


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended but was not waited for is still listed.
    return " Z " not in open(f"/proc/{pid}/stat").read() if os.path.isdir("/proc") else True


@pytest.mark.slow
def test_in_place_writes_the_normalised_copy_back(checkout):
    path = write_notebook(checkout, "10_alpha_oracle", "import os\nprint(os.getcwd())\nSEED")
    assert execute.execute(in_place=True)[0].status == "ok"
    notebook = nbformat.read(path, as_version=4)
    assert outputs_of(path) == ".\n"
    assert [c.execution_count for c in notebook.cells if c.cell_type == "code"] == [1, 2, 3]
    assert execute.normalise(notebook) == notebook
    assert execute.execute(in_place=True)[0].reused


def test_the_longest_case_starts_first(checkout, monkeypatch):
    started = []

    def run_nothing(series, source, output, parameters, name):
        started.append(name)
        shutil.copy(source, output)

    monkeypatch.setattr(series._Series, "_execute", run_nothing)
    write_notebook(checkout, "10_alpha_oracle")
    write_notebook(checkout, "20_beta_oracle", "1", "2")
    write_notebook(checkout, "21_beta_rewards")
    results = execute.execute()
    assert started == ["20_beta_oracle", "21_beta_rewards", "10_alpha_oracle"]
    assert [r.name for r in results] == sorted(started)
    status = execute.read_status()
    status["10_alpha_oracle"]["seconds"] = 1000.0
    (checkout / "reports/execution.json").write_text(json.dumps(status))
    started.clear()
    execute.execute(force=True)
    assert started[0] == "10_alpha_oracle"


def test_a_second_series_in_the_same_checkout_is_refused(checkout):
    write_notebook(checkout, "10_alpha_oracle")
    with (
        alone_in(checkout / "reports", "busy"),
        pytest.raises(CasebookError, match="are being executed into"),
    ):
        execute.execute()
    assert execute.read_status() == {}


# Refused before anything runs


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"parameters": {"STEPS": 3}}, "unknown parameter 'STEPS': known are PROFILE, SEED"),
        ({"parameters": {"LIMIT": "all"}}, "the parameter LIMIT is int (by default 0), not 'all'"),
        ({"parameters": {"LIMIT": True}}, "the parameter LIMIT is int (by default 0), not True"),
        (
            {"cases": "10_alpha_orcle"},
            "unknown case or notebook '10_alpha_orcle': did you mean '10_alpha_oracle'. known are "
            "all, alpha, and numbers 10",
        ),
        ({"cases": "11"}, "unknown case or notebook '11': .*and numbers 10"),
        ({"cases": ["alpha", "beta"]}, "unknown case or notebook 'beta'"),
        ({"cases": ""}, "unknown case or notebook ''"),
        ({"profile": "huge"}, "unknown profile 'huge'"),
        ({"start_from": 50}, "no notebook of all has a number from 50 on"),
        ({"in_place": True, "profile": "smoke"}, "--in-place writes the committed notebooks"),
        ({"in_place": True, "seed": 1}, "--in-place writes the committed notebooks"),
        ({"in_place": True, "parameters": {"LIMIT": 3}}, "--in-place writes the committed"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(checkout, options, sentence):
    write_notebook(checkout, "10_alpha_oracle", "1")
    with pytest.raises(CasebookError, match=f"^{sentence.replace('(', '.').replace(')', '.')}"):
        execute.execute(**options)
    assert not list((checkout / "reports").iterdir())


def test_a_notebook_that_cannot_be_read_is_told_before_anything_runs(checkout):
    write_notebook(checkout, "10_alpha_oracle", "1")
    (checkout / "notebooks/11_alpha_rewards.ipynb").write_text('{"cells": [')
    with pytest.raises(CasebookError, match=r"^11_alpha_rewards\.ipynb is not a readable notebook"):
        execute.execute()
    assert not list((checkout / "reports").iterdir())


def test_a_folder_that_cannot_be_written_is_one_sentence(checkout):
    write_notebook(checkout, "10_alpha_oracle", "1")
    (checkout / "reports/failed").write_text("a file where a folder should be")
    with pytest.raises(CasebookError, match=r"reports cannot be written: File exists"):
        execute.execute()


def test_a_parameter_goes_to_the_notebooks_that_know_it(checkout):
    plain = write_notebook(checkout, "10_alpha_oracle")
    rates = write_notebook(checkout, "13_alpha_grpo", parameters=f"{PARAMETERS}\nRATE = 1.0")
    given = execute.check_parameters([plain, rates], {"SEED": 4, "RATE": 2})
    assert given == {plain: {"SEED": 4}, rates: {"SEED": 4, "RATE": 2.0}}


def test_runs_dir_of_the_environment_reaches_the_notebooks(checkout, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", "elsewhere")
    write_notebook(checkout, "10_alpha_oracle", "print(RUNS_DIR)")
    execute.execute()
    assert outputs_of(checkout / "reports/executed/10_alpha_oracle.ipynb") == "elsewhere\n"


def test_selection_by_case_and_number(checkout):
    names = ["00_start_here", "10_alpha_oracle", "13_alpha_grpo", "20_beta_oracle", "90_claims"]
    for name in names:
        write_notebook(checkout, name)

    def selected(*arguments):
        return [path.stem for path in execute.select(*arguments)]

    assert selected() == names
    assert selected("start") == ["00_start_here"]
    assert selected(["beta", "alpha"]) == ["10_alpha_oracle", "13_alpha_grpo", "20_beta_oracle"]
    assert selected("alpha", 12) == ["13_alpha_grpo"]
    assert selected("claims") == ["90_claims"]
    for name in ("13", "13_alpha_grpo", "13_alpha_grpo.ipynb", "notebooks/13_alpha_grpo.ipynb"):
        assert selected(name) == ["13_alpha_grpo"]
    assert selected(["13", "alpha", "0"]) == names[:3]


def test_a_status_file_that_cannot_be_read_counts_as_none(checkout):
    assert execute.read_status() == {}
    for text in ("{half a fi", "[]", '{"10_alpha_oracle": 3}'):
        (checkout / "reports/execution.json").write_text(text)
        assert execute.read_status() == {}


# Normalising


def executed_notebook():
    widget = "application/vnd.jupyter.widget-view+json"
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# Title", metadata={"collapsed": True}),
            new_code_cell("SEED = 0", execution_count=1, metadata={"tags": ["parameters"]}),
            new_code_cell(
                "SEED = 3", execution_count=2, metadata={"tags": ["injected-parameters"]}
            ),
            new_code_cell(
                "work()",
                execution_count=7,
                metadata={"papermill": {"duration": 3.2}, "execution": {"iopub.status": "now"}},
                outputs=[
                    new_output("stream", name="stdout", text="step 1\rstep 2\n"),
                    new_output("stream", name="stdout", text=f"{paths.ROOT}/runs at {paths.ROOT}"),
                    new_output("display_data", data={widget: {"model_id": "4"}}),
                    new_output(
                        "execute_result",
                        data={"text/plain": f"'{paths.ROOT}/results'", "image/png": "aGFuZA=="},
                        metadata={"image/png": {"alt": "a hand"}},
                        execution_count=7,
                    ),
                ],
            ),
            new_code_cell(""),
        ],
        metadata={
            "papermill": {"start_time": "now"},
            "widgets": {"state": {}},
            "language_info": {"name": "python", "version": "3.11.7"},
            "accelerator": "GPU",
        },
    )
    return notebook


def test_normalising_leaves_only_what_comes_from_source_and_results():
    before = executed_notebook()
    clean = execute.normalise(before)
    assert [cell.source for cell in clean.cells] == ["# Title", "SEED = 0", "work()", ""]
    assert [cell.id for cell in clean.cells] == [
        cell.id for cell in before.cells if cell.source != "SEED = 3"
    ]
    assert [cell.get("execution_count") for cell in clean.cells] == [None, 1, 2, None]
    assert all(set(cell.metadata) <= {"tags"} for cell in clean.cells)
    assert set(clean.metadata) == {"kernelspec", "language_info", "accelerator"}
    stream, result = clean.cells[2].outputs
    assert stream.text == "step 2\nruns at ."
    assert result.data == {"text/plain": "'results'", "image/png": "aGFuZA=="}
    assert result.metadata == {"image/png": {"alt": "a hand"}}
    assert result.execution_count == 2
    assert nbformat.validate(clean) is None


def test_what_is_folded_stays_folded():
    folded = {"tags": ["hide-input"], "jupyter": {"source_hidden": True}}
    notebook = new_notebook(cells=[new_code_cell("plots.show(figure)", metadata=folded)])
    notebook.cells[0].metadata["execution"] = {"iopub.status": "now"}
    assert execute.normalise(notebook).cells[0].metadata == folded


def test_normalising_twice_changes_nothing_more():
    once = execute.normalise(executed_notebook())
    assert execute.normalise(once) == once


def test_cells_without_ids_get_stable_ones():
    notebook = executed_notebook()
    for cell in notebook.cells:
        cell.id = ""
    ids = [cell.id for cell in execute.normalise(notebook).cells]
    assert ids == ["cell-00", "cell-01", "cell-02", "cell-03"]


def test_a_notebook_that_is_too_large_is_refused_by_its_largest_cell():
    notebook = executed_notebook()
    notebook.cells[3].outputs = [new_output("stream", name="stdout", text="x" * 300_000)]
    with pytest.raises(CasebookError, match=r"^300 kB with its outputs.*'work\(\)'$"):
        execute.normalise(notebook)


# The install cell


class Colab:
    """Runs an install cell on a pretended Colab; git is not run, and nothing is installed."""

    def __init__(self, monkeypatch, folder):
        self.commands, self.asked, self.folder, self.monkeypatch = [], [], folder, monkeypatch
        monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
        monkeypatch.setattr(sys, "path", list(sys.path))
        self.call = subprocess.check_call
        monkeypatch.setattr(subprocess, "check_call", self.called)
        monkeypatch.setattr(install, "install", lambda *asked: self.asked.append(asked))
        self.restart()

    def restart(self):
        """A new kernel: it starts in Colab's own folder."""
        self.monkeypatch.chdir(self.folder)

    def upload(self):
        with zipfile.ZipFile(self.folder / "casebook.zip", "w") as file:
            file.writestr("src/casebook/__init__.py", "")

    def called(self, command):
        self.commands.append(" ".join(command))
        if command[0] == "git":
            (self.folder / "casebook/src/casebook").mkdir(parents=True)
        else:
            self.call(command)

    def run(self, variant, case=None):
        exec(execute.install_cell(variant, case), {})
        return self.commands


@pytest.mark.parametrize("variant", ["light", "train"])
def test_outside_colab_the_install_cell_does_nothing(variant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(execute.install_cell(variant), names)
    assert set(names) == {"__builtins__", "sys"}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("variant", ["light", "train"])
@pytest.mark.parametrize("address", ["", "https://github.com/an-organisation/rlvr-casebook"])
def test_the_install_cell_is_short_and_narrow(variant, address, monkeypatch):
    monkeypatch.setattr(paths, "repository", lambda: address)
    lines = execute.install_cell(variant).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 88
    assert not any("@" in line for line in lines)


def test_without_an_address_colab_unpacks_what_was_uploaded(tmp_path, monkeypatch, capsys):
    colab = Colab(monkeypatch, tmp_path)
    monkeypatch.setattr(paths, "repository", lambda: "")
    with pytest.raises(SystemExit, match=r"git archive --format=zip --output casebook\.zip HEAD"):
        colab.run("light")
    assert "Upload casebook.zip" in capsys.readouterr().out
    colab.upload()
    assert colab.run("light") == ["unzip -qo casebook.zip -d casebook"]
    assert os.getcwd() == str(tmp_path / "casebook")
    assert sys.path[0] == str(tmp_path / "casebook/src")


@pytest.mark.parametrize("address", ["", "https://github.com/o/r"])
def test_the_install_cell_can_be_run_again_and_after_a_restart(address, tmp_path, monkeypatch):
    # unzip and git clone both fail where the folder is there; people restart when memory runs out.
    colab = Colab(monkeypatch, tmp_path)
    monkeypatch.setattr(paths, "repository", lambda: address)
    colab.upload()
    for restarted in (False, False, True, True):
        if restarted:
            colab.restart()
        colab.run("train", "poker")
        assert os.getcwd() == str(tmp_path / "casebook")
    assert len(colab.commands) == 1
    assert colab.asked == [("train", ["train"])] * 4
    assert sys.path.count(str(tmp_path / "casebook/src")) == 1


def test_with_an_address_colab_clones_the_release_once(tmp_path, monkeypatch):
    colab = Colab(monkeypatch, tmp_path)
    monkeypatch.setattr(paths, "repository", lambda: "https://github.com/o/r")
    (first, *_) = colab.run("light")
    assert first == "git clone -q --depth=1 --branch=v0.1.0 https://github.com/o/r casebook"
    count = len(colab.commands)
    again = colab.run("light")[count:]
    assert not any("git" in command for command in again)


def test_install_cells_are_written_and_no_notebook_asks_for_a_gpu(checkout):
    # By default none needs one: a GPU was once asked for, and idled, on a limited quota.
    light = write_notebook(checkout, "10_alpha_oracle")
    train = write_notebook(checkout, "13_alpha_grpo")
    assert execute.write_install_cells() == [light, train]
    assert execute.write_install_cells() == []
    light, train = (nbformat.read(path, as_version=4) for path in (light, train))
    assert light.cells[1].source == execute.install_cell("light")
    assert train.cells[1].source == execute.install_cell("train")
    for notebook in (light, train):
        assert not {"accelerator", "colab"} & set(notebook.metadata)


def test_a_notebook_without_an_install_cell_is_refused(checkout):
    path = write_notebook(checkout, "10_alpha_oracle")
    notebook = nbformat.read(path, as_version=4)
    del notebook.cells[1]
    nbformat.write(notebook, path)
    with pytest.raises(CasebookError, match=r"^10_alpha_oracle\.ipynb has 0 cells tagged"):
        execute.write_install_cells()


def test_a_case_with_libraries_of_its_own_brings_them_along():
    extras = {v: execute.install_cell(v, "landuse") for v in ("light", "train")}
    assert 'install("light", ["landuse"])' in extras["light"]
    assert 'install("train", ["train", "landuse"])' in extras["train"]
    assert execute.install_cell("light", "poker") == execute.install_cell("light")


def test_there_are_two_install_cells():
    with pytest.raises(UnknownName, match="known are light, train"):
        execute.install_cell("full")


# Rebuilding pages


def test_requests_during_a_build_become_one_more_build():
    began, go, builds = threading.Event(), threading.Event(), []

    def build():
        builds.append(1)
        began.set()
        assert go.wait(30)

    rebuilder = execute.Rebuilder(build, rest=0)
    rebuilder.request(None)
    assert began.wait(30)
    began.clear()
    for _ in range(5):
        rebuilder.request(None)
    go.set()
    assert began.wait(30)
    rebuilder.close()
    assert len(builds) == 2


def test_between_two_builds_is_a_rest_that_closing_ends():
    built = threading.Semaphore(0)
    rebuilder = execute.Rebuilder(built.release, rest=600)
    rebuilder.request(None)
    assert built.acquire(timeout=30)
    rebuilder.request(None)
    assert not built.acquire(timeout=0.2)
    rebuilder.close()


def test_a_build_that_fails_is_told_and_the_next_one_tried():
    told, tried = [], threading.Semaphore(0)

    def build():
        tried.release()
        raise RuntimeError("no theme")

    rebuilder = execute.Rebuilder(build, told.append, rest=0)
    for _ in range(2):
        rebuilder.request(None)
        assert tried.acquire(timeout=30)
    rebuilder.close()
    assert told == ["the pages could not be rebuilt: no theme"] * 2
