"""Does today's code still do what the records say?

A replay repeats what can be repeated in seconds and compares it with the record: all of its
`before` figures, the validation at step 0, the first steps of its curve, what the detectors say
of that curve, and, where they are committed, the adapter's `after` figures and the grades and
reward parts of the completions. Weights, rows, configuration, rewards, graders and training code
all act on these figures; a change that acts on none of them is no change of behaviour.

Some of what pages rest on stands in no record: every column of the rows, the accuracy of the
one-line rules, the detectors' thresholds and what they say of the recorded curves. The first
replay of an arm writes them down (`reference` in `results/<case>/replays.json`), later ones
compare with that.

Figures are equal to the last digit on the same kind of machine with memory for the same batches.
Elsewhere greedy figures may differ by one row and windows of the curve by 1e-3; beyond that
nothing can be said of the recorded figures. There `against` compares today's code with that of a
revision at which the record was current: both run on the machine that is there, and have to
agree to the last digit. Since two codes are compared there, and no recorded figures, `overrides`
may give both of them less to do. Where a real model was not fetched, only what needs no model is
repeated: files, settings, rows and grades.
"""

import functools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import detectors, paths, pretrained, training
from casebook.case import PROFILES, CasebookError, Grade, check_name, known_cases, load_case
from casebook.detectors import RunWatch
from casebook.experiments import arms
from casebook.experiments import repeat as repeating
from casebook.experiments.repeat import STEPS, WRITTEN, repeat
from casebook.models import base_weights
from casebook.records import freshness
from casebook.records.files import DIGITS, plain, read_record, write_json
from casebook.records.gate import committed_completions
from casebook.records.provenance import machine, provenance
from casebook.rewards import random_reward

NEAR = 1e-3  # of a window's mean, on another kind of machine
UNKNOWN = "not comparable"
NOT_COMPARED = ("seconds", "step_time", "batch")  # of the hour, and not of the code


@dataclass(frozen=True)
class Comparison:
    """One figure of a record and what came out today.

    Attributes:
        what: the way to the figure, as in `before/greedy_accuracy/value`.
        recorded: as the record has it.
        replayed: what came out.
        verdict: `same`, `differs` or `not comparable`.
    """

    what: str
    recorded: Any
    replayed: Any
    verdict: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.recorded}, replayed {self.replayed}"


@dataclass(frozen=True)
class Replay:
    """What a replay of one record found.

    Attributes:
        case, profile, arm, seed: of the record.
        verdict: `reproduces`, `differs`, `not comparable` (on this machine) or `regraded`.
        comparisons: all of them.
        largest_difference: the largest absolute difference between two numbers.
        reference: what the record does not hold; see the module's docstring.
        code: module -> hash of its code, of the process that replayed.
        seconds: wall time.
        missing: what would have to be here for a comparison; empty where nothing is missing.
        overrides: settings that both codes took with another value than the record's.
    """

    case: str
    profile: str
    arm: str
    seed: int
    verdict: str
    comparisons: list[Comparison]
    largest_difference: float
    reference: dict[str, Any] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    missing: str = ""
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def first_difference(self) -> Comparison | None:
        """The first comparison that is not the same, in the order they were made."""
        return next((c for c in self.comparisons if c.verdict != "same"), None)


