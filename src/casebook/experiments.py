"""Arms x seeds -> committed records: the runs that take too long for a notebook.

`configs/<case>/experiments.yaml` names the arms: for each a profile, the seeds, and the fields
of the profile's configuration that take another value. An experiment that is stopped goes on
where it was; a record whose fingerprint is current is not made again.
"""

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml

from casebook import paths
from casebook.case import PROFILES, CasebookError, check_name, load_case
from casebook.records import is_current, read_record, write_json
from casebook.training import read_config, run_fingerprint, train

ARM_FIELDS = {"question", "profile", "seeds", "overrides"}
ADAPTER_ARM = "grpo"  # the arm whose first seed's adapter is committed, for the other notebooks


def run_experiments(
    case: str,
    profile: str = "nano",
    arms: Iterable[str] | None = None,
    seeds: Iterable[int] | None = None,
    jobs: int = 1,
    log: Callable[[str], None] = print,
) -> list[Path]:
    """Train what is missing of a case's arms, and write `results/<case>/<profile>/<arm>/`.

    Args:
        case: name of the case.
        profile: only arms of this profile.
        arms: names of arms; all by default.
        seeds: seeds; those the arm names by default.
        jobs: trainings at a time, each in a process with one thread; no more than cores.
        log: called with one line for each record.

    Returns:
        The records' paths, those that were current already among them.

    Raises:
        CasebookError: unknown case or arm, less than one job, or a file of arms that cannot be
            used.
    """
    load_case(case)
    if jobs < 1:
        raise CasebookError(f"jobs is {jobs}: at least one training has to run")
    check_name("profile", profile, PROFILES)
    known = {name: arm for name, arm in read_arms(case).items() if arm["profile"] == profile}
    if not known:
        raise CasebookError(f"the case {case!r} has no arms of the profile {profile!r}")
    if jobs < 1:
        raise CasebookError(f"jobs is {jobs}: at least one training at a time is needed")
    names = list(arms or known)
    for name in names:
        check_name(f"arm of {case}/{profile}", name, known)
    runs = [(name, seed) for name in names for seed in seeds or known[name]["seeds"]]
    work = [(case, profile, name, known[name]["overrides"], seed) for name, seed in runs]
    written = []
    with _workers(jobs) as submit:
        for path, line in submit(_run, work):
            log(line)
            written.append(path)
    return written


@contextmanager
def _workers(jobs: int) -> Iterator[Callable]:
    """A way to call a function on many argument tuples, here or in `jobs` processes at a time."""
    if jobs == 1:
        yield lambda function, work: itertools.starmap(function, work)
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield lambda function, work: pool.map(function, *zip(*work, strict=True))


def read_arms(case: str) -> dict[str, dict[str, Any]]:
    """The arms of a case: name -> `profile`, `seeds`, `overrides`, `question`."""
    path = paths.CONFIGS / case / "experiments.yaml"
    if not path.exists():
        raise CasebookError(f"the case {case!r} has no experiments ({path})")
    arms = yaml.safe_load(path.read_text())
    for name, arm in arms.items():
        if not isinstance(arm, Mapping) or set(arm) != ARM_FIELDS:
            raise CasebookError(f"{path}: the arm {name!r} needs {', '.join(sorted(ARM_FIELDS))}")
    return arms


def _run(case, profile, arm, overrides, seed) -> tuple[Path, str]:
    """Make one record if it is not current; its path, and a line that says what came out."""
    path = paths.RESULTS / case / profile / arm / f"seed{seed}.json"
    config = read_config((case, profile), {**overrides, "seed": seed})
    mark = run_fingerprint(config)
    if path.exists() and is_current(read_record(path), mark):
        return path, f"{arm}, seed {seed}: current"
    output = paths.runs_dir() / "experiments" / case / profile / arm / f"seed{seed}-{mark[:8]}"
    run = train(config, output, resume=True)
    record = run.record() | {"arm": arm}
    write_json(path, record)
    if (arm, seed) == (ADAPTER_ARM, 0):
        shutil.copytree(run.adapter, paths.RESULTS / case / profile / "adapter", dirs_exist_ok=True)
    figures = record["after"]
    return path, (
        f"{arm}, seed {seed}: sampled {figures['sampled_accuracy']['value']:.3f}, "
        f"greedy {figures['greedy_accuracy']['value']:.3f}, {record['train_seconds']:.0f} s of "
        f"training, {record['measure_seconds']:.0f} s of measuring"
    )
