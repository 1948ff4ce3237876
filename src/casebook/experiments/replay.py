"""Does today's code still do what the records say?

A replay repeats what can be repeated in seconds and compares it with the record: all of its
`before` figures, the validation at step 0, the first steps of its curve, and, where they are
committed, the adapter's `after` figures and the grades and reward parts of the completions.
Weights, rows, configuration, rewards, graders and training code all act on these figures; a change
that acts on none of them is no change of behaviour. `findings`, which older records keep, is what
the rules of their commit said of the run: `casebook doctor` says it anew from the curve.

Figures are equal to the last digit on the same kind of machine with memory for the same batches.
Elsewhere greedy figures may differ by one row and windows of the curve by 1e-3; beyond that
nothing can be said. Where a real model was not fetched, or a run was made on a GPU, only what
needs no model is repeated: settings and grades.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from casebook import training
from casebook.case import CasebookError, load_case
from casebook.experiments import arms
from casebook.models import base_weights, load_saved, pretrained
from casebook.paths import plain
from casebook.records import has_test_figures, machine, read_record, read_rows
from casebook.records.record import DIGITS
from casebook.settings import read_arms

STEPS = training.CURVE_WINDOW  # the first window of a recorded curve
WRITTEN = ("completion", "reward", "advantage")
NEAR = 1e-3  # of a window's mean, on another kind of machine
UNKNOWN = "not comparable"
NOT_COMPARED = ("seconds", "step_time", "batch", "use_cpu")  # of hour and place, not of the code
# A completion alone does not decide these: a KL wants its policies, a coin is tossed anew.
NOT_PAID_AGAIN = (training.KL_PENALTY, "random_reward")


class Comparison(NamedTuple):
    """One figure of a record and what came out today."""

    what: str  # the way to the figure, as in `before/greedy_accuracy/value`
    recorded: Any
    replayed: Any
    verdict: str  # `same`, `differs` or `not comparable`

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.recorded}, replayed {self.replayed}"


class Replay(NamedTuple):
    """What a replay of one record found.

    The verdict is `reproduces`, `differs`, `not comparable` (on this machine), or `regraded` for a
    run that was made on a GPU: its completions were graded again.
    """

    name: str  # of the record, `case/profile/arm/seedN`
    verdict: str
    comparisons: list[Comparison]
    missing: str  # what would have to be here for a comparison; empty where nothing is missing
    seconds: float

    @property
    def first_difference(self) -> Comparison | None:
        """The first comparison that is not the same, in the order they were made."""
        return next((c for c in self.comparisons if c.verdict != "same"), None)

    def __str__(self) -> str:
        if self.missing and self.verdict == UNKNOWN:
            return f"{self.name}: {self.verdict}: {self.missing}"
        if first := self.first_difference:
            return f"{self.name}: {self.verdict}: {first}"
        count = len(self.comparisons)
        return f"{self.name}: {self.verdict}, {count} figures, {self.seconds:.0f} s"


def replay(
    paths: Iterable[Path], jobs: int = 1, log: Callable[[Replay], None] = print
) -> list[Replay]:
    """Replay committed records; nothing is written.

    Args:
        paths: of the records, as `records.recorded` finds them.
        jobs: replays at a time, each in a process with one thread.
        log: called with what each found.

    Raises:
        CasebookError: a record cannot be read or repeated.
    """
    done = []
    with arms.workers(jobs) as submit:
        for result in submit(_replayed, [(path,) for path in paths]):
            log(result)
            done.append(result)
    return done


def _replayed(path: Path) -> Replay:
    record = read_record(path)
    try:
        return replay_record(record)
    except Exception as error:
        raise CasebookError(f"{_name(record)} cannot be replayed: {error}") from error


def replay_record(record: Mapping[str, Any]) -> Replay:
    """Replay one record, as `read_record` gives it, in this process."""
    started = time.perf_counter()
    compare = _Comparer(record)
    compare.tree("config", record["config"], _configured(record))
    _compare_grades(record, compare)
    _compare_completions(record, compare)
    gpu = not record["config"]["use_cpu"]
    missing = "" if gpu else _missing(record)
    if not missing and not gpu:
        _compare_training(record, compare)
    verdicts = {found.verdict for found in compare.found}
    if "differs" in verdicts:
        verdict = "differs"
    elif missing or UNKNOWN in verdicts:
        verdict = UNKNOWN
    else:
        verdict = "regraded" if gpu else "reproduces"
    seconds = time.perf_counter() - started
    return Replay(_name(record), verdict, compare.found, missing, seconds)


# What is compared


def _compare_training(record: Mapping[str, Any], compare: "_Comparer") -> None:
    """Measure and train again, as far as that takes seconds."""
    config, today = _parsed(record), {}
    weights = record["provenance"]["model"]["weights"]
    compare.exactly("weights", weights, base_weights(record["config"]))
    inputs = training.input_digests(config)
    compare.exactly("inputs", record["inputs"], {n: inputs.get(n) for n in record["inputs"]})
    if has_test_figures(record):
        today["before"], today["completions_before"] = training.measure_base(config)
    kept = arms.kept_completions(record)
    if kept and (adapter := kept.with_name("adapter")).is_dir():
        today["after"], rows = training.measure_test(config, *load_saved(adapter)[:2])
        today["completions"] = training.kept_rows(rows)
    for name, figures in today.items():
        then = record.get(name)
        if name == "after":  # its drift is the last of the validation, not of test rows
            then = {key: value for key, value in then.items() if key != "kl_from_base"}
        if then is not None:
            compare.tree(name, then, plain(figures))
    with tempfile.TemporaryDirectory() as folder:
        _compare_steps(record, training.first_steps(config, Path(folder) / "run", STEPS), compare)


def _compare_steps(record: Mapping[str, Any], run: training.Run, compare: "_Comparer") -> None:
    """Compare what the first steps of a training leave."""
    early = sum(step <= STEPS for step in record["validation"].get("step", []))
    validation = {name: values[:early] for name, values in record["validation"].items()}
    today = plain(run.validation().round(4).to_dict("list"))
    compare.tree("validation", validation, today, row=1 / record["config"]["evaluate_rows"])
    curve = {name: values[:1] for name, values in record["curve"].items()}
    compare.tree("curve", curve, plain(training.curve(run.metrics())))
    then, now = _kept_completions(record), run.completions()
    if len(then) and len(now):
        then = then[then["step"] <= STEPS][[*WRITTEN]].to_dict("list")
        compare.tree("written", then, plain(now[[*WRITTEN]].round(DIGITS).to_dict("list")))


def _configured(record: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration that the arm has today; the record's own where nothing names the arm."""
    arm = read_arms(record["case"]).get(record["arm"])
    if arm is None or arm["profile"] != record["profile"]:
        return record["config"]
    overrides = {**arm["overrides"], "seed": record["seed"]}
    return plain(training.read_config((record["case"], record["profile"]), overrides).settings)


