"""Arms x seeds -> committed records: the runs that take too long for a notebook.

`configs/<case>/experiments.yaml` names the arms: for each a profile, the seeds, and the fields
of the profile's configuration with another value. A stopped experiment continues where it was.
Existing records are kept, unless `again` asks for new ones.
"""

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from casebook import paths, records
from casebook.case import PROFILES, CasebookError
from casebook.paths import check_writable, plain, write_json, write_trouble
from casebook.settings import chosen_runs
from casebook.training import Config, Run, read_config, settings_mark, train

ADAPTER_ARM = "grpo"  # the arm whose first seed's adapter is committed, for the other notebooks
KEPT_SEED = 0


def run_experiments(
    case: str,
    profile: str = "nano",
    arms: Iterable[str] | None = None,
    seeds: Iterable[int] | None = None,
    jobs: int = 1,
    again: bool = False,
    gpu: bool = False,
    log: Callable[[str], None] = print,
) -> list[Path]:
    """Train what is missing of a case's arms, and write `results/<case>/<profile>/<arm>/`.

    Args:
        case: name of the case.
        profile: only arms of this profile.
        arms: names of arms; all by default.
        seeds: seeds; those the arm names by default.
        jobs: trainings at a time, each in a process with one thread; no more than cores.
        again: make records anew that are there, from another commit than theirs.
        gpu: train on a GPU also what the profile trains on a CPU. The record says so.
        log: called with one line for each record.

    Returns:
        The records' paths, those that were there already among them.

    Raises:
        CasebookError: an unknown name, a record with another configuration than its arm has now,
            or tracked files that are not committed: a record names its commit.
    """
    runs = chosen_runs(case, profile, arms, seeds)
    here = {"use_cpu": False} if gpu else {}
    work = [(case, profile, arm, changed | here, seed, again) for arm, seed, changed in runs]
    if records.revision()["dirty"]:
        raise CasebookError(
            "tracked files have changes: commit them first, since a record names the commit that "
            "it was made from"
        )
    check_writable(paths.RESULTS / case)
    written = []
    with workers(jobs) as submit:
        for path, line in submit(_run, work):
            log(line)
            written.append(path)
    return written


@contextmanager
def workers(jobs: int) -> Iterator[Callable]:
    """A way to call a function on many argument tuples, here or in `jobs` processes at a time."""
    if jobs == 1:
        yield lambda function, work: itertools.starmap(function, work)
        return
    spawned = get_context("spawn")  # not forked: torch's threads do not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=spawned) as pool:
        yield lambda function, work: pool.map(function, *zip(*work, strict=True))


def _folder(config: Config, arm: str) -> Path:
    """Where a run is trained: another commit begins anew, since a record names one commit."""
    commit = str(records.revision()["revision"])[:8]
    name = f"seed{config.seed}-{settings_mark(config)[:8]}-{commit}"
    return paths.runs_dir() / "experiments" / config.case / config.profile / arm / name


def _run(case, profile, arm, overrides, seed, again) -> tuple[Path, str]:
    """Make one record if it is missing; its path, and a line that says what came out."""
    path = paths.RESULTS / case / profile / arm / f"seed{seed}.json"
    config = read_config((case, profile), {**overrides, "seed": seed})
    if path.exists() and not again:
        if _asked(records.read_record(path)["config"]) != _asked(plain(config.settings)):
            raise CasebookError(
                f"{path} was made with another configuration than {arm!r} has now: make it anew "
                "with --again, or give the new configuration an arm of its own"
            )
        return path, f"{arm}, seed {seed}: there already"
    run = train(config, _folder(config, arm), resume=True)
    record = run.record() | {"arm": arm}
    try:
        # The record comes last: where it is, the adapter and the completions are.
        if kept := kept_completions(record):
            path.unlink(missing_ok=True)
            _keep(run, record, kept)
        write_json(path, record)
    except OSError as error:
        trouble = write_trouble(error) or error
        raise CasebookError(f"{path} cannot be written ({trouble}): the run is kept") from error
    sampled = records.first_and_last(record, "sampled_accuracy")[1]
    greedy = records.first_and_last(record, "greedy_accuracy")[1]
    rows = "" if records.has_test_figures(record) else "on validation rows "
    return path, (
        f"{arm}, seed {seed}: {rows}sampled {sampled:.3f}, greedy {greedy:.3f}, "
        f"{record['train_seconds']:.0f} s of training, "
        f"{record['measure_seconds']:.0f} s of measuring"
    )


def _asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What makes an arm: its settings, wherever it is trained."""
    return {name: value for name, value in settings.items() if name != "use_cpu"}


def kept_completions(record: Mapping[str, Any]) -> Path | None:
    """Where a run's completions are committed; `None` for a run that is not among those kept.

    Of an embedded model one run a case is kept, with its adapter. Of a real model, whose runs take
    hours, each arm's first seed is, without the adapter: one of SmolLM2 has 19 MB. A run that
    served the choice of a setting is not.
    """
    case, profile, arm = record["case"], record["profile"], record["arm"]
    if record["seed"] != KEPT_SEED or not records.has_test_figures(record):
        return None
    if PROFILES[profile].embedded:
        return records.completions_file(case, profile) if arm == ADAPTER_ARM else None
    return records.completions_file(case, profile, arm)


def _keep(run: Run, record: Mapping[str, Any], kept: Path) -> None:
    """Copy what is committed of a run besides its record."""
    if PROFILES[record["profile"]].embedded:
        adapter = kept.with_name("adapter")
        shutil.rmtree(adapter, ignore_errors=True)
        # With a KL term TRL's reference is saved as an adapter, too; nothing reads it.
        shutil.copytree(run.adapter, adapter, ignore=shutil.ignore_patterns("ref"))
    completions = run.completions()
    if len(completions):  # a supervised control samples none
        records.write_rows(completions, kept)
