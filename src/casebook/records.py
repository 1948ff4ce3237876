"""Records: what was measured, where it came from, and whether that still holds.

A number in a report is only as good as the way back to what made it. Each training leaves a
record, a JSON file with its figures, its configuration and its provenance, and a *fingerprint*:
a hash of everything that could have changed the figures. Whoever shows a record computes the
fingerprint again; when it differs, the record is flagged as stale. A git revision would not do:
it changes with every comment.

The claims of a source stand in `cases/<case>/claims.yaml`, each with one verdict. What a verdict
may say depends on the evidence: the embedded model can show a mechanism, never a reproduction. Its
verdicts are written nowhere: the file says which figures to compare, and the records decide.
"""

import ast
import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from casebook import paths
from casebook.case import PROFILES, CasebookError, check_name, known_cases, load_case
from casebook.stats import mean_interval, pool_seeds

PACKAGES = {
    "torch": "torch",
    "transformers": "transformers",
    "trl": "trl",
    "peft": "peft",
    "datasets": "datasets",
    "numpy": "numpy",
    "math_verify": "math-verify",
    "casebook": "rlvr-casebook",
    "unsloth": "unsloth",
}
MODULES = ("case", "rewards", "stats", "models", "decoding", "evaluation", "training")
REQUIRED = ("case", "profile", "seed", "provenance")
VERDICTS: Mapping[str, tuple[str, ...]] = {
    "computation": ("confirmed", "refuted"),
    "same model": ("reproduced", "not reproduced", "inconclusive"),
    "other real model": ("reproduced", "not reproduced", "inconclusive"),
    "nano": ("mechanism seen", "mechanism not seen", "inconclusive"),
    "none": ("not run here",),
}
BASIS = {  # evidence -> the field that says where to look
    "computation": "computed_in",
    "same model": "record",
    "other real model": "record",
    "nano": "compare",
    "none": "command",
}
NO_ANSWER = "none"  # in a label histogram: no answer could be read
DIRECTIONS = {"rises": 1, "falls": -1}
SOURCE_FIELDS = ("title", "author", "date", "address", "about")
CORRECTION_FIELDS = ("said", "where", "right", "shown_in")
FEWEST_SEEDS = 3  # below it nothing is claimed about a training

