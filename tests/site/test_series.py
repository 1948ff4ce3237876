import json
import os
import signal
import subprocess
import sys
import time
import types

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from casebook import install, paths
from casebook.case import CasebookError
from casebook.site import series
from casebook.site.colab import install_cell
from casebook.site.normalise import normalise
from casebook.site.notebooks import check_parameters, select

PARAMETERS = 'PROFILE = "nano"\nSEED = 0\nRUNS_DIR = "runs"\nDATA_DIR = ""\nLIMIT = 0'


def write_notebook(folder, name, *code, parameters=PARAMETERS):
    cells = [
        new_markdown_cell(f"# {name}"),
        new_code_cell("import sys", metadata={"tags": ["install"]}),
        new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *map(new_code_cell, code),
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    path = folder / "notebooks" / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


def outputs_of(path):
    cells = nbformat.read(path, as_version=4).cells
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))


# Running


def test_a_series_leaves_executed_copies_and_their_status(checkout, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("RUNS_DIR", "elsewhere")
    asked = "import os\nprint(PROFILE, SEED, RUNS_DIR, os.getcwd(), os.environ['OMP_NUM_THREADS'])"
    write_notebook(checkout, "10_alpha_oracle", asked)
    results = series.execute(profile="smoke", seed=3)
    assert [(r.name, r.status) for r in results] == [("10_alpha_oracle", "ok")]
    told = outputs_of(checkout / "reports/executed/10_alpha_oracle.ipynb")
    assert told == f"smoke 3 elsewhere {checkout} 1\n"
    entry = json.loads((checkout / "reports/execution.json").read_text())["10_alpha_oracle"]
    assert (entry["status"], entry["profile"], entry["seed"]) == ("ok", "smoke", 3)


@pytest.mark.slow
def test_a_failure_skips_the_rest_of_its_case_and_nothing_else(checkout):
    write_notebook(checkout, "10_alpha_oracle", "print('kept')")
    write_notebook(checkout, "11_alpha_rewards", "hands = 3", "raise ValueError('wheel')", "1 + 1")
    write_notebook(checkout, "12_alpha_baseline", "print('never')")
    write_notebook(checkout, "20_beta_oracle", "print('other case')")
    lines, done = [], []
    results = series.execute(log=lines.append, on_done=lambda r: done.append(r.name))
    assert [r.status for r in results] == ["ok", "failed", "skipped", "ok"]
    assert sorted(done) == [r.name for r in results]
    assert (checkout / "reports/failed/11_alpha_rewards.ipynb").exists()
    shown = "\n".join(lines)
    assert "raise ValueError('wheel')\n" in shown
    assert "Traceback" in shown
    assert series.read_status()["11_alpha_rewards"]["error"] == "ValueError: wheel"


def test_a_file_that_a_parameter_names_is_found_from_the_kernels_folder(
    checkout, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path, file = write_notebook(checkout, "10_alpha_oracle"), tmp_path / "my.gpkg"
    file.write_text("a map")
    assert check_parameters([path], {"DATA_DIR": "my.gpkg"})[path] == {"DATA_DIR": str(file)}


@pytest.mark.slow
def test_a_kernel_that_dies_is_a_failure_like_another(checkout):
    write_notebook(checkout, "10_alpha_oracle", "import os\nos._exit(3)")
    (result,) = series.execute()
    assert result.status == "failed"
    assert "died" in result.error.lower()


@pytest.mark.slow
def test_a_series_that_is_stopped_takes_its_children_along(checkout):
    write_notebook(checkout, "10_alpha_oracle", "print('done')")
    slow = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"
    write_notebook(checkout, "11_alpha_rewards", slow)
    write_notebook(checkout, "12_alpha_baseline", "print('later')")
    command = subprocess.Popen(
        [sys.executable, "-m", "casebook.cli", "execute"],
        # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    pid = wait_for(lambda: (checkout / "pid").exists() and (checkout / "pid").read_text())
    with pytest.raises(CasebookError, match=r"executed into .* already: wait"):
        series.execute()
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 130
    assert series.read_status()["11_alpha_rewards"]["status"] == "stopped"
    assert "12_alpha_baseline" not in series.read_status()
    wait_for(lambda: not is_alive(int(pid)))


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
    assert series.execute(in_place=True)[0].status == "ok"
    notebook = nbformat.read(path, as_version=4)
    assert outputs_of(path) == ".\n"
    assert [c.execution_count for c in notebook.cells if c.cell_type == "code"] == [1, 2, 3]
    assert normalise(notebook) == notebook


# Refused before anything runs


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"parameters": {"STEPS": 3}}, "unknown parameter 'STEPS': known are PROFILE, SEED"),
        ({"parameters": {"LIMIT": "all"}}, "the parameter LIMIT is int (by default 0), not 'all'"),
        ({"cases": "11"}, "unknown case or notebook '11': .*known are all, alpha, 10_alpha_oracle"),
        ({"profile": "huge"}, "unknown profile 'huge'"),
        ({"start_from": 50}, "no notebook of all has a number from 50 on"),
        ({"in_place": True, "parameters": {"LIMIT": 3}}, "--in-place writes the committed"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(checkout, options, sentence):
    write_notebook(checkout, "10_alpha_oracle", "1")
    with pytest.raises(CasebookError, match=f"^{sentence.replace('(', '.').replace(')', '.')}"):
        series.execute(**options)
    assert not list((checkout / "reports").iterdir())


def test_selection_by_case_and_number(checkout):
    for name in ("00_start_here", "10_alpha_oracle", "13_alpha_grpo", "20_beta_oracle"):
        write_notebook(checkout, name)

    def selected(*arguments):
        return [path.stem[:2] for path in select(*arguments)]

    assert selected() == ["00", "10", "13", "20"]
    assert selected("start") == ["00"]
    assert selected(["beta", "alpha"]) == ["10", "13", "20"]
    assert selected("alpha", 12) == ["13"]
    assert selected(["notebooks/13_alpha_grpo.ipynb", "0"]) == ["00", "13"]


# Normalising


def executed_notebook():
    widget = "application/vnd.jupyter.widget-view+json"
    return new_notebook(
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
                        data={"text/plain": f"{paths.ROOT}/T_0a1b2_ at 0x7", "image/png": "aGFu"},
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
        },
    )


def test_normalising_leaves_only_what_comes_from_source_and_results():
    clean = normalise(executed_notebook())
    assert [cell.source for cell in clean.cells] == ["# Title", "SEED = 0", "work()", ""]
    assert [cell.get("execution_count") for cell in clean.cells] == [None, 1, 2, None]
    assert set(clean.metadata) == {"kernelspec", "language_info"}
    stream, result = clean.cells[2].outputs
    assert stream.text == "step 2\nruns at ."
    assert result.data == {"text/plain": "T_00002_ at 0x00002", "image/png": "aGFu"}
    assert result.metadata == {"image/png": {"alt": "a hand"}}
    assert result.execution_count == 2
    assert nbformat.validate(clean) is None
    assert normalise(clean) == clean


def test_a_notebook_that_is_too_large_is_refused_by_its_largest_cell():
    notebook = executed_notebook()
    notebook.cells[3].outputs = [new_output("stream", name="stdout", text="x" * 300_000)]
    with pytest.raises(CasebookError, match=r"^300 kB with its outputs.*'work\(\)'$"):
        normalise(notebook)


# The install cell


@pytest.mark.parametrize("variant", ["light", "train"])
def test_outside_colab_the_install_cell_does_nothing(variant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(install_cell(variant), names)
    assert set(names) == {"__builtins__", "sys"}
    assert not list(tmp_path.iterdir())


def test_with_an_address_colab_clones_the_release_once(tmp_path, monkeypatch):
    # Without one it unpacks what was uploaded: tests/colab/test_install_cell.py.
    commands, asked = [], []

    def clone(command):
        commands.append(" ".join(command))
        (tmp_path / "casebook/src/casebook").mkdir(parents=True)

    monkeypatch.setattr(paths, "repository", lambda: "https://github.com/o/r")
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(subprocess, "check_call", clone)
    monkeypatch.setattr(install, "install", lambda *given: asked.append(given))
    for _ in range(2):  # the second kernel starts in Colab's own folder again
        monkeypatch.chdir(tmp_path)
        exec(install_cell("train", "poker"), {})
        assert os.getcwd() == str(tmp_path / "casebook")
    assert commands == ["git clone -q --depth=1 --branch=v0.1.0 https://github.com/o/r casebook"]
    assert asked == [("train", ["train"])] * 2


def test_the_libraries_of_a_case_come_along():
    assert 'install("train", ["train", "landuse"])' in install_cell("train", "landuse")
