"""Whether a bundle is what it says: nothing in it is believed that can be computed again.

The order is from cheap to dear: shapes, names, configuration, coverage, rows, grades, figures. The
first difference is the answer, one sentence that names it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from casebook.bundle import contents, measured
from casebook.bundle.archive import (
    MEBIBYTE,
    CannotCheck,
    Refused,
    json_bytes,
    parse,
    parse_lines,
    sha256,
)
from casebook.bundle.scrub import private_in
from casebook.case import PROFILES, CasebookError, known_cases
from casebook.evaluation import Evaluation
from casebook.models import base_weights, model_source
from casebook.paths import plain
from casebook.settings import checked
from casebook.training.config import Config
from casebook.training.log import curve, skipped_steps
from casebook.training.measure import input_digests

SMALL = ("record.json", "config.json", "environment.json", "model.json", "measured.json")
PREFLIGHT = "preflight.json"
# What of a record is taken over as its sender reports it: nothing that a claim may rest on.
REPORTED = (
    *("provenance", "rows_dropped", "steps", "samples", "accepted", "train_seconds"),
    *("measure_seconds", "samples_per_second", "peak_memory_mb", "adapter_largest_change"),
    *("curve", "validation", "findings", "processes", "skipped_steps", "predicted"),
)
GRADED = ("before", "after", "completions", "completions_before")
CHECKED = ("case", "profile", "arm", "seed", "config", "inputs", "code")
OF_PROVENANCE = {"versions", "hardware", "threads", "machine", "git", "time", "model"}
OF_HARDWARE = ("cpu", "cores", "memory_gb", "gpu", "gpu_memory", "gpu_driver")
OF_MODEL = ("name", "weights", "revision", "dtype", "load_in_4bit", "generator")
OF_PREDICTED = {"rows", "memory_ratio", "median_time_ratio", "seconds_by"}
OF_PREDICTION = {"name", "unit", "predicted", "actual", "ratio"}
COUNTS = ("processes", "skipped_steps")  # a record has them where there is something to count
AMOUNTS = ("train_seconds", "measure_seconds", "samples_per_second", "steps", "samples")
PLAIN_TEXT = re.compile(r"[^<>&\"`$\x00-\x1f\x7f]{0,500}")  # pages show it
# No page shows a preflight, which names the tokens that end a completion: `<|im_end|>`.
PRINTABLE = re.compile(r"[^\x00-\x1f\x7f-\x9f]{0,2000}")
DEEPEST = 12
LARGEST_RECORD = 2 * MEBIBYTE  # it is committed; one with 64 completions of 1,024 tokens has 0.4
MOST_COMPLETIONS = 1_000_000  # of one file
# Together they bound what a table of the logged lines takes: 80 MB at most.
MOST_LINES = 20_000  # the longest run of a profile logs 2,400 steps
MOST_COLUMNS = 256  # a run logs about 40
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+\d:.Z-]{0,20}")
HASH = re.compile(r"[0-9a-f]{64}")
# What Python and pandas raise on values of a wrong type, which no list of types foresees.
FAULTS = (
    *(TypeError, KeyError, AttributeError, IndexError, ValueError, OverflowError),
    *(ArithmeticError, RecursionError),
)


@dataclass(frozen=True)
class Checked:
    """A bundle whose figures are what its completions give.

    Attributes:
        record: as it is written down, with the figures that were computed here.
        completions: how many were graded again.
        not_checked: what could not be looked at here, in words.
    """

    record: dict[str, Any]
    completions: int
    not_checked: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """One line that says what was looked at."""
        said = f"{self.completions:,} completions graded again, all figures as recorded"
        return "; ".join([said, *(f"not checked: {text}" for text in self.not_checked)])


def check(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> Checked:
    """Grade the completions of a bundle again, and compare all that can be computed.

    Args:
        manifest, files: as `archive.unpacked` gives them.

    Raises:
        Refused: something is not as the bundle says; the sentence names it.
        CannotCheck: the rows that the completions answer are not here, or not enough memory.
    """
    try:
        return _check(manifest, files)
    except (Refused, CannotCheck):
        raise
    except CasebookError as error:
        raise Refused(str(error)) from None
    except FAULTS as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refused(f"the bundle's files are not built as a record is: {said[:200]}") from error
    except MemoryError:
        raise CannotCheck("this machine has not the memory to check the bundle") from None


def _check(manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> Checked:
    parts = {name: parse(name, files[name]) for name in SMALL}
    if PREFLIGHT in files:
        parts[PREFLIGHT] = parse(PREFLIGHT, files[PREFLIGHT])
    metrics = parse_lines("metrics.jsonl", files["metrics.jsonl"])
    record = parts["record.json"]
    for name, value in ({"manifest.json": manifest} | parts | {"metrics.jsonl": metrics}).items():
        if name == "record.json":  # what is computed again holds texts of a model
            value = {key: part for key, part in value.items() if key not in GRADED}
        _check_presentable(name, value)
    _check_record(record)
    config = _configured(manifest, parts)
    _check_model(parts, config)
    if parts["environment.json"] != contents.environment(record["provenance"]):
        raise Refused("environment.json is not the environment of the record's provenance")
    found, count = _graded(config, parts, files)
    _check_inputs(record, config)
    _check_metrics(record, metrics, config)
    made, left_out = _figures(record, config, found)
    not_checked = []
    if not _check_texts(config, files):
        not_checked.append("that the texts are what their tokens say")
    model = parts["model.json"]
    if not model["revision"] and not model["weights"]:
        not_checked.append("which revision of the base model it was")
    made["contributed"] = _contributed(manifest, parts, files) | left_out
    if len(json_bytes(made)) > LARGEST_RECORD:
        raise Refused(f"the record would have more than {LARGEST_RECORD // MEBIBYTE} MiB")
    return Checked(made, count, not_checked)


# Shapes


def _check_presentable(name: str, value: Any) -> None:
    """Refuse what no page or terminal could show, and what its sender would not want shown."""
    _check_plain(name, value, PRINTABLE if name == PREFLIGHT else PLAIN_TEXT)
    if kind := private_in(value):
        raise Refused(f"{name} holds private text ({kind}): export the run again")


def _check_plain(name: str, value: Any, allowed: re.Pattern[str], depth: int = 0) -> None:
    """Refuse what no page could show: markup, control characters, trees without an end."""
    if depth > DEEPEST:
        raise Refused(f"{name} is nested deeper than {DEEPEST} levels")
    if isinstance(value, str) and not allowed.fullmatch(value):
        raise Refused(f"{name} has a text that no record has: {value[:60]!r}")
    if type(value) in (int, float) and abs(value) > 1e18:
        raise Refused(f"{name} has a number that no record has")
    if isinstance(value, Mapping):
        for key, entry in value.items():
            _check_plain(name, key, allowed, depth)
            _check_plain(name, entry, allowed, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check_plain(name, entry, allowed, depth + 1)


def _check_record(record: Mapping[str, Any]) -> None:
    wanted = {"case": str, "profile": str, "seed": int, "config": dict, "provenance": dict}
    wanted |= {"inputs": dict, "before": dict, "after": dict, "curve": dict, "validation": dict}
    for name, kind in wanted.items():
        if type(record.get(name)) is not kind:
            raise Refused(f"record.json has no {name} that can be read")
    for name in AMOUNTS:
        value = record.get(name)
        if type(value) not in (int, float) or value < 0:
            raise Refused(f"{name} in record.json is {value!r}, and no amount")
    for name in ("curve", "validation"):
        for column, values in record[name].items():
            numbers = isinstance(values, list) and all(
                value is None or type(value) in (int, float) for value in values
            )
            if not numbers:
                raise Refused(f"{name}/{column} in record.json is no list of numbers")
    for name in COUNTS:
        if name in record and (type(record[name]) is not int or record[name] < 1):
            raise Refused(f"{name} in record.json is {record[name]!r}, and no count")
    if record.get("predicted") is not None:
        _check_predicted(record["predicted"])
    _check_provenance(record["provenance"])


def _check_predicted(predicted: Any) -> None:
    """Refuse what does not set predicted figures beside actual ones."""
    whole = isinstance(predicted, dict) and set(predicted) == OF_PREDICTED
    rows = predicted["rows"] if whole else None
    if not isinstance(rows, list) or not isinstance(predicted["seconds_by"], str):
        raise Refused("predicted in record.json is not built as a record's is")
    ratios = [predicted["memory_ratio"], predicted["median_time_ratio"]]
    for row in rows:
        named = isinstance(row, dict) and set(row) == OF_PREDICTION
        if not named or any(type(row[text]) is not str for text in ("name", "unit")):
            raise Refused("predicted/rows in record.json are not built as a record's are")
        ratios += [row["predicted"], row["actual"], row["ratio"]]
    if any(value is not None and type(value) not in (int, float) for value in ratios):
        raise Refused("predicted in record.json has a figure that is no number")


def _check_provenance(provenance: Mapping[str, Any]) -> None:
    parts = ("versions", "hardware", "machine", "git", "model")
    whole = set(provenance) >= OF_PROVENANCE
    if not whole or any(type(provenance[part]) is not dict for part in parts):
        raise Refused("the provenance in record.json is not built as a record's is")
    if not isinstance(provenance["time"], str) or not TIME.fullmatch(provenance["time"]):
        raise Refused("the provenance in record.json has no time")
    for part, names in {"hardware": OF_HARDWARE, "model": OF_MODEL}.items():
        if missing := [name for name in names if name not in provenance[part]]:
            raise Refused(f"the provenance in record.json says no {part}/{missing[0]}")
    for part in parts:
        for name, value in provenance[part].items():
            if isinstance(value, list | dict) and name != "began_with":
                raise Refused(
                    f"{part}/{name} in the record's provenance is neither text nor number"
                )


# Configuration and model


def _configured(manifest: Mapping[str, Any], parts: Mapping[str, Any]) -> Config:
    """The configuration, if all files agree on it and it is a profile's with stated overrides."""
    record, config = parts["record.json"], parts["config.json"]
    case, profile, seed = record["case"], record["profile"], record["seed"]
    if case not in known_cases() or profile not in PROFILES:
        raise Refused(f"there is no case and profile {case!r}, {profile!r} here")
    if profile == "smoke":
        raise Refused("figures of the profile 'smoke' are never results")
    if record["config"] != config:
        raise Refused(f"config.json is not the record's configuration: {_first(record, config)}")
    for name, value in {"case": case, "profile": profile, "seed": seed}.items():
        if manifest.get(name) != value:
            raise Refused(f"manifest.json says {name} {manifest.get(name)!r}, the record {value!r}")
        if config.get(name) != value:
            raise Refused(
                f"the configuration says {name} {config.get(name)!r}, the record {value!r}"
            )
    stated = manifest.get("overrides")
    own = contents.overrides(config)
    if stated != own:
        names = set(own) | set(stated if isinstance(stated, dict) else ())
        odd = [n for n in sorted(names) if n not in own or n not in stated or own[n] != stated[n]]
        raise Refused(
            f"the configuration is not configs/{case}/{profile}.yaml with the overrides that the "
            f"manifest states: {', '.join(odd[:3]) or 'none are stated'}"
        )
    if plain(checked((case, profile), config)) != config:
        raise Refused(f"the configuration is no whole one of {case}/{profile}")
    if config.get("measure") == "validation":
        raise Refused("the run was not measured on test rows")
    return contents.to_read(config)


