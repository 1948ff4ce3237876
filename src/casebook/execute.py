"""Run the notebooks headless, in order, and keep what succeeded.

The notebooks of a case build on one another and run one after the other; cases do not and may
run at the same time. Each notebook is one process (and its kernel another), so that what it
held is given back when it ends. What comes of it:

    reports/executed/13_poker_grpo.ipynb   the executed copy of a notebook that succeeded
    reports/failed/13_poker_grpo.ipynb     the copy of one that failed, up to the failing cell
    reports/execution.json                 for each notebook: status, seconds, parameters, error

A notebook whose executed copy was made from the same source, parameters, code and data is not
run again. Committed notebooks are the normalised executed copies of one such run (`normalise`).
"""

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
import yaml

from casebook import __version__, paths
from casebook.case import PROFILES, CasebookError, check_name
from casebook.records import write_json

STAGES = ("oracle", "rewards", "baseline", "grpo", "analysis")
START = "start"  # what the notebooks before the cases (00 to 09) are called together
LARGEST = 300_000  # bytes of a committed notebook
HEARTBEAT = 15  # seconds between two lines about a notebook that is running
DONE, FAILED, SKIPPED, RUNNING, STOPPED = "ok", "failed", "skipped", "running", "stopped"


@dataclass
class Result:
    """What came of one notebook; the entries of `reports/execution.json`.

    Attributes:
        name: the notebook's file name without `.ipynb`.
        status: `ok`, `failed`, `skipped` (an earlier one of its case failed), `running` or
            `stopped` (by the user).
        seconds: wall time of the run.
        started: when, in UTC.
        profile, seed, parameters: what it was run with.
        digest: of its source, parameters, code and data, files that parameters name included;
            the same digest is not run again.
        error: for a failed one, one line: the error and the cell it stopped in.
        reused: the executed copy of an earlier call was kept (not in the file).
    """

    name: str
    status: str = RUNNING
    seconds: float = 0.0
    started: str = ""
    profile: str = ""
    seed: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    digest: str = ""
    error: str = ""
    reused: bool = False


def execute(
    cases: str | Iterable[str] = "all",
    profile: str = "nano",
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    jobs: int = 1,
    start_from: int = 0,
    in_place: bool = False,
    force: bool = False,
    on_done: Callable[[Result], None] = lambda result: None,
    log: Callable[[str], None] = print,
) -> list[Result]:
    """Execute the notebooks of some cases and keep the copies that succeeded.

    Args:
        cases: `"all"`, or names of cases; `"start"` is the notebooks before them.
        profile: their `PROFILE`.
        seed: their `SEED`.
        parameters: more of their parameters; each must be known to at least one notebook, and
            goes to those that know it.
        jobs: how many cases run at the same time.
        start_from: only notebooks with this number or a higher one.
        in_place: write the normalised copies back into `notebooks/` and the pictures into
            `figures/`; only with the committed parameters, profile `nano` and seed 0.
        force: run again what is up to date.
        on_done: called with each result as it is known, one call at a time.
        log: called with each line of progress.

    Returns:
        One result for each notebook, in order.

    Raises:
        CasebookError: before anything runs, for an unknown case, profile or parameter, a value
            of the wrong type, or nothing to run; later, where `reports/` cannot be written.
    """
    check_name("profile", profile, PROFILES)
    if in_place and (profile != "nano" or seed or parameters):
        raise CasebookError(
            "--in-place writes the committed notebooks: profile nano, seed 0, no parameters"
        )
    if in_place:
        for path in write_install_cells():
            log(f"{path.name}: install cell written")
    notebooks = select(cases, start_from)
    asked = {"PROFILE": profile, "SEED": seed} | _found_files(parameters or {})
    if "RUNS_DIR" in os.environ and not in_place:
        asked.setdefault("RUNS_DIR", os.environ["RUNS_DIR"])
    given = check_parameters(notebooks, asked)
    check_name("profile", asked["PROFILE"], PROFILES)
    series = _Series(in_place, force, on_done, log)
    groups: dict[str, list[Path]] = {}
    for notebook in notebooks:
        groups.setdefault(group_of(notebook), []).append(notebook)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        futures = [pool.submit(series.run, group, given) for group in groups.values()]
        try:
            return [result for future in futures for result in future.result()]
        except BaseException as error:
            series.stop()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, OSError):
                raise CasebookError(
                    f"stopped, {paths.REPORTS} cannot be written: {error.strerror or error}; "
                    "what was done so far is kept there"
                ) from error
            raise


