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

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat

from casebook import paths
from casebook.case import PROFILES, CasebookError, check_name
from casebook.execute.colab import write_install_cells
from casebook.execute.kernel import NotebookProcess
from casebook.execute.names import group_of, select
from casebook.execute.normalise import normalise, write_notebook
from casebook.execute.parameters import absolute_files, check_parameters
from casebook.records import write_json
from casebook.records.writing import alone_in
from casebook.settings import FIELDS

CELL = 4  # seconds a code cell takes, roughly, as long as nothing better is known
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
        cases: `"all"`, or names of cases; `"start"` is the notebooks before them; single ones by
            number (`"12"`) or file name.
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
        CasebookError: before anything runs, for an unknown name, profile or parameter, a value
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
    asked = {"PROFILE": profile, "SEED": seed} | absolute_files(parameters or {})
    if "RUNS_DIR" in os.environ and not in_place:
        asked.setdefault("RUNS_DIR", os.environ["RUNS_DIR"])
    check_name("profile", asked["PROFILE"], PROFILES)
    if not FIELDS["seed"].takes(asked["SEED"]):
        raise CasebookError(f"SEED is {asked['SEED']!r}, and must be {FIELDS['seed']}")
    given = check_parameters(notebooks, asked)
    groups: dict[str, list[Path]] = {}
    for notebook in notebooks:
        groups.setdefault(group_of(notebook), []).append(notebook)
    busy = f"notebooks are being executed into {paths.REPORTS} already: wait for their end"
    try:
        with alone_in(paths.REPORTS, busy):
            status = read_status()
            # Started last, the longest case would run on while the other processors are idle.
            order = sorted(groups.values(), key=lambda g: -sum(_expected(n, status) for n in g))
            series = _Series(status, in_place, force, on_done, log)
            return sorted(series.run_all(order, given, jobs), key=lambda result: result.name)
    except OSError as error:
        raise CasebookError(
            f"stopped, {paths.REPORTS} cannot be written: {error.strerror or error}; "
            "what was done so far is kept there"
        ) from error


def read_status() -> dict[str, dict[str, Any]]:
    """The contents of `reports/execution.json`: name -> the fields of `Result`; empty: none."""
    try:
        status = json.loads(_status_file().read_text())
    except (OSError, ValueError):
        return {}
    entries = status.items() if isinstance(status, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict)}


def _expected(notebook: Path, status: Mapping[str, Mapping[str, Any]]) -> float:
    """About how many seconds a notebook takes: as many as last time, else by its cells."""
    if seconds := status.get(notebook.stem, {}).get("seconds"):
        return seconds
    cells = nbformat.read(notebook, as_version=4).cells
    return CELL * sum(cell.cell_type == "code" for cell in cells)


class _Series:
    """One call of `execute`: its processes, and the status file they share."""

    def __init__(self, status, in_place, force, on_done, log):
        self.status = status
        self.in_place, self.force, self.on_done, self.log = in_place, force, on_done, log
        self.material = _material()
        self.running: set[NotebookProcess] = set()
        self.lock = threading.Lock()  # of the processes and the status file
        self.turn = threading.Lock()  # of on_done
        self.stopped = False

    def run_all(
        self, groups: Iterable[list[Path]], given: Mapping[Path, dict[str, Any]], jobs: int
    ) -> list[Result]:
        """Execute cases, at most `jobs` at a time."""
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            futures = [pool.submit(self.run, group, given) for group in groups]
            try:
                return [result for future in futures for result in future.result()]
            except BaseException:
                self.stop()
                pool.shutdown(cancel_futures=True)
                raise

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
        """End the processes that are running."""
        self.stopped = True
        with self.lock:
            running = list(self.running)
        for process in running:
            process.end()

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
        if not self.force and self._is_current(result) and _is_whole(executed):
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
        with self.lock:
            if self.stopped:
                return {"error": STOPPED}
            environment = _environment(parameters, self.in_place)
            process = NotebookProcess(notebook, output, parameters, environment)
            self.running.add(process)
        failure = process.wait(lambda cell: self.log(f"{name}: {cell}"))
        with self.lock:
            self.running.discard(process)
        return {"error": STOPPED} if failure and self.stopped else failure

    def _explain(self, result: Result, end: dict[str, Any], partial: Path) -> None:
        """Say why a notebook did not come to its end: the cell, its source, the traceback."""
        if end["error"] == STOPPED:
            result.status, result.error = STOPPED, "stopped by the user"
            return
        result.status, result.error = FAILED, end["error"]
        lines = [f"{result.name}: failed after {result.seconds:.0f} s: {end['error']}"]
        if end.get("source"):
            lines += ["", *(f"    {line}" for line in end["source"].splitlines()), ""]
        lines += end.get("traceback", [])
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
            write_notebook(notebook, clean)

    def _is_current(self, result: Result) -> bool:
        earlier = self.status.get(result.name, {})
        return earlier.get("status") == DONE and earlier.get("digest") == result.digest

    def _note(self, result: Result) -> None:
        entry = {key: value for key, value in asdict(result).items() if key != "reused"}
        with self.lock:
            self.status[result.name] = entry
            write_json(_status_file(), self.status)


def _is_whole(notebook: Path) -> bool:
    """Whether a file is there and a notebook: one that was cut short is made again."""
    try:
        nbformat.read(notebook, as_version=4)
    except Exception:  # nbformat, json and jsonschema each have their own
        return False
    return True


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
    profile = PROFILES.get(str(parameters.get("PROFILE")))
    if profile and profile.embedded:
        environment.setdefault("HF_HUB_OFFLINE", "1")
    if in_place:
        environment["CASEBOOK_FIGURES_DIR"] = str(paths.ROOT / "figures")
    return environment