# Files


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Write JSON whole or not at all: into a file beside `path`, which then takes its place.

    Keys are sorted. NumPy numbers and arrays become plain ones; NaN and infinity, which JSON
    does not have, become null.

    Raises:
        CasebookError: something in `content` cannot be written as JSON.
        OSError: the disk is full, or the folder cannot be written; `path` is as it was.
    """
    path = Path(path)
    text = json.dumps(_plain(content), indent=1, sort_keys=True, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def read_record(path: str | os.PathLike) -> dict[str, Any]:
    """Read a record.

    Raises:
        CasebookError: there is no such file, it is not whole, or it is something else.
    """
    path = Path(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CasebookError(f"there is no record at {path}") from None
    except OSError as error:
        raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CasebookError(f"{path} is not valid JSON, perhaps cut short: {error}") from error
    missing = [key for key in REQUIRED if not isinstance(record, dict) or key not in record]
    if missing:
        raise CasebookError(f"{path} is not a record: it has no {', '.join(missing)}")
    return record


def committed(case: str, profile: str, arm: str | None = None) -> list[dict[str, Any]]:
    """The committed records of a case and profile, by arm and seed; an empty list if none.

    Raises:
        UnknownName: unknown case or profile.
        CasebookError: a record cannot be read.
    """
    check_name("case", case, known_cases())
    check_name("profile", profile, PROFILES)
    folder = paths.RESULTS / case / profile
    records = [read_record(path) for path in folder.glob(f"{arm or '*'}/seed*.json")]
    return sorted(records, key=lambda record: (str(record.get("arm")), record["seed"]))


# Where a number came from


def provenance() -> dict[str, Any]:
    """Versions, hardware, threads, git revision and time, without importing any of the packages.

    A package that is not installed is left out; what this machine does not tell is `None`.

    >>> sorted(provenance())
    ['git', 'hardware', 'threads', 'time', 'versions']
    """
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gb": _memory_gb(),
            "gpu": _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        },
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "git": _revision(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def fingerprint(
    case: str,
    config: Mapping[str, Any],
    model_files: Iterable[Path],
    rows_digest: str,
    modules: Iterable[str] = (),
) -> str:
    """A hash of all that decides a measurement: configuration, weights, rows and code.

    Args:
        case: name of the case.
        config: the resolved configuration, without output paths.
        model_files: the files of the base model, hashed by name and content.
        rows_digest: a hash of the rows.
        modules: those of the package that this measurement needs besides `MODULES`.

    Returns:
        16 hexadecimal digits.

    Raises:
        CasebookError: unknown case, or a model file that cannot be read.
    """
    files = {}
    for path in map(Path, model_files):
        try:
            with open(path, "rb") as file:
                files[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CasebookError(f"{path} cannot be read: {error.strerror}") from error
    parts = [_plain(config), files, rows_digest, code_digest(case, modules)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def code_digest(case: str, modules: Iterable[str] = ()) -> str:
    """A hash of the code behind a case's measurements: blind to comments, docstrings and layout.

    Covered are the modules of `MODULES`, those named, and those of the case's own that come with
    loading it. What only a notebook imports, or what made a committed table whose rows count
    themselves, can change without making a measurement stale.

    Raises:
        UnknownName: unknown case.
    """
    check_name("case", case, known_cases())
    package = Path(__file__).parent
    files = [package / f"{name}.py" for name in (*MODULES, *modules)]
    trees = {path: ast.parse(path.read_bytes()) for path in files} | _loaded_with(case)
    trees = {path.relative_to(package).as_posix(): _syntax(tree) for path, tree in trees.items()}
    return hashlib.sha256(json.dumps(trees, sort_keys=True).encode()).hexdigest()


def source_mark(*files: str | os.PathLike) -> str:
    """A hash of modules' code, blind to comments, docstrings and layout: 16 hexadecimal digits.

    For a record of figures that no training is behind: those of the real problem sets.
    """
    trees = [_syntax(ast.parse(Path(file).read_bytes())) for file in files]
    return hashlib.sha256(json.dumps(trees).encode()).hexdigest()[:16]


def _loaded_with(case: str) -> dict[Path, ast.Module]:
    """The case's own modules that are imported when it is loaded, with their syntax trees."""
    folder = Path(__file__).parent / "cases" / case
    trees: dict[Path, ast.Module] = {}
    waiting = [folder / "__init__.py"]
    while waiting:
        path = waiting.pop()
        if path in trees or not path.exists():
            continue
        trees[path] = ast.parse(path.read_bytes())
        for node in trees[path].body:
            # An import inside a function or under TYPE_CHECKING does not come with loading.
            if isinstance(node, ast.ImportFrom) and node.module:
                package, _, name = node.module.partition(f"casebook.cases.{case}")
                if not package and not name:
                    waiting += [folder / f"{alias.name}.py" for alias in node.names]
                elif not package:
                    waiting.append(folder / f"{name.removeprefix('.')}.py")
    return trees


def is_current(record: Mapping[str, Any], fingerprint: str) -> bool:
    """Whether a record was made by what is here now; a record without fingerprint was not.

    >>> is_current({"fingerprint": "0123456789abcdef"}, "0123456789abcdef")
    True
    """
    return record.get("fingerprint") == fingerprint


# How a number is shown


def figure_text(figure: Mapping[str, float], percent: bool = True) -> str:
    """A figure with its 95 % interval as text; `percent` for shares.

    >>> figure_text({"value": 0.884, "low": 0.862, "high": 0.9, "n": 1000})
    '88.4 % [86.2, 90.0]'
    >>> figure_text({"value": 41.26, "low": 40, "high": 42.5, "n": 1000}, percent=False)
    '41.3 [40, 42.5]'
    """
    value, low, high = figure["value"], figure["low"], figure["high"]
    if percent:
        low, high = max(low, 0.0), min(high, 1.0)  # an interval by a normal may leave the shares
        return f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{value:.3g} [{low:.3g}, {high:.3g}]"