def select(cases: str | Iterable[str] = "all", start_from: int = 0) -> list[Path]:
    """The notebooks of some cases from a number on, in order.

    Raises:
        UnknownName: a case without notebooks; the message lists those that have some.
        CasebookError: no notebook is left.
    """
    found = sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    names = [cases] if isinstance(cases, str) else list(cases)
    known = list(dict.fromkeys(group_of(notebook) for notebook in found))
    for name in names:
        check_name("case", name, ["all", *known])
    chosen = [
        notebook
        for notebook in found
        if ("all" in names or group_of(notebook) in names) and number_of(notebook) >= start_from
    ]
    if not chosen:
        raise CasebookError(f"no notebook of {', '.join(names)} has a number from {start_from} on")
    return chosen


def number_of(notebook: Path) -> int:
    """The number a notebook's file name begins with.

    >>> number_of(Path("13_poker_grpo.ipynb"))
    13
    """
    return int(notebook.stem[:2])


def stage_of(notebook: Path) -> str | None:
    """The stage a notebook's file name ends with, if it belongs to a case.

    >>> stage_of(Path("13_poker_grpo.ipynb")), stage_of(Path("00_start_here.ipynb"))
    ('grpo', None)
    """
    stage = notebook.stem.rpartition("_")[2]
    return stage if stage in STAGES else None


def group_of(notebook: Path) -> str:
    """What a notebook runs together with: its case, `"start"`, or else itself.

    >>> group_of(Path("13_poker_grpo.ipynb")), group_of(Path("00_start_here.ipynb"))
    ('poker', 'start')
    """
    if number_of(notebook) < 10:
        return START
    name = notebook.stem[3:]
    return name.removesuffix(f"_{stage_of(notebook)}")


def parse_parameters(pairs: Iterable[str]) -> dict[str, Any]:
    """Parameters as they are typed, `NAME=VALUE` with the value in YAML.

    Raises:
        CasebookError: no `=`, or a value that is not YAML.

    >>> parse_parameters(["SEED=3", "RATES=[1e-3, 2]", "NOTE=two words"])
    {'SEED': 3, 'RATES': [0.001, 2], 'NOTE': 'two words'}
    """
    parameters = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise CasebookError(f"{pair!r} is not a parameter: write NAME=VALUE")
        try:
            parameters[name] = _numbers(yaml.safe_load(text))
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or "not YAML"
            raise CasebookError(f"the value of {name} cannot be read ({problem}): {text}") from None
    return parameters


def check_parameters(
    notebooks: Iterable[Path], parameters: Mapping[str, Any]
) -> dict[Path, dict[str, Any]]:
    """For each notebook, those of `parameters` that its parameters cell names.

    Raises:
        UnknownName: a parameter that no notebook has; the message lists those there are.
        CasebookError: a value of another type than the default, or a notebook that cannot be
            read.
    """
    defaults = {path: _defaults(path) for path in notebooks}
    known = list(dict.fromkeys(name for names in defaults.values() for name in names))
    for name in parameters:
        check_name("parameter", name, known)
    return {
        path: {
            name: _typed(name, value, own[name])
            for name, value in parameters.items()
            if name in own
        }
        for path, own in defaults.items()
    }