def replay(
    cases: Iterable[str],
    profile: str = "nano",
    names: Iterable[str] | None = None,
    seed: int | None = None,
    jobs: int = 1,
    against: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    log: Callable[[str], None] = print,
) -> list[Replay]:
    """Replay the committed records, and write `results/<case>/replays.json`.

    Args:
        cases: names of cases.
        profile: only records of this profile.
        names: of arms; all by default.
        seed: of the records; by default each arm's first, which stands for its arm.
        jobs: replays at a time, each in a process with one thread.
        against: a git revision. What its code gives on this machine stands in for the recorded
            figures, which is how another kind of machine than theirs can tell that nothing
            changed. The record has to be current at that revision.
        overrides: settings that both take with another value, such as fewer rows; with `against`.
        log: called with one line for each record.

    Raises:
        CasebookError: unknown case, profile, arm or setting, there is no such record or revision,
            or the older code cannot be run.
    """
    cases, names = list(cases), list(names or ())
    check_name("profile", profile, PROFILES)
    work = [job for case in cases for job in _jobs(case, profile, names, seed)]
    for name in names:
        if not any(name == arm for _, _, arm, _ in work):
            raise CasebookError(f"there is no recorded arm {name!r} of {', '.join(cases)}")
    if not work:
        raise CasebookError(f"there is no record of {', '.join(cases)} with profile {profile!r}")
    if jobs < 1:
        raise CasebookError(f"jobs is {jobs}: at least one replay at a time is needed")
    if overrides and against is None:
        raise CasebookError("other settings give other figures than the records': name --against")
    if against is not None:
        against = _git("rev-parse", "--verify", "--end-of-options", f"{against}^{{commit}}")
    done, writing = [], threading.Lock()

    def follow(chunk: list[tuple], older: Path | None) -> None:
        # A process of its own for each case: the code it imports is what the digest covers.
        with arms.processes(1) as process, _older_code(older, overrides) as ask:
            for job in chunk:
                try:
                    result = process.submit(_one, *job, ask(*job), overrides).result()
                except Exception as error:
                    name = f"{job[0]}/{job[2]}, seed {job[3]}"
                    raise CasebookError(f"{name} cannot be replayed: {error}") from error
                with writing:
                    _stamp(result, against)
                    done.append(result)
                    log(_line(result))

    with _checked_out(against) as older, ThreadPoolExecutor(jobs) as threads:
        chunks = _chunks(work, jobs)
        for finished in [threads.submit(follow, chunk, older) for chunk in chunks]:
            finished.result()
    return done


