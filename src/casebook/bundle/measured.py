"""The completions of a run's measuring: which there have to be, and what they are worth.

`training.measure` decides what is written for a configuration, and keeps the token ids of each
completion in the run's folder. `plan` says the same without a model: for each file how many rows,
by which decoding. `figures` grades completions and summarises them by the harness's own code, so
that a record's figures can be computed again from a bundle alone.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from casebook.bundle.archive import CannotCheck, Refused
from casebook.case import CasebookError, load_case
from casebook.evaluation import Evaluation
from casebook.models.generation import decoding_of
from casebook.training.config import Config
from casebook.training.log import text_of
from casebook.training.measure import kept_before, kept_rows

WHEN = ("before", "after")
DECODINGS = ("greedy", "sample")
LINE = {"row", "decoding", "sample", "ids", "completion"}
PASS_AT_K = "pass_at_k"
MAIN = "test"
TEMPLATE = 128  # tokens that a chat template may add around a prompt, generously
NEAR = 1.5e-6  # a record keeps six digits, and another build of NumPy may round the last one

Job = tuple[int, str, int]  # row, decoding, sample


@dataclass(frozen=True)
class Measurement:
    """One file of completions.

    Attributes:
        variant: of the prompt.
        limit: only the first so many rows; 0 for all.
        greedy: whether each row is decoded greedily.
        samples: how often each row is sampled.
        decoding: how, and with which seed, in the words of a bundle's `measured.json`.
        called: the name in `also_evaluate`; empty for the others.
    """

    variant: str
    limit: int
    greedy: bool
    samples: int
    decoding: Mapping[str, Any]
    called: str = ""

    def jobs(self, rows: Iterable[int]) -> list[Job]:
        """What has to be there for some rows, in the harness's order."""
        rows = list(rows)
        wanted = [(row, "greedy", 0) for row in rows if self.greedy]
        return wanted + [(row, "sample", k) for row in rows for k in range(self.samples)]


def plan(config: Config) -> dict[str, Measurement]:
    """What `training.measure_test` writes for a configuration: file -> how it is decoded."""

    def one(limit, samples, changes=None, greedy=True, seed=0, called=""):
        settings = {**config.settings, **(changes or {})}
        limit = settings.get("limit", limit)
        decoding = {
            "split": "test",
            "variant": settings["variant"],
            "constraint": settings.get("constraint", "none"),
            "limit": limit,
            "samples": samples,
            "seed": seed,
            "greedy": decoding_of(settings, greedy=True) if greedy else None,
            "sample": decoding_of(settings) if samples else None,
        }
        return Measurement(settings["variant"], limit, greedy, samples, decoding, called)

    found = {MAIN: one(config.test_limit, config.test_samples)}
    if config.pass_at_k_rows:
        count = config.pass_at_k_samples
        found[PASS_AT_K] = one(config.pass_at_k_rows, count, greedy=False, seed=1)
    for number, (name, changes) in enumerate((config.also_evaluate or {}).items()):
        found[f"also_{number}"] = one(config.test_limit, 0, changes, called=name)
    return found