def _found_files(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, a file's path made absolute: it may count from here or from the checkout."""
    found = dict(parameters)
    for name, value in parameters.items():
        # A word without an ending, such as a profile's name, is never meant as a file.
        if isinstance(value, str) and Path(value).suffix:
            places = (Path(value).resolve(), paths.ROOT / value)
            found[name] = next((str(place) for place in places if place.is_file()), value)
    return found


def _defaults(notebook: Path) -> dict[str, str]:
    """The names of a notebook's parameters, and their defaults as they stand in the cell."""
    import papermill

    try:
        parameters = papermill.inspect_notebook(str(notebook))
    except Exception as error:  # papermill, nbformat and json each have their own
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CasebookError(f"{notebook.name} is not a readable notebook: {reason}") from error
    return {name: parameter["default"] for name, parameter in parameters.items()}


def read_status() -> dict[str, dict[str, Any]]:
    """The contents of `reports/execution.json`: name -> the fields of `Result`; empty: none."""
    try:
        status = json.loads(_status_file().read_text())
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


class _Series:
    """One call of `execute`: its children, and the status file they share."""

    def __init__(self, in_place, force, on_done, log):
        self.in_place, self.force, self.on_done, self.log = in_place, force, on_done, log
        self.material = _material()
        self.children: set[subprocess.Popen] = set()
        self.lock = threading.Lock()  # of the children and the status file
        self.turn = threading.Lock()  # of on_done
        self.stopped = False
        self.status = read_status()

    def run(self, notebooks: list[Path], given: Mapping[Path, dict[str, Any]]) -> list[Result]:
        """Execute the notebooks of one case in order; after a failure the rest is skipped."""
        results: list[Result] = []
        for notebook in notebooks:
            if self.stopped:
                break
            failed = next((r for r in results if r.status in (FAILED, SKIPPED)), None)
            if failed:
                result = self._result(notebook, given[notebook], status=SKIPPED)
                result.error = f"{failed.name} failed"
                self.log(f"{result.name}: skipped, {result.error}")
            else:
                result = self._run(notebook, given[notebook])
            self._note(result)
            results.append(result)
            with self.turn:
                self.on_done(result)
        return results

    def stop(self) -> None:
        """End the children; their kernels end with them."""
        self.stopped = True
        with self.lock:
            children = list(self.children)
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()

    def _result(self, notebook: Path, parameters: dict[str, Any], status: str) -> Result:
        return Result(
            name=notebook.stem,
            status=status,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            profile=parameters.get("PROFILE", ""),
            seed=parameters.get("SEED", 0),
            parameters=parameters,
            digest=_digest(
                self.material, _source(notebook), parameters, _contents(parameters), self.in_place
            ),
        )

    def _run(self, notebook: Path, parameters: dict[str, Any]) -> Result:
        result = self._result(notebook, parameters, RUNNING)
        executed = paths.REPORTS / "executed" / notebook.name
        if not self.force and executed.exists() and self._is_current(result):
            earlier = self.status[result.name]
            result.status, result.reused = DONE, True
            result.seconds, result.started = earlier["seconds"], earlier["started"]
            self.log(f"{result.name}: up to date (--force runs it again)")
        else:
            self._note(result)
            self.log(f"{result.name}: started")
            begun = time.monotonic()
            partial = paths.REPORTS / "failed" / notebook.name
            partial.parent.mkdir(parents=True, exist_ok=True)
            end = self._execute(notebook, partial, parameters, result.name)
            result.seconds = round(time.monotonic() - begun, 1)
            if end is None:
                executed.parent.mkdir(parents=True, exist_ok=True)
                os.replace(partial, executed)
                result.status = DONE
                self.log(f"{result.name}: done in {result.seconds:.0f} s")
            else:
                self._explain(result, end, partial)
        if self.in_place and result.status == DONE:
            self._write_back(notebook, executed, result)
        return result

    def _execute(self, notebook, output, parameters, name) -> dict[str, Any] | None:
        """Run one notebook in a process of its own; `None`, or what it says about its failure."""
        job = {"source": str(notebook), "output": str(output), "parameters": parameters}
        with self.lock:
            if self.stopped:
                return {"error": STOPPED}
            child = subprocess.Popen(
                [sys.executable, "-m", "casebook.execute", json.dumps(job)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=_environment(parameters, self.in_place),
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the others
            )
            self.children.add(child)
        errors: list[str] = []
        drain = threading.Thread(target=lambda: errors.extend(child.stderr), daemon=True)
        drain.start()
        failure, ended, begun, spoken = None, False, time.monotonic(), time.monotonic()
        cell = "starting its kernel"
        for line in child.stdout:
            try:
                message = json.loads(line)
            except json.JSONDecodeError:  # something else wrote there: not ours to read
                errors.append(line)
                continue
            failure, ended = message.get("failure", failure), message.get("ended", ended)
            cell = message.get("cell", cell)
            if time.monotonic() - spoken >= HEARTBEAT:
                spoken = time.monotonic()
                self.log(f"{name}: {cell}, {spoken - begun:.0f} s")
        child.wait()
        drain.join(5)
        with self.lock:
            self.children.discard(child)
        if ended:
            return None
        if self.stopped:
            return {"error": STOPPED}
        return failure or {
            "error": f"its process ended with code {child.returncode}",
            "traceback": errors,
        }

    def _explain(self, result: Result, end: dict[str, Any], partial: Path) -> None:
        """Say why a notebook did not come to its end: the cell, its source, the traceback."""
        if end["error"] == STOPPED:
            result.status, result.error = STOPPED, "stopped by the user"
            return
        result.status, result.error = FAILED, end["error"]
        lines = [f"{result.name}: failed after {result.seconds:.0f} s: {end['error']}"]
        if end.get("source"):
            lines += ["", *(f"    {line}" for line in end["source"].splitlines()), ""]
        lines += [line.rstrip("\n") for line in end.get("traceback", [])]
        if partial.exists():
            lines.append(f"The notebook up to there: {partial}")
        self.log("\n".join(lines))

    def _write_back(self, notebook: Path, executed: Path, result: Result) -> None:
        try:
            clean = normalise(nbformat.read(executed, as_version=4))
        except CasebookError as error:
            result.status, result.error = FAILED, f"{notebook.name}: {error}"
            self.log(f"{result.name}: not written back: {error}")
        else:
            _write(notebook, clean)

    def _is_current(self, result: Result) -> bool:
        earlier = self.status.get(result.name, {})
        return earlier.get("status") == DONE and earlier.get("digest") == result.digest

    def _note(self, result: Result) -> None:
        entry = {key: value for key, value in asdict(result).items() if key != "reused"}
        with self.lock:
            self.status[result.name] = entry
            write_json(_status_file(), self.status)


class Rebuilder:
    """Rebuilds the pages while notebooks run: one build at a time, none that is out of date.

    Args:
        build: rebuilds the pages; an exception is logged and the next request tries again.
        log: called with what went wrong.
    """

    def __init__(self, build: Callable[[], Any], log: Callable[[str], None] = print):
        self.build, self.log = build, log
        self.wanted = threading.Event()
        self.closing = False
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def request(self, result: Result) -> None:
        """Ask for a build; several requests during one build become one."""
        self.wanted.set()

    def close(self) -> None:
        """Wait for the build that is running; what was asked for after it began is dropped."""
        self.closing = True
        self.wanted.set()
        self.thread.join()

    def _work(self) -> None:
        while self.wanted.wait() and not self.closing:
            self.wanted.clear()
            try:
                self.build()
            except Exception as error:
                self.log(f"the pages could not be rebuilt: {error}")


# Notebooks as they are committed


def normalise(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The executed notebook as it is committed: everything in it is from its source or results.

    Removed are the injected parameters, papermill's and the kernel's notes, timings, widget
    state and the path of the checkout; streams are merged, cells numbered and their ids kept.

    Raises:
        CasebookError: larger than 300 kB; the message names the largest cell.
    """
    clean = nbformat.v4.new_notebook()
    kept = {k: v for k, v in notebook.metadata.items() if k in ("accelerator", "colab", "mystnb")}
    clean.metadata.update(
        kept,
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python", "pygments_lexer": "ipython3"},
    )
    count, ids = 0, set()
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            continue
        cell = nbformat.from_dict(cell)
        cell.metadata = nbformat.from_dict(
            {k: v for k, v in cell.metadata.items() if k in ("tags", "mystnb", "jupyter") and v}
        )
        if not cell.get("id") or cell.id in ids:
            cell.id = f"cell-{len(clean.cells):02d}"
        ids.add(cell.id)
        if cell.cell_type == "code":
            # A cell without code is never executed, and has no number.
            count += bool(cell.source.strip())
            cell.execution_count = count if cell.source.strip() else None
            cell.outputs = _clean_outputs(cell.outputs, count)
        clean.cells.append(cell)
    size = len(nbformat.writes(clean).encode())
    if size > LARGEST:
        worst = max(clean.cells, key=lambda cell: len(json.dumps(cell)))
        raise CasebookError(
            f"{size // 1000} kB with its outputs, {LARGEST // 1000} are allowed; the largest "
            f"cell begins with {worst.source.splitlines()[0]!r}"
        )
    return clean


def _clean_outputs(outputs: list, count: int) -> list:
    clean: list = []
    for output in outputs:
        output = nbformat.from_dict(output)
        if "execution_count" in output:
            output.execution_count = count
        if output.output_type == "stream":
            if clean and clean[-1].output_type == "stream" and clean[-1].name == output.name:
                clean[-1].text += output.text
            else:
                clean.append(output)
            continue
        if "data" in output:
            output.data = {k: v for k, v in output.data.items() if "jupyter.widget" not in k}
            if not output.data:
                continue
        clean.append(output)
    for output in clean:
        if output.output_type == "stream":
            # A line that was written over and over again is what it was in the end.
            lines = output.text.replace("\r\n", "\n").split("\n")
            text = "\n".join(line.rpartition("\r")[2] for line in lines)
            output.text = _without_paths(text)
        elif "data" in output:
            output.data = {
                kind: _without_paths(value) if kind.startswith("text/") else value
                for kind, value in output.data.items()
            }
    return [nbformat.from_dict(output) for output in clean]


def _without_paths(text: str) -> str:
    for path, instead in ((paths.ROOT, "."), (Path(sys.prefix), ".venv"), (Path.home(), "~")):
        if path != Path(path.anchor):
            text = text.replace(f"{path}/", "" if instead == "." else f"{instead}/")
            text = re.sub(rf"{re.escape(str(path))}(?![\w.-])", instead, text)
    return text


def _write(path: Path, notebook: nbformat.NotebookNode) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    os.replace(partial, path)


# The install cell

_INSTALL = """\
# On Colab: fetch the casebook and install what Colab lacks (@time@).
# Anywhere else this cell does nothing.
import sys

if "google.colab" in sys.modules:
    import os
    import subprocess
    from importlib.metadata import version

    def pip(*args):
        subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", *args])

    if not os.path.exists("src/casebook"):
@fetch@
        os.chdir("casebook")
    # Another torch would cost minutes and break what Colab built against its own.
    keep = [f"{name}=={version(name)}" for name in ("torch", "numpy", "pillow")]
    pins = [@pins@]
    pip("-e", "@package@", *pins, *keep)
    sys.path.insert(0, os.path.abspath("src"))  # a running kernel does not see -e
"""

_CLONE = """\
        repository = "@address@"
        tag = "--branch=v@version@"
        clone = ["git", "clone", "-q", "--depth=1", tag, repository, "casebook"]
        subprocess.check_call(clone)"""

_UNPACK = """\
        if not os.path.exists("casebook.zip"):
            print("Upload casebook.zip (Files, on the left), then run this cell again.")
            sys.exit("Make it by: git archive --format=zip --output casebook.zip HEAD")
        subprocess.check_call(["unzip", "-q", "casebook.zip", "-d", "casebook"])"""

# Unsloth is installed without its requirements, which would replace half of what Colab has.
_GPU = """\
    gpu = os.popen("nvidia-smi --query-gpu=compute_cap --format=csv,noheader").read()
    unsloth = [@unsloth@]
    # Colab's own torchao is too old for PEFT.
    pip("--no-deps", "@torchao@", *(unsloth if gpu else []))
    # vLLM fits one torch each, and no longer runs on a T4.
    wheel = {
        "2.11.0+cu12": "@release@"
        "@wheel@",
        "2.13.0+cu13": "@vllm@",
    }.get(version("torch")[:11])
    if wheel and gpu and float(gpu.split()[0]) >= 8:
        os.environ["UNSLOTH_VLLM_STANDBY"] = "1"
        pip(wheel, *pins, *keep)
"""


def variant_of(notebook: Path) -> str:
    """Which install cell a notebook has: `light` where nothing is trained.

    >>> variant_of(Path("10_poker_oracle.ipynb")), variant_of(Path("13_poker_grpo.ipynb"))
    ('light', 'train')
    """
    return "light" if stage_of(notebook) in ("oracle", "rewards") else "train"


def install_cell(variant: str, case: str | None = None) -> str:
    """The first code cell of every notebook: on Colab it installs, elsewhere it does nothing.

    It clones the release (or unpacks an uploaded `casebook.zip` as long as no public address is
    configured), installs what the notebook needs beside what Colab has, never another torch,
    and changes into the checkout.

    Args:
        variant: `light`; or `train`, which adds TRL and PEFT, on a GPU Unsloth, and vLLM where
            it runs.
        case: the case whose own libraries come along, where `pyproject.toml` has an extra of
            its name.

    Raises:
        UnknownName: another variant.
    """
    check_name("install cell", variant, ("light", "train"))
    cpu, cu12, cu13 = (_pins(f"requirements{kind}.txt") for kind in ("", "-gpu-cu12", "-gpu-cu13"))
    light = variant == "light"
    names = ["datasets"] if light else ["accelerate", "datasets", "peft", "transformers", "trl"]
    extras = [name for name in ("train" * (not light), case) if name in paths.extras()]
    release, slash, wheel = cu12["vllm"].partition(" @ ")[2].rpartition("/")
    values = {
        "fetch": _CLONE if paths.repository() else _UNPACK,
        "address": paths.repository(),
        "version": __version__,
        "time": "1 min" if light else "2 min, T4 4, A100 8",
        "package": f".[{','.join(extras)}]" if extras else ".",
        "pins": _wrap(cpu[name] for name in names),
        "torchao": cu12["torchao"],
        "unsloth": _wrap(cu12[name] for name in ("unsloth", "unsloth-zoo", "bitsandbytes")),
        "release": release + slash,
        "wheel": wheel,
        "vllm": cu13["vllm"],
    }
    cell = _INSTALL + ("" if light else _GPU)
    for name, value in values.items():
        cell = cell.replace(f"@{name}@", value)
    return cell.rstrip("\n")


def write_install_cells() -> list[Path]:
    """Write the generated install cell into every notebook; the paths of those that changed.

    A notebook that trains asks Colab for a GPU; the others must not, since that costs quota.

    Raises:
        CasebookError: a notebook without exactly one cell tagged `install`.
    """
    changed = []
    for path in sorted(paths.NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        before = nbformat.writes(notebook)
        cells = [c for c in notebook.cells if "install" in c.metadata.get("tags", [])]
        if len(cells) != 1:
            raise CasebookError(f"{path.name} has {len(cells)} cells tagged 'install', not one")
        cells[0].source = install_cell(variant_of(path), group_of(path))
        for key in ("accelerator", "colab"):
            notebook.metadata.pop(key, None)
        if stage_of(path) in ("baseline", "grpo"):
            notebook.metadata["accelerator"] = "GPU"
            notebook.metadata["colab"] = {"gpuType": "T4", "provenance": []}
        if nbformat.writes(notebook) != before:
            _write(path, notebook)
            changed.append(path)
    return changed


def _wrap(pins: Iterable[str]) -> str:
    """The inside of a list of strings, over several lines where one would be too wide."""
    text = ", ".join(f'"{pin}"' for pin in pins)
    if len(text) <= 72:
        return text
    indent = " " * 8
    lines = textwrap.wrap(text + ",", 88, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(["", *lines, "    "])


def _pins(file: str) -> dict[str, str]:
    """Canonical name -> the requirement as it stands in one of the pinned files."""
    lines = [line.partition(" ;")[0].strip() for line in (paths.ROOT / file).open()]
    pins = [line for line in lines if line and not line.startswith("#")]
    return {re.split(r"[^\w.-]", pin)[0].lower().replace("_", "-"): pin for pin in pins}


# What a run depends on


def _material() -> str:
    """A digest of all that notebooks read beside their own source: code, configs, data, records."""
    digest = hashlib.sha256()
    for folder in (paths.ROOT / "src" / "casebook", paths.CONFIGS, paths.DATA, paths.RESULTS):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(paths.ROOT)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _contents(parameters: Mapping[str, Any]) -> dict[str, str]:
    """A digest of each file that a parameter names: a mended file is another input."""
    files = {n: Path(v) for n, v in parameters.items() if isinstance(v, str) and Path(v).suffix}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if path.is_file()
    }


def _source(notebook: Path) -> str:
    cells = nbformat.read(notebook, as_version=4).cells
    return json.dumps([[cell.cell_type, cell.source] for cell in cells])


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _status_file() -> Path:
    return paths.REPORTS / "execution.json"


def _environment(parameters: Mapping[str, Any], in_place: bool) -> dict[str, str]:
    """What the kernels see: one thread, this interpreter's kernel, no hub where none is needed."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("MKL_NUM_THREADS", "1")
    environment["JUPYTER_PATH"] = os.path.join(sys.prefix, "share", "jupyter")
    if parameters.get("PROFILE") in ("smoke", "nano"):
        environment.setdefault("HF_HUB_OFFLINE", "1")
    if in_place:
        environment["CASEBOOK_FIGURES_DIR"] = str(paths.ROOT / "figures")
    return environment


def _numbers(value: Any) -> Any:
    """YAML's values, with `1e-3` a number: its grammar asks for a point and a sign."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return value


def _typed(name: str, value: Any, default: str) -> Any:
    """The value, if it has the type of the default, which is given as it stands in the cell."""
    try:
        kind = type(ast.literal_eval(default))
    except (ValueError, SyntaxError):
        return value
    if kind is float and type(value) is int:
        return float(value)
    if kind is not type(None) and type(value) is not kind:
        raise CasebookError(
            f"the parameter {name} is {kind.__name__} (by default {default}), not {value!r}"
        )
    return value


# The process of one notebook


def _run_notebook(source: str, output: str, parameters: dict[str, Any]) -> None:
    """Execute one notebook with papermill and report on standard output, one JSON a line."""
    import papermill
    from papermill.engines import NBClientEngine, papermill_engines

    said = threading.Lock()
    now = {"cell": "starting its kernel"}

    def say(**message: Any) -> None:
        with said:
            print(json.dumps(message), file=report, flush=True)

    def beat() -> None:
        while True:
            time.sleep(HEARTBEAT)
            say(**now)

    class Engine(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man, kernel_name, **options):
            # A reader of the source counts its code cells, without the one papermill injected.
            code = [
                index
                for index, cell in enumerate(nb_man.nb.cells)
                if cell.cell_type == "code"
                and "injected-parameters" not in cell.metadata.get("tags", [])
            ]
            start = nb_man.cell_start

            def cell_start(cell, cell_index=None, **more):
                if cell_index in code:
                    now["cell"] = f"cell {code.index(cell_index) + 1} of {len(code)}"
                    say(**now)
                return start(cell, cell_index, **more)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    # Standard output is for the reports; what a library prints goes to standard error.
    report, sys.stdout = sys.stdout, sys.stderr
    threading.Thread(target=beat, daemon=True).start()
    papermill_engines.register("casebook", Engine)
    try:
        papermill.execute_notebook(
            source,
            output,
            parameters,
            engine_name="casebook",
            kernel_name="python3",
            progress_bar=False,
            cwd=str(paths.ROOT),
        )
    except papermill.PapermillExecutionError as error:
        cell = f"{now['cell']}: {error.ename}: {error.evalue}".rstrip(": ")
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)).splitlines()
        say(failure={"error": cell, "source": error.source, "traceback": trace})
    except Exception as error:
        say(failure={"error": f"{now['cell']}: {type(error).__name__}: {error}"})
    else:
        say(ended=True)


if __name__ == "__main__":
    _run_notebook(**json.loads(sys.argv[1]))