def replay_record(
    record: Mapping[str, Any],
    others: Iterable[Mapping[str, Any]] = (),
    then: dict[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Replay:
    """Replay one record in this process; nothing is written.

    Args:
        record: as `read_record` gives it.
        others: the records of the arm's other seeds, of which only the files are checked and
            what the detectors say of the curves.
        then: what older code made of the record on this machine, as `repeat` prints it.
        overrides: settings that the older code took with another value.
    """
    started = datetime.now(UTC)
    arm = [record, *others]
    known = freshness.read_replays(record["case"])["arms"].get(_key(record), {})
    # A record that was made anew begins anew.
    kept = known.get("reference", {}) if all(_held(one, known) for one in arm) else {}
    compare = _Comparer(record)
    for one in arm:
        if held := _held(one, known):
            compare.exactly(f"the file of seed {one['seed']}", held, freshness.digest(one))
    reference = _reference(arm)
    for name, value in reference.items():
        compare.exactly(f"reference/{name}", kept.get(name, value), value)
    _compare(record, compare, then, overrides)
    findings = compare.found
    verdicts = {found.verdict for found in findings}
    verdict = "reproduces" if verdicts == {"same"} else UNKNOWN
    missing = _missing(record)
    if "differs" in verdicts:
        verdict = "differs"
    elif missing:
        verdict = UNKNOWN
    elif _regraded(record) and verdict == "reproduces":
        verdict = "regraded"
    return Replay(
        case=record["case"],
        profile=record["profile"],
        arm=record["arm"],
        seed=record["seed"],
        verdict=verdict,
        comparisons=findings,
        largest_difference=max(map(_difference, findings), default=0.0),
        reference=dict(kept) or reference,
        code=freshness.module_hashes(freshness.loaded_modules()),
        seconds=(datetime.now(UTC) - started).total_seconds(),
        missing=missing,
        overrides=dict(overrides or {}),
    )


# What is compared


def _compare(
    record: Mapping[str, Any],
    compare: "_Comparer",
    then: dict[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> None:
    """Repeat what a record says, and compare with it, or with what older code gave here."""
    compare.tree("config", record["config"], _configured(record))
    _compare_kept(record, compare)
    _compare_completions(record, compare)
    if _regraded(record) or _missing(record):
        return
    weights = record["provenance"]["model"]["weights"]
    compare.exactly("weights", weights, base_weights(record["config"]))
    compare.exactly("inputs", record["inputs"], plain(training.input_digests(_parsed(record))))
    today = repeat(record, overrides)
    if then is not None:
        _compare_with_older_code(record, today, then, compare)
        return
    for name, figures in _recorded(record).items():
        row = 1 / record["config"]["evaluate_rows"] if name == "validation" else 0.0
        if name == "findings":
            compare.exactly(f"findings to step {STEPS}", figures, today[name])
        elif name in today:
            compare.tree(name, figures, today[name], row)


def _recorded(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of all that `repeat` gives."""
    names = ("before", "completions_before", "after", "completions")
    told = {name: record[name] for name in names if record.get(name) is not None}
    if "after" in told:  # the last of the validation, not measured on test rows
        told["after"] = {k: v for k, v in told["after"].items() if k != "kl_from_base"}
    steps = record["validation"].get("step", [])
    early = [i for i, step in enumerate(steps) if step <= STEPS]
    told["validation"] = {k: [v[i] for i in early] for k, v in record["validation"].items()}
    told["curve"] = {name: values[:1] for name, values in record["curve"].items()}
    told["findings"] = [found for found in record["findings"] if found["step"] <= STEPS]
    kept = _kept_completions(record)
    if len(kept):
        kept = kept[kept["step"] <= STEPS]
        told["written"] = {name: kept[name].tolist() for name in WRITTEN}
    return told


def _compare_with_older_code(
    record: Mapping[str, Any], today: dict, then: dict, compare: "_Comparer"
) -> None:
    """Compare what two codes do on this machine, to the last digit."""
    compare.exactly("the record", then["record"], freshness.digest(record))
    compare.alike = True
    compare.tree("figures", then["figures"], today)
    if then["state"] not in ("current", "regraded"):
        found = Comparison("its state under the older code", "current", then["state"], UNKNOWN)
        compare.found.append(found)


def _configured(record: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that the arm has today; the record's own where nothing names the arm."""
    try:
        arm = arms.read_arms(record["case"]).get(record["arm"])
    except CasebookError:
        arm = None
    if arm is None or arm["profile"] != record["profile"]:
        return dict(record["config"])
    overrides = {**arm["overrides"], "seed": record["seed"]}
    return plain(training.read_config((record["case"], record["profile"]), overrides).settings)


def _parsed(record: Mapping[str, Any]) -> Any:
    return training.read_config((record["case"], record["profile"]), record["config"])


def _kept_completions(record: Mapping[str, Any]) -> pd.DataFrame:
    """The committed completions of this run; an empty frame where it keeps none."""
    if arms.kept_completions(record) is None:
        return pd.DataFrame()
    arm = None if PROFILES[record["profile"]].embedded else record["arm"]
    return committed_completions(record["case"], record["profile"], arm)


def _compare_kept(record: Mapping[str, Any], compare: "_Comparer") -> None:
    """Grade the test completions that the record holds again."""
    kept = record.get("completions") or []
    variant = record["config"]["variant"]
    case = load_case(record["case"])
    answers = case.load("test", record["profile"], variant=variant)["answer"] if kept else []
    for entry in kept:
        found = case.grade(entry["completion"], answers[entry["row"]], variant=variant)
        compare.grade(f"test row {entry['row']}", entry, found)


def _compare_completions(record: Mapping[str, Any], compare: "_Comparer") -> None:
    """Grade the committed completions of this run again, and pay them again."""
    written = _kept_completions(record)
    if written.empty:
        return
    variant = record["config"]["variant"]
    grade = load_case(record["case"]).grade
    for number, entry in enumerate(written.to_dict("records")):
        found = grade(entry["completion"], entry["answer"], variant=variant)
        compare.grade(f"completion {number}", entry, found)
    rows = _rows_by_prompt(record["case"], record["profile"], record["seed"], variant)
    columns = pd.DataFrame([rows[prompt] for prompt in written["prompt"]]).to_dict("list")
    columns["completions"] = written["completion"].tolist()
    if isinstance(columns["prompt"][0], list):
        columns["completions"] = [
            [{"role": "assistant", "content": text}] for text in written["completion"]
        ]
    columns["prompts"] = columns.pop("prompt")
    columns["completion_ids"] = [[0]] * len(written)
    # A completion alone does not decide these: a KL wants its policies, a coin is tossed anew.
    others = {training.KL_PENALTY, random_reward.__name__}
    for reward in training.reward_functions(_parsed(record)):
        name = f"reward/{reward.__name__}"
        if name in written and reward.__name__ not in others:
            paid = [round(float(value), DIGITS) for value in reward(**columns)]
            compare.tree(name, written[name].tolist(), paid)


@functools.cache
def _rows_by_prompt(case: str, profile: str, seed: int, variant: str) -> dict[str, dict]:
    rows = load_case(case).load("train", profile, seed, variant)
    return {training.text_of(row["prompt"]): row for row in rows}


# What no record holds


def _reference(arm: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What the records of an arm do not hold, and pages rest on."""
    one = arm[0]
    return {
        "rules": _rules(one["case"]),
        "thresholds": {name: v for name, v in vars(detectors).items() if _is_threshold(name, v)},
        "findings": {str(record["seed"]): _findings_on(record) for record in arm},
    }


def _is_threshold(name: str, value: Any) -> bool:
    return name.isupper() and isinstance(value, int | float)


@functools.cache
def _rules(case: str) -> dict[str, float]:
    rules = load_case(case).rules
    return plain(rules()) if rules else {}


def _findings_on(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the detectors say of the recorded curve, looked at window by window."""
    curve, validation = pd.DataFrame(record["curve"]), pd.DataFrame(record["validation"])
    watch, nothing = RunWatch(record["config"]), pd.DataFrame()
    for step in curve["step"]:
        seen = [curve[curve["step"] <= step]]
        if len(validation):
            seen.append(validation[validation["step"] <= step])
        watch.look(pd.concat(seen, ignore_index=True), nothing)
    return [{"detector": found.detector, "step": found.step} for found in watch.findings]


# How two figures are compared


class _Comparer:
    """Compares figure by figure, by the rule of the machine it runs on."""

    def __init__(self, record: Mapping[str, Any]):
        self.alike = same_machine(record["provenance"])
        self.found: list[Comparison] = []

    def exactly(self, what: str, recorded: Any, replayed: Any) -> None:
        """Compare what does not depend on the machine."""
        recorded, replayed = plain(recorded), plain(replayed)
        verdict = "same" if recorded == replayed else "differs"
        self.found.append(Comparison(what, recorded, replayed, verdict))

    def grade(self, what: str, recorded: Mapping[str, Any], replayed: Grade) -> None:
        """Compare what a completion was found to be worth."""
        self.exactly(
            f"{what}: well formed, answer, correct",
            [recorded["well_formed"], recorded["extracted"], recorded["correct"]],
            [replayed.well_formed, replayed.answer, replayed.correct],
        )

    def tree(self, what: str, recorded: Any, replayed: Any, row: float = 0.0) -> None:
        """Compare two trees of figures, leaf by leaf; `row` is what one row is worth in them."""
        if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
            row = 1 / recorded["n"] if recorded.get("n") else row
            # A figure that today's code gives besides is no difference; a setting is one.
            names = dict.fromkeys((*recorded, *(replayed if what == "config" else ())))
            for name in names:
                if name not in NOT_COMPARED:
                    pair = (part.get(name, "nothing") for part in (recorded, replayed))
                    self.tree(f"{what}/{name}", *pair, row)
        elif isinstance(recorded, list) and isinstance(replayed, list) and recorded != replayed:
            longest = max(len(recorded), len(replayed))
            pad = [["nothing"] * (longest - len(values)) for values in (recorded, replayed)]
            pairs = zip([*recorded, *pad[0]], [*replayed, *pad[1]], strict=True)
            for number, (one, two) in enumerate(pairs):
                self.tree(f"{what}/{number}", one, two, row)
        elif verdict := self._judge(what, recorded, replayed, row):
            self.found.append(Comparison(what, recorded, replayed, verdict))

    def _judge(self, what: str, recorded: Any, replayed: Any, row: float) -> str | None:
        """The verdict on one leaf; `None` where it says nothing on another kind of machine.

        What was sampled is another sample there. Greedy figures, windows of the curve and
        perplexities are nearly the same.
        """
        if recorded == replayed:
            return "same"
        if self.alike or what.startswith(("config/", "reward/")):
            return "differs"
        if not all(isinstance(value, int | float) for value in (recorded, replayed)):
            return None
        if "greedy_accuracy" in what:
            near = abs(recorded - replayed) <= row + 1e-9
        elif what.startswith("curve/") or "perplexity" in what:
            near = math.isclose(recorded, replayed, rel_tol=NEAR, abs_tol=NEAR)
        else:
            return None
        return "same" if near else UNKNOWN


def same_machine(made_on: Mapping[str, Any]) -> bool:
    """Whether a record was made on this kind of machine, as far as its provenance tells."""
    return made_on["machine"] == machine()


def _difference(found: Comparison) -> float:
    pair = (found.recorded, found.replayed)
    if found.verdict == "same" and pair[0] == pair[1]:
        return 0.0
    if all(isinstance(value, int | float) for value in pair):
        return abs(pair[0] - pair[1])
    return math.inf


# What is written down


def _key(record: Mapping[str, Any]) -> str:
    return f"{record['profile']}/{record['arm']}"


def _regraded(record: Mapping[str, Any]) -> bool:
    """Whether the run cannot be trained again here: it needs a GPU, or somebody else sent it."""
    return PROFILES[record["profile"]].device == "gpu" or "contributed" in record


def _missing(record: Mapping[str, Any]) -> str:
    """What is not here that the run stands on, as an advice; empty where nothing is missing."""
    model = record["provenance"].get("model", {})
    name, then = model.get("name"), model.get("source")
    if then is None or (here := pretrained.which(name)) == then:
        return ""
    if here == "hub":
        return "make smol fetches the model"
    if here == "nowhere":
        return f"the model {name} has to be trained first"
    return f"the record is of {name} from {then}, and here it would be {name} from {here}"


def _held(record: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    """The digest that this record had when its arm was last replayed; `None` if it was not."""
    held = known.get("records", {}).get(str(record["seed"]))
    return held["content"] if held and held["made"] == record["provenance"]["time"] else None


def _stamp(result: Replay, against: str | None = None) -> None:
    """Write what a replay found; one on another kind of machine that says nothing is not kept."""
    if result.verdict == UNKNOWN:
        return
    replays = freshness.read_replays(result.case)
    records = _arm(result.case, result.profile, result.arm, result.seed)
    record = records[0]
    files = freshness.input_files(record)
    code, inputs = freshness.digest(result.code), freshness.digest(files)
    key = _key(record)
    last = replays["arms"].get(key, {})
    first = result.first_difference
    held = {
        str(r["seed"]): {"made": r["provenance"]["time"], "content": freshness.digest(r)}
        for r in records
    }
    for name, then in last.get("records", {}).items():
        if name in held and held[name]["made"] == then["made"]:
            held[name] = then  # a file that was edited is not taken for the record
    replays["arms"][key] = {
        "seed": result.seed,
        "made": record["provenance"]["time"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": result.verdict,
        "first_difference": str(first) if first else None,
        "comparisons": len(result.comparisons),
        "largest_difference": result.largest_difference,
        "exact": against is not None or same_machine(record["provenance"]),
        "against": against,
        "overrides": result.overrides,
        "machine": machine(),
        "versions": provenance()["versions"],
        "code": code,
        "files": inputs,
        "records": held,
        "reference": result.reference,
    }
    used = replays["arms"].values()
    replays["code"] |= {code: result.code}
    replays["files"] |= {inputs: files}
    for kind in ("code", "files"):
        wanted = {arm[kind] for arm in used}
        replays[kind] = {name: value for name, value in replays[kind].items() if name in wanted}
    write_json(freshness.replays_file(result.case), replays)


def _line(result: Replay) -> str:
    count = len(result.comparisons)
    start = f"{result.case}/{result.arm}, seed {result.seed}: {result.verdict}"
    if result.missing and result.verdict == UNKNOWN:
        return f"{start}: {result.missing}"
    if first := result.first_difference:
        return f"{start}: {first}"
    return f"{start}, {count} figures, {result.seconds:.0f} s"


# Which records, and in which processes


def _jobs(case: str, profile: str, names: list[str], seed: int | None) -> Iterator[tuple]:
    check_name("case", case, known_cases())
    folder = paths.RESULTS / case / profile
    found: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*/seed*.json")):
        found.setdefault(path.parent.name, []).append(int(path.stem.removeprefix("seed")))
    for arm, seeds in found.items():
        if names and arm not in names:
            continue
        if seed is not None and seed not in seeds:
            raise CasebookError(f"{case}/{arm} has no record of seed {seed}")
        yield case, profile, arm, min(seeds) if seed is None else seed


def _chunks(work: list[tuple], jobs: int) -> list[list[tuple]]:
    """The work by case; split further where there are fewer cases than processes."""
    cases = [[job for job in work if job[0] == name] for name in dict.fromkeys(j[0] for j in work)]
    parts = max(1, jobs // len(cases))
    return [chunk for jobs_of in cases for i in range(parts) if (chunk := jobs_of[i::parts])]


def _one(
    case: str,
    profile: str,
    arm: str,
    seed: int,
    then: dict[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Replay:
    record, *others = _arm(case, profile, arm, seed)
    return replay_record(record, others, then, overrides)


def _arm(case: str, profile: str, arm: str, seed: int) -> list[dict[str, Any]]:
    """The records of an arm, that of one seed first."""
    folder = paths.RESULTS / case / profile / arm
    records = [read_record(path) for path in sorted(folder.glob("seed*.json"))]
    return sorted(records, key=lambda record: record["seed"] != seed)


# Older code


@contextmanager
def _checked_out(revision: str | None) -> Iterator[Path | None]:
    """A folder with the code, settings, data and records of a revision, until the block ends."""
    if revision is None:
        yield None
        return
    names = ("src", "configs", "data", "results", "pyproject.toml", "requirements.txt")
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "revision.tar"
        _git("archive", f"--output={archive}", revision, "--", *names)
        shutil.unpack_archive(archive, folder, filter="data")
        archive.unlink()
        yield Path(folder)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(paths.ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise CasebookError("--against needs git, and it is not installed") from None
    except subprocess.CalledProcessError as error:
        told = error.stderr.strip().splitlines()[-1:] or ["git failed"]
        raise CasebookError(f"the older code cannot be had: {told[0]}") from None
    return done.stdout.strip()


@contextmanager
def _older_code(
    folder: Path | None, overrides: Mapping[str, Any] | None = None
) -> Iterator[Callable[..., dict[str, Any] | None]]:
    """A function that asks the code in a folder what it makes of a record; `None` without one."""
    if folder is None:
        yield lambda *job: None
        return
    environment = os.environ | {
        "PYTHONPATH": str(folder / "src"),
        "CASEBOOK_ROOT": str(folder),
        "CASEBOOK_MODELS": str(paths.models_dir()),
        "RUNS_DIR": str(paths.runs_dir()),
    }
    command = [sys.executable, "-c", Path(repeating.__file__).read_text(encoding="utf-8")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with tempfile.TemporaryFile("w+") as said:
        older = subprocess.Popen(command, env=environment, cwd=folder, stderr=said, **pipes)

        def ask(case: str, profile: str, arm: str, seed: int) -> dict[str, Any]:
            name = f"{case}/{profile}/{arm}/seed{seed}"
            line = json.dumps({"name": name, "overrides": dict(overrides or {})})
            try:
                print(line, file=older.stdin, flush=True)
                answer = older.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if not answer:
                older.wait()
                said.seek(0)
                last = said.read().strip().splitlines()[-1:] or ["it ended without a word"]
                raise CasebookError(f"the older code cannot run: {last[0]}")
            return json.loads(answer)

        try:
            yield ask
        finally:
            older.kill()
            older.communicate()


def as_json(results: Iterable[Replay]) -> list[dict[str, Any]]:
    """Replays with every comparison, as JSON's own types."""
    return [plain(asdict(result)) for result in results]