def missing(command: str) -> str:
    """What a page says where there is no record: so, and the command that would make one.

    >>> missing("casebook experiments poker")
    '*No recorded run.* This would make one: `casebook experiments poker`'
    """
    return f"*No recorded run.* This would make one: `{command}`"


# Claims


def load_claims(case: str) -> list[dict[str, str]]:
    """The claims of a case's source, with their verdicts; an empty list where none are written.

    Returns:
        One dict a claim: `id`, `claim`, `source` (where it is said), `evidence`, `verdict`, `note`,
        and where to look: `computed_in` (a notebook) for evidence by computation, `record` for
        a run of the source's or another real model, `command` for what was not run. For nano
        evidence the verdict and `measured`, the figures as text, come from the records that
        `compare` names (see `compared`); without them the claim was not run here.

    Raises:
        UnknownName: unknown case.
        CasebookError: the file is no list of claims, or a claim lacks a field, repeats an id,
            or has a verdict that its evidence does not allow; the message names the claim.
    """
    check_name("case", case, known_cases())
    path = Path(__file__).parent / "cases" / case / "claims.yaml"
    if not path.exists():
        return []
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CasebookError(f"{path} is not valid YAML: {error}".replace("\n", " ")) from error
    if not isinstance(rows, list):
        raise CasebookError(f"{path} must be a list of claims")
    seen: set[str] = set()
    for number, row in enumerate(rows, 1):
        name = row.get("id") if isinstance(row, dict) else None
        try:
            _check_claim(row)
            if name in seen:
                raise CasebookError("another claim has the same id")
        except CasebookError as error:
            raise CasebookError(f"{path.name} of {case}, claim {name or number}: {error}") from None
        seen.add(name)
    return [_judged(case, row) for row in rows]


def load_source(case: str) -> dict[str, Any]:
    """The write-up behind a case: what it is, and which of its statements need correcting.

    It stands in `cases/<case>/source.yaml`.

    Returns:
        `title`, `author`, `date`, `address` ("not known" where it is not) and `about`, as text; and
        `corrections`, a list of dicts: what the write-up `said` and `where`, what is `right`, and
        where that is `shown_in`, a notebook's number and heading with a middle dot between.

    Raises:
        UnknownName: unknown case.
        CasebookError: there is no such file, or a field is missing or none of these.
    """
    check_name("case", case, known_cases())
    path = Path(__file__).parent / "cases" / case / "source.yaml"
    try:
        source = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CasebookError(f"{path} cannot be read: {error}".replace("\n", " ")) from error
    try:
        _check_fields(source, {*SOURCE_FIELDS, "corrections"})
        for name in SOURCE_FIELDS:
            _check_text(source, name)
        if not isinstance(source["corrections"], list):
            raise CasebookError("'corrections' must be a list")
        for correction in source["corrections"]:
            _check_fields(correction, set(CORRECTION_FIELDS))
            for name in CORRECTION_FIELDS:
                _check_text(correction, name)
            if not re.fullmatch(r"\d\d · \S.*", correction["shown_in"]):
                raise CasebookError(f"{correction['shown_in']!r} is no '41 · Heading'")
    except CasebookError as error:
        raise CasebookError(f"{path.name} of {case}: {error}") from None
    return source


def _check_fields(row: Any, known: set[str]) -> None:
    if not isinstance(row, dict):
        raise CasebookError(f"expected fields with values, found {str(row)[:40]!r}")
    if extra := sorted(set(map(str, row)) - known):
        raise CasebookError(f"there is no field {extra[0]!r}")