def _first(record: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    own, names = record["config"], sorted({*record["config"], *config})
    return next(n for n in names if n not in own or n not in config or own[n] != config[n])


def _check_model(parts: Mapping[str, Any], config: Config) -> None:
    """Refuse a model that is not the record's, or that cannot be told from another."""
    recorded, model = parts["record.json"]["provenance"]["model"], parts["model.json"]
    if set(model) != {*recorded, "adapter"}:
        raise Refused("model.json is not the model of the record")
    for name, value in recorded.items():
        if value is not None and model[name] != value:
            raise Refused(f"model.json says another {name} than the record")
    if model["name"] != config.settings["model_name_or_path"]:
        raise Refused(f"the record is of the model {model['name']!r}, its configuration of another")
    if not isinstance(model["adapter"], str) or not HASH.fullmatch(model["adapter"]):
        raise Refused("model.json has no SHA-256 of the adapter")
    here = base_weights(config.settings) if PROFILES[config.profile].embedded else None
    if here and here != model["weights"]:
        raise Refused("the base model's weights are not those of the embedded model here")


# Rows, completions, figures


def _graded(
    config: Config, parts: Mapping[str, Any], files: Mapping[str, bytes]
) -> tuple[dict[tuple[str, str], Evaluation], int]:
    """Every completion with today's grade: (when, file) -> evaluation; and how many there are."""
    plans, said = measured.plan(config), parts["measured.json"]
    wanted = {f"completions/{when}/{name}.jsonl" for when in measured.WHEN for name in plans}
    there = {name for name in files if name.startswith("completions/")}
    for name in sorted(wanted ^ there):
        verb = "is missing from" if name in wanted else "does not belong into"
        raise Refused(f"{name} {verb} the bundle of such a configuration")
    ends, dropped = _decoded(said, plans)
    rows = measured.Rows(config.case, config.profile)
    longest, found, count = config.max_completion_length, {}, 0
    for when in measured.WHEN:
        for name, one in plans.items():
            file = f"completions/{when}/{name}.jsonl"
            lines = parse_lines(file, files[file])
            measured.check_lines(file, lines)
            asked = rows.of(one.variant, one.limit)
            if len(asked) * (one.greedy + one.samples) > MOST_COMPLETIONS:
                raise Refused(f"{file} would need more than {MOST_COMPLETIONS:,} completions")
            measured.check_dropped(file, dropped[name], asked["prompt"], config)
            measured.check_coverage(file, lines, one, asked, dropped[name])
            measured.check_lengths(file, lines, ends, longest)
            found[when, name] = measured.graded(rows, one, lines, ends)
            count += len(lines)
    return found, count


def _decoded(
    said: Mapping[str, Any], plans: Mapping[str, measured.Measurement]
) -> tuple[list[int], dict[str, Any]]:
    """The tokens that end a completion and the rows left out, if all else is as configured."""
    ends, listed = said.get("ends"), said.get("files")
    if not isinstance(ends, list) or not ends or any(type(token) is not int for token in ends):
        raise Refused("measured.json names no tokens that end a completion")
    if not isinstance(listed, dict) or set(listed) != set(plans):
        raise Refused("measured.json is not of the files that the configuration asks for")
    dropped = {}
    for name, one in plans.items():
        decoding = dict(listed[name])
        dropped[name] = decoding.pop("dropped", None)
        for key in sorted({*decoding, *one.decoding}):
            if key not in decoding or plain(one.decoding.get(key)) != decoding[key]:
                raise Refused(
                    f"measured.json says another {key} for {name} than the configuration: the "
                    "decoding was changed"
                )
    return ends, dropped


def _check_inputs(record: Mapping[str, Any], config: Config) -> None:
    """Refuse rows that are not those of the case, its profile and this seed."""
    try:
        here = input_digests(config)["rows"]
    except (CasebookError, OSError) as error:
        raise CannotCheck(f"the rows of {config.case} are not here: {error}") from None
    recorded = record["inputs"].get("rows")
    for split, mark in here.items():
        if not isinstance(recorded, dict) or recorded.get(split) != mark:
            raise Refused(
                f"the {split} rows of the record are not those of {config.case}/{config.profile} "
                f"with seed {config.seed}"
            )


def _check_metrics(
    record: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], config: Config
) -> None:
    """Refuse a curve or validation that the logged lines do not give."""
    _check_logged(metrics, config)
    kinds = {
        kind: pd.DataFrame([line for line in metrics if line.get("kind") == kind]).drop(
            columns="kind", errors="ignore"
        )
        for kind in ("train", "validation")
    }
    if record["steps"] != config.max_steps:
        raise Refused(
            f"the record has {record['steps']} steps, the configuration {config.max_steps}"
        )
    last = kinds["train"]["step"].max() if len(kinds["train"]) else 0
    if not config.max_steps - config.logging_steps < last <= config.max_steps:
        raise Refused(f"metrics.jsonl ends at step {last} of {config.max_steps}")
    computed = {
        "curve": plain(curve(kinds["train"])),
        "validation": plain(kinds["validation"].round(4).to_dict("list")),
    }
    for name, value in computed.items():
        if any(type(step) is not int for step in record[name].get("step", [])):
            raise Refused(f"{name}/step in record.json has a step that is no whole number")
        if set(record[name]) != set(value):
            raise Refused(f"{name} in record.json has other columns than metrics.jsonl")
        _refuse_first(measured.differences(record[name], value, name), "metrics.jsonl")
    if record.get("skipped_steps", 0) != (skipped := skipped_steps(kinds["train"])):
        raise Refused(
            f"record.json says {record.get('skipped_steps', 0)} skipped steps, metrics.jsonl "
            f"{skipped}"
        )