def _parsed(record: Mapping[str, Any]) -> training.Config:
    return training.read_config((record["case"], record["profile"]), record["config"])


def _kept_completions(record: Mapping[str, Any]) -> pd.DataFrame:
    """The committed completions of this run; an empty frame where it keeps none."""
    kept = arms.kept_completions(record)
    return read_rows(kept) if kept and kept.exists() else pd.DataFrame()


def _compare_grades(record: Mapping[str, Any], compare: "_Comparer") -> None:
    """Grade the test completions that the record holds again."""
    if kept := record.get("completions"):
        variant = record["config"]["variant"]
        rows = load_case(record["case"]).load("test", record["profile"], variant=variant)
        for entry in kept:
            asked = entry | {"answer": rows["answer"][entry["row"]]}
            compare.grade(f"test row {entry['row']}", record, asked)


def _compare_completions(record: Mapping[str, Any], compare: "_Comparer") -> None:
    """Grade the committed completions of this run again, and pay them again."""
    written = _kept_completions(record)
    if written.empty:
        return
    for number, entry in enumerate(written.to_dict("records")):
        compare.grade(f"completion {number}", record, entry)
    variant = record["config"]["variant"]
    rows = load_case(record["case"]).load("train", record["profile"], record["seed"], variant)
    by_prompt = {training.text_of(row["prompt"]): row for row in rows}
    if gone := set(written["prompt"]) - set(by_prompt):
        return compare.exactly("prompts that are no training rows now", 0, len(gone))
    columns = pd.DataFrame([by_prompt[prompt] for prompt in written["prompt"]]).to_dict("list")
    columns["prompts"] = columns.pop("prompt")
    columns["completions"] = written["completion"].tolist()
    if isinstance(columns["prompts"][0], list):
        columns["completions"] = [
            [{"role": "assistant", "content": text}] for text in columns["completions"]
        ]
    columns["completion_ids"] = [[0]] * len(written)
    for reward in training.reward_functions(_parsed(record)):
        name = f"reward/{reward.__name__}"
        if name in written and reward.__name__ not in NOT_PAID_AGAIN:
            paid = [round(float(value), DIGITS) for value in reward(**columns)]
            compare.tree(name, written[name].tolist(), paid)


def _missing(record: Mapping[str, Any]) -> str:
    """What is not here that the run stands on, as an advice; empty where nothing is missing."""
    model = record["provenance"]["model"]
    name, then = model["name"], model.get("source")
    if then is None or (here := pretrained.which(name)) == then:
        return ""
    if here == "hub":
        return f"{name} is not here: make smol fetches the model"
    return f"the record is of {name} from {then}, and here it would be {name} from {here}"


def _name(record: Mapping[str, Any]) -> str:
    return f"{record['case']}/{record['profile']}/{record['arm']}/seed{record['seed']}"


# How two figures are compared


class _Comparer:
    """Compares figure by figure: to the last digit on the kind of machine that made the record."""

    def __init__(self, record: Mapping[str, Any]):
        self.alike = record["provenance"]["machine"] == machine()
        self.found: list[Comparison] = []

    def exactly(self, what: str, recorded: Any, replayed: Any) -> None:
        """Compare what does not depend on the machine."""
        recorded, replayed = plain(recorded), plain(replayed)
        verdict = "same" if recorded == replayed else "differs"
        self.found.append(Comparison(what, recorded, replayed, verdict))

    def grade(self, what: str, record: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
        """Compare what a completion was found to be worth with what it is today."""
        grade = load_case(record["case"]).grade
        found = grade(entry["completion"], entry["answer"], variant=record["config"]["variant"])
        self.exactly(
            f"{what}: well formed, answer, correct",
            [entry["well_formed"], entry["extracted"], entry["correct"]],
            [found.well_formed, found.answer, found.correct],
        )

    def tree(self, what: str, recorded: Any, replayed: Any, row: float = 0.0) -> None:
        """Compare two trees of figures, leaf by leaf; `row` is what one row is worth in them."""
        if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
            row = 1 / recorded["n"] if recorded.get("n") else row
            # A figure that today's code gives besides is no difference; a setting is one.
            for name in {**recorded, **(replayed if what == "config" else {})}:
                if name not in NOT_COMPARED:
                    pair = (part.get(name, "nothing") for part in (recorded, replayed))
                    self.tree(f"{what}/{name}", *pair, row)
        elif isinstance(recorded, list) and isinstance(replayed, list) and recorded != replayed:
            for i, pair in enumerate(zip_longest(recorded, replayed, fillvalue="nothing")):
                self.tree(f"{what}/{i}", *pair, row)
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