def compared(case: str, comparison: Mapping[str, str]) -> tuple[str, str] | None:
    """What the embedded model's records say about one figure against another.

    Args:
        case: name of the case.
        comparison: `what` is compared, in words; `left` and `right`, each "arm/when/figure" as
            `figures_at` takes it; what is `expected` of it from left to right, `rises` or
            `falls`; and perhaps a `unit`: without one the figures are shares.

    Returns:
        The verdict and the two figures as text, or `None` where an arm has no records. The
        mechanism is *seen* where every seed moves as expected and the pooled 95 % intervals
        (over seeds, then prompts) do not overlap, *not seen* where that holds the other way
        round, and all else is inconclusive, as is what fewer than three seeds say.

    Raises:
        CasebookError: a field is missing, or a record has no such figure.
    """
    for field in ("what", "left", "right", "expected"):
        _check_text(comparison, field)
    check_name("expectation", comparison["expected"], DIRECTIONS)
    sides = [figures_at(case, comparison[side]) for side in ("left", "right")]
    if not all(sides):
        return None
    seeds = sorted(set(sides[0]) & set(sides[1]))
    if not seeds:
        return None
    left, right = (pool_seeds([side[seed] for seed in seeds]) for side in sides)
    sign = DIRECTIONS[comparison["expected"]]
    moves = [sign * (sides[1][seed]["value"] - sides[0][seed]["value"]) for seed in seeds]
    apart = right["low"] > left["high"] or left["low"] > right["high"]
    enough = apart and len(seeds) >= FEWEST_SEEDS
    verdict = "inconclusive"
    if enough and all(move > 0 for move in moves):
        verdict = "mechanism seen"
    elif enough and all(move < 0 for move in moves):
        verdict = "mechanism not seen"
    unit = comparison.get("unit", "")
    texts = [figure_text(figure, percent=not unit) for figure in (left, right)]
    said = f"{texts[0]}, then {texts[1]}{' ' * bool(unit)}{unit}"
    return verdict, f"{comparison['what']}: {said} ({len(seeds)} seeds)"


def commonest_label(histogram: Mapping[str, int]) -> dict[str, float]:
    """The share of the label that was answered most often, as a figure: 1.0 is a constant answer.

    What could not be read counts as an answer, but is no label.

    >>> commonest_label({"flush": 3, "straight": 1})["value"]
    0.75
    """
    answers = sum(histogram.values())
    most = max((n for label, n in histogram.items() if label != NO_ANSWER), default=0)
    return mean_interval([1.0] * most + [0.0] * (answers - most))


def discrimination(
    confusion: Sequence[Sequence[float]], label: int, samples: int
) -> dict[str, float]:
    """How well one label is told from the others: its recall less its false alarms, as a figure.

    Naming it always gives 0, as naming it never does; recall alone would pay the first.

    Args:
        confusion: counts, true label by answer, as records keep them.
        label: the label's row and column.
        samples: completions of each prompt, which are not independent.
    """
    shares, error = [], 0.0
    rows = [
        [row for i, row in enumerate(confusion) if (i == label) is own] for own in (True, False)
    ]
    for part in rows:
        named, total = sum(row[label] for row in part), sum(map(sum, part))
        shares.append(named / total)
        error += shares[-1] * (1 - shares[-1]) / (total / samples)
    value = shares[0] - shares[1]
    half = 1.96 * math.sqrt(error)
    return {"value": value, "low": value - half, "high": value + half, "n": len(confusion)}