def _check_logged(metrics: Sequence[Mapping[str, Any]], config: Config) -> None:
    """Refuse lines that are not numbers at a step, and more of them than a table should hold."""
    if len(metrics) > MOST_LINES:
        raise Refused(f"metrics.jsonl has {len(metrics)} lines, and at most {MOST_LINES} are read")
    columns: set[str] = set()
    for number, line in enumerate(metrics, 1):
        where = f"line {number} of metrics.jsonl"
        if line.get("kind") not in ("train", "validation"):
            raise Refused(f"{where} is neither of the training nor of a validation")
        step = line.get("step")
        if type(step) is not int or not 0 <= step <= config.max_steps:
            raise Refused(f"{where} has no step from 0 to {config.max_steps}")
        for name, value in line.items():
            if name != "kind" and value is not None and type(value) not in (int, float):
                raise Refused(f"{name[:60]!r} in {where} is no number")
        columns.update(line)
        if len(columns) > MOST_COLUMNS:
            raise Refused(f"metrics.jsonl has more than {MOST_COLUMNS} columns")


def _figures(
    record: Mapping[str, Any], config: Config, found: Mapping[tuple[str, str], Evaluation]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record with figures computed here, and what of the sender's it does not take over."""
    plans, reported = measured.plan(config), {}
    made = {name: record[name] for name in REPORTED if name in record}
    made |= {name: record[name] for name in ("case", "profile", "seed", "config", "inputs")}
    for when in measured.WHEN:
        computed = plain(measured.figures(plans, {name: found[when, name] for name in plans}))
        different = measured.differences(record[when], computed, when, more=True)
        _refuse_first(different, "its completions")
        made[when] = computed
        reported[when] = measured.ungraded(record[when], computed)
        _check_presentable(f"{when} in record.json", reported[when])
        name = "completions_before" if when == "before" else "completions"
        kept = plain(measured.kept(when, found[when, measured.MAIN]))
        _refuse_first(measured.differences(record.get(name), kept, name), "its completions")
        made[name] = kept
    unknown = sorted(set(record) - {*REPORTED, *GRADED, *CHECKED})
    return made, {"reported": reported, "left_out": unknown}


def _refuse_first(different: Iterator[str], source: str) -> None:
    if where := next(different, None):
        raise Refused(f"{where} in record.json is not what comes out of {source}")


def _check_texts(config: Config, files: Mapping[str, bytes]) -> bool:
    """Refuse texts that are not what their tokens say; `False` where no tokenizer is here.

    Asked of the embedded models alone, whose tokenizers ship with the casebook.
    """
    if not PROFILES[config.profile].embedded:
        return False
    from transformers import AutoTokenizer

    try:
        name = model_source(config.settings["model_name_or_path"])
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (CasebookError, OSError, ValueError):
        return False
    for name, content in files.items():
        if name.startswith("completions/"):
            measured.check_texts(name, parse_lines(name, content), tokenizer)
    return True


def _contributed(
    manifest: Mapping[str, Any], parts: Mapping[str, Any], files: Mapping[str, bytes]
) -> dict[str, Any]:
    """What a contributed record says of the bundle it came in."""
    return {
        "made": manifest.get("made"),
        "overrides": manifest["overrides"],
        "environment": parts["environment.json"],
        "model": parts["model.json"],
        "completions": _written(files),
        "preflight": parts.get(PREFLIGHT),
    }


def _written(files: Mapping[str, bytes]) -> str:
    """A hash of the tokens written after training, however their lines are laid out."""
    found = [
        [name, line["row"], line["decoding"], line["sample"], line["ids"]]
        for name, content in files.items()
        if name.startswith("completions/after/")
        for line in parse_lines(name, content)
    ]
    return sha256(json.dumps(sorted(found)).encode())