def lines_of(file: Path, tokenizer: Any) -> list[dict[str, Any]]:
    """The completions that a run keeps in one file, as a bundle holds them.

    Raises:
        CasebookError: the file is missing or damaged.
    """
    try:
        stored = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        jobs = {(row, decoding, k): list(map(int, ids)) for row, decoding, k, ids, _ in stored}
    except FileNotFoundError:
        raise CasebookError(
            f"the run keeps no completions in {file}: they are written where it is measured"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise CasebookError(f"{file} is damaged: {error}") from None
    texts = tokenizer.batch_decode(list(jobs.values()), skip_special_tokens=True)
    return [
        {"row": row, "decoding": decoding, "sample": k, "ids": ids, "completion": text}
        for ((row, decoding, k), ids), text in zip(jobs.items(), texts, strict=True)
    ]


def ends_of(tokenizer: Any, lines: Iterable[Mapping[str, Any]], longest: int) -> list[int]:
    """The tokens that ended these completions.

    The tokenizer's own, and what a completion ends with that is shorter than it might have been:
    a model declares further ends, and nothing else ends one early.
    """
    early = {line["ids"][-1] for line in lines if line["ids"] and len(line["ids"]) < longest}
    return sorted({tokenizer.eos_token_id, *early})


class Rows:
    """The test rows of a case by variant of the prompt, loaded once.

    Raises, when they are asked for:
        CannotCheck: they are not here, as the real problem sets may not be.
    """

    def __init__(self, case: str, profile: str):
        self.case, self.profile = load_case(case), profile
        self._loaded: dict[str, Any] = {}

    def of(self, variant: str, limit: int = 0) -> Any:
        """The rows that a measurement asks, a `datasets.Dataset`."""
        if variant not in self._loaded:
            try:
                self._loaded[variant] = self.case.load("test", self.profile, variant=variant)
            except (CasebookError, OSError) as error:
                raise CannotCheck(f"the rows of {self.case.name} are not here: {error}") from None
        rows = self._loaded[variant]
        return rows.select(range(min(limit or len(rows), len(rows))))


def check_lines(name: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Refuse lines that are not built as a bundle's are."""
    for number, line in enumerate(lines, 1):
        kinds = {"row": int, "sample": int, "decoding": str, "completion": str, "ids": list}
        if set(line) != LINE or any(type(line[field]) is not kinds[field] for field in LINE):
            raise Refused(f"line {number} of {name} is no completion: it needs {sorted(LINE)}")
        if not all(type(token) is int and token >= 0 for token in line["ids"]):
            raise Refused(f"line {number} of {name} has ids that are no token ids")


def check_coverage(
    name: str,
    lines: Sequence[Mapping[str, Any]],
    wanted: Measurement,
    rows: Any,
    dropped: Sequence[int],
) -> None:
    """Refuse a file that has not each row of the test split exactly as often as it should."""
    kept = sorted(set(range(len(rows))) - set(dropped))
    expected, seen = set(wanted.jobs(kept)), set()
    for line in lines:
        job = (line["row"], line["decoding"], line["sample"])
        if job in seen:
            raise Refused(f"{name} has row {_called(job)} twice")
        if job not in expected:
            raise Refused(
                f"{name} has row {_called(job)}, which the configuration does not ask for"
            )
        seen.add(job)
    if missing := sorted(expected - seen):
        raise Refused(f"{name} lacks row {_called(missing[0])} ({len(missing)} are missing)")


def check_dropped(name: str, dropped: Any, prompts: Sequence[Any], config: Config) -> None:
    """Refuse to leave out a row whose prompt fits.

    A prompt has no more tokens than bytes, and the chat template adds a few.
    """
    valid = isinstance(dropped, list) and all(type(row) is int for row in dropped)
    if not valid or not set(dropped) <= set(range(len(prompts))):
        raise Refused(f"measured.json names rows left out of {name} that the split does not have")
    room = config.max_seq_length - config.max_completion_length
    for row in dropped:
        around = 0 if isinstance(prompts[row], str) else TEMPLATE
        if len(text_of(prompts[row]).encode()) + around <= room:
            raise Refused(f"row {row} is left out of {name}, and its prompt leaves room")


def check_lengths(
    name: str, lines: Sequence[Mapping[str, Any]], ends: Sequence[int], longest: int
) -> None:
    """Refuse token ids that a model which stops at its end cannot have written."""
    stops = set(ends)
    for line in lines:
        ids, job = line["ids"], (line["row"], line["decoding"], line["sample"])
        ended = bool(ids) and ids[-1] in stops
        if not ids or len(ids) > longest or (len(ids) < longest and not ended):
            raise Refused(f"{name}, row {_called(job)}: {len(ids)} tokens, and no end")
        if stops.intersection(ids[:-1]):
            raise Refused(f"{name}, row {_called(job)} goes on after its end")


def check_texts(name: str, lines: Sequence[Mapping[str, Any]], tokenizer: Any) -> None:
    """Refuse texts that are not what their token ids say."""
    known = len(tokenizer)
    for line in lines:
        job = (line["row"], line["decoding"], line["sample"])
        fits = max(line["ids"], default=0) < known
        if (
            not fits
            or tokenizer.decode(line["ids"], skip_special_tokens=True) != line["completion"]
        ):
            raise Refused(f"{name}, row {_called(job)}: the text is not what its tokens say")


def graded(
    rows: Rows, wanted: Measurement, lines: Sequence[Mapping[str, Any]], ends: Sequence[int]
) -> Evaluation:
    """The completions with today's grades, as the harness has them after a measuring."""
    asked = rows.of(wanted.variant, wanted.limit)
    by_job = {(line["row"], line["decoding"], line["sample"]): line for line in lines}
    jobs = [job for job in wanted.jobs(range(len(asked))) if job in by_job]
    columns, stops, table = list(asked), set(ends), []
    for job in jobs:
        row, line = dict(columns[job[0]]), by_job[job]
        grade = rows.case.grade(line["completion"], row["answer"], variant=wanted.variant)
        row |= {"row": job[0], "decoding": job[1], "sample": job[2]}
        row |= {"completion": line["completion"], "tokens": len(line["ids"])}
        row |= {"truncated": not line["ids"] or line["ids"][-1] not in stops}
        row |= {"well_formed": grade.well_formed, "extracted": grade.answer}
        table.append(row | {"correct": grade.correct, "strict": grade.strict})
    return Evaluation(pd.DataFrame(table), rows.case.labels)


def figures(plans: Mapping[str, Measurement], found: Mapping[str, Evaluation]) -> dict[str, Any]:
    """What a record says before or after, from the graded completions."""
    said = found[MAIN].summary()
    if PASS_AT_K in found:
        said[PASS_AT_K] = found[PASS_AT_K].pass_at_k()
    if also := {plans[name].called: found[name].summary() for name in plans if plans[name].called}:
        said["also"] = also
    return said


def kept(when: str, evaluation: Evaluation) -> list[dict[str, Any]]:
    """The few completions that a record keeps in itself."""
    return kept_before(evaluation.rows) if when == "before" else kept_rows(evaluation.rows)


def differences(recorded: Any, computed: Any, where: str, more: bool = False) -> Iterator[str]:
    """The ways to figures of a record that are not what comes out.

    Args:
        recorded, computed: trees of figures.
        where: the way to them.
        more: whether the record may say more than was computed: what its completions cannot show,
            which is not taken over either.
    """
    if isinstance(computed, Mapping):
        if not isinstance(recorded, Mapping):
            yield where
            return
        each = where.partition("/")[2] == "also"  # summaries of their own
        for name, value in computed.items():
            if name not in recorded:
                yield f"{where}/{name}"
            else:
                yield from differences(recorded[name], value, f"{where}/{name}", each)
        yield from (f"{where}/{name}" for name in recorded if name not in computed and not more)
    elif isinstance(computed, list):
        if not isinstance(recorded, list) or len(recorded) != len(computed):
            yield where
            return
        for number, pair in enumerate(zip(recorded, computed, strict=True)):
            yield from differences(*pair, f"{where}/{number}")
    elif not _same(recorded, computed):
        yield where


def ungraded(recorded: Mapping[str, Any], computed: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says before or after that its completions cannot show."""
    return {name: value for name, value in recorded.items() if name not in computed}


def _same(recorded: Any, computed: Any) -> bool:
    numbers = (int, float)
    if type(recorded) in numbers and type(computed) in numbers:
        return abs(recorded - computed) <= NEAR
    return type(recorded) is type(computed) and recorded == computed


def _called(job: Job) -> str:
    row, decoding, sample = job
    return f"{row}, {decoding[:20]} {sample}" if decoding == "sample" else f"{row}, {decoding[:20]}"