def figures_at(case: str, where: str) -> dict[int, Mapping[str, float]]:
    """One figure of the embedded model's records, by seed; empty where the arm has none.

    Args:
        case: name of the case.
        where: "arm/when/figure", the names a record has on the way to the figure, as in
            `grpo/after/greedy_accuracy`. `commonest_label` reads a label histogram, and
            `discrimination/flush` a confusion matrix.

    Returns:
        Seed -> figure; a plain number becomes a figure without width.

    Raises:
        CasebookError: a record of the arm has no such figure.
    """
    arm, *steps = where.split("/")
    figures = {}
    for record in committed(case, "nano", arm):
        try:
            value: Any = record
            for step in steps:
                if step == "commonest_label":
                    value = commonest_label(value["label_histogram"])
                elif step == "discrimination":
                    table, samples = value["confusion"], record["config"]["test_samples"]
                    names = load_case(case).labels
                    value = {
                        name: discrimination(table, i, samples) for i, name in enumerate(names)
                    }
                else:
                    value = value[step]
            if not isinstance(value, Mapping):
                value = dict.fromkeys(("value", "low", "high"), float(value))
        except (KeyError, TypeError, ValueError):
            seed = record["seed"]
            raise CasebookError(f"the record of seed {seed} has no figure {where!r}") from None
        figures[record["seed"]] = value
    return figures


def _judged(case: str, row: dict[str, Any]) -> dict[str, Any]:
    """A claim as it stands; one about the embedded model with its verdict, from the records."""
    if row["evidence"] != "nano":
        return row
    found = [compared(case, comparison) for comparison in row["compare"]]
    if not all(found):
        missing_run = {"evidence": "none", "verdict": "not run here"}
        return row | missing_run | {"command": f"casebook experiments {case}"}
    verdicts = {verdict for verdict, _ in found}
    for worst in ("mechanism not seen", "inconclusive", "mechanism seen"):
        if worst in verdicts:
            break
    return row | {"verdict": worst, "measured": "; ".join(text for _, text in found)}


def _check_claim(row: Any) -> None:
    if not isinstance(row, dict):
        raise CasebookError(f"expected fields with values, found {str(row)[:40]!r}")
    for field in ("id", "claim", "source", "evidence", "note"):
        _check_text(row, field)
    check_name("evidence", row["evidence"], VERDICTS)
    basis = BASIS[row["evidence"]]
    known = {"id", "claim", "source", "evidence", "note", basis}
    if row["evidence"] == "nano":
        if not isinstance(row.get(basis), list) or not row[basis]:
            raise CasebookError("nano evidence needs 'compare', a list of comparisons")
    else:
        _check_text(row, "verdict")
        _check_text(row, basis)
        known.add("verdict")
    if extra := sorted(set(map(str, row)) - known):
        raise CasebookError(f"{row['evidence']!r} evidence has no field {extra[0]!r}")
    if row["evidence"] != "nano" and row["verdict"] not in VERDICTS[row["evidence"]]:
        raise CasebookError(
            f"verdict {row['verdict']!r} is not one that evidence {row['evidence']!r} allows: "
            + ", ".join(VERDICTS[row["evidence"]])
        )


def _check_text(row: Mapping[str, Any], field: str) -> None:
    if not isinstance(row.get(field), str) or not row[field].strip():
        raise CasebookError(f"the field {field!r} is missing or is not text")


def _plain(value: Any) -> Any:
    """`value` in JSON's own types."""
    if hasattr(value, "tolist"):  # NumPy arrays and numbers
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int):
        return value
    raise CasebookError(f"{type(value).__name__} cannot be written as JSON: {str(value)[:60]!r}")


def _syntax(node: Any) -> Any:
    """A syntax tree as nested lists, without docstrings.

    `ast.dump` would not do: Python 3.13 writes it differently from 3.11.
    """
    if isinstance(node, list):
        return [_syntax(entry) for entry in node if not _is_bare_string(entry)]
    if isinstance(node, ast.AST):
        fields = [(name, _syntax(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *(field for field in fields if field[1] not in (None, []))]
    return None if node is None else repr(node)


def _is_bare_string(node: Any) -> bool:
    """A docstring, or another statement that is nothing but a string."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _versions() -> dict[str, str]:
    found = {}
    for name, distribution in PACKAGES.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _revision() -> dict[str, Any]:
    revision = _output("git", "-C", str(paths.ROOT), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(paths.ROOT), "status", "--porcelain", "-uno")
    return {"revision": revision, "dirty": bool(changes) if revision else None}


def _output(*command: str) -> str | None:
    """The standard output of a program, or `None` where it is missing, fails or says nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
