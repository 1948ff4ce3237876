"""Reading the log of a GRPO training, whoever wrote it: one table of steps, in one set of names.

`names.yaml` says what TRL (0.15 and newer), Unsloth, open-r1, verl and OpenRLHF call a metric. Read
are a run folder or record of ours, `trainer_state.json`, checkpoints, TRL's completions, CSV, JSON
lines, the final values of W&B, the step table of a notebook, and console logs, in which a step is a
dict on a line, `step:1 - name:value` (verl), or `name=value`.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from casebook.case import CasebookError

NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text("utf-8"))
PARTS = NAMES.pop("parts")  # how a part of the reward is called that looks at form, or at answers
PART = re.compile(r"rewards?/([^/]+)(?:/(mean|std))?|([^/]*_reward(?:_func|_fn)?)(?:_(mean|std))?")
OURS = r"(greedy|sampled|lenient)_accuracy|well_formed|kl_from_base"
EVALUATION = re.compile(rf"eval[_/].*(reward|acc|correct|exact).*|val(-core)?/.*|{OURS}")
SUMMARY = {"train_runtime", "train_loss", "train_steps_per_second"}  # TRL's last row has no step
FILES = """metrics.jsonl trainer_state.json checkpoint-*/trainer_state.json record.json *.csv *.tsv
    **/trainer_state.json *.jsonl *.ipynb *.log *.txt **/wandb-summary.json"""
SPREAD = 1e-4  # TRL's epsilon beside a group's deviation: smaller differences are no reward
ODD = re.compile("[+-]?(nan|inf|infinity)", re.I)  # a value that is missing is left out of its row
FILLED = 0.2  # share of rows like the row before; a few are alike where little is learned
ANSI = re.compile(r"\x1b?\[\d+(?:;\d+)*m")
NUMPY = re.compile(r"\bnp\.\w+\(([^()]*)\)")
DICT = re.compile(r"\{['\"][^{}]*\}")
VERL = re.compile(r"\bstep:(\d+) - ")
STEP = re.compile(r"(?:[Gg]lobal[ _]step|[Ss]tep|Iter)[ :=]*(\d+)")
PAIR = re.compile(r"([A-Za-z_][\w/]*)\s*[=:]\s*([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)")


@dataclass
class Log:
    """What was logged of one run, oldest first; what is not there is empty."""

    steps: pd.DataFrame  # the columns of `NAMES` that were found, `part/NAME`, `part_std/NAME`
    evaluations: pd.DataFrame = field(default_factory=pd.DataFrame)  # as they were named
    completions: pd.DataFrame = field(default_factory=pd.DataFrame)  # step, prompt, completion ...
    settings: dict[str, Any] = field(default_factory=dict)  # TRL's names, where they are kept
    read: list[str] = field(default_factory=list)  # columns of the log
    ignored: list[str] = field(default_factory=list)
    odd: dict[str, np.ndarray] = field(default_factory=dict)  # our name -> which are NaN or inf
    file: str = ""  # of a folder's, the one that was read


def read_log(path: str | Path) -> Log:
    """The log in a file or a run folder.

    Raises:
        CasebookError: there is nothing to read, or no column of it is known; one sentence.
    """
    path = Path(path)
    try:
        file, rows = _folder(path) if path.is_dir() else ("", _file(path))
        texts = _completions(path) if path.is_dir() else pd.DataFrame()
        if texts.empty and any("completion" in row for row in rows):
            texts, rows = pd.DataFrame([row for row in rows if "completion" in row]), []
        log = replace(table(rows, texts, _settings(path)), file=file)
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        said = f"{path} cannot be read as a log: {str(error).partition(chr(10))[0]:.100}"
        raise CasebookError(said) from error
    if log.completions.empty and not log.steps.filter(regex="^(reward|silent|kl|part)").shape[1]:
        raise CasebookError(f"{path}: no reward of a training, and no completion, was found in it")
    return log


def table(
    rows: list[Mapping[str, Any]],
    completions: pd.DataFrame | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Log:
    """Rows as any tool logs them, in our names; values may be texts.

    Args:
        rows: one a logged step or evaluation; `trainer.state.log_history` is such a list.
        completions: TRL's, or those of a run of ours; without rows their rewards make the steps.
        settings: of the run, in TRL's names; `trainer.args.to_dict()` will do.
    """
    texts = _named(pd.DataFrame() if completions is None else completions)
    named = [_plain(name) for name in (rows[0] if rows else ()) if " - " in str(name)]
    if len(named) > len({*named}):  # an export of W&B calls a column `RUN - METRIC`
        raise CasebookError("it holds several runs; export each by itself")
    rows = [{_plain(n): value for n, value in row.items()} for row in rows or _steps_of(texts)]
    frame = pd.DataFrame(rows).drop(columns=["completion", "prompt"], errors="ignore")
    odd = pd.DataFrame([{n: bool(ODD.fullmatch(str(v))) for n, v in row.items()} for row in rows])
    known = odd.any().reindex(frame.columns, fill_value=False)
    frame, found = (told := frame.apply(numbers)).loc[:, told.notna().any() | known], {}
    for name, called in NAMES.items():
        columns = [c for pattern in called for c in frame if re.fullmatch(pattern, c)]
        found |= {name: columns[0]} if columns else {}
    evaluated = [c for c in frame if EVALUATION.fullmatch(c)]
    for column in frame.columns.difference([*found.values(), *evaluated], sort=False):
        if match := PART.fullmatch(column):
            part, kind = match[1] or match[3], match[2] or match[4] or "mean"
            found.setdefault(f"{'part' if kind == 'mean' else 'part_std'}/{part}", column)
    train = [c for n, c in found.items() if n not in ("step", "epoch")]
    is_step = frame[train].notna().any(axis=1) if train else pd.Series(False, frame.index)
    is_step &= frame.reindex(columns=list(SUMMARY)).isna().all(axis=1) if len(frame) > 1 else True
    steps = frame.loc[is_step, list(found.values())].set_axis(list(found), axis=1)
    if "step" not in steps or steps["step"].isna().all():
        steps = steps.assign(step=np.arange(1, len(steps) + 1))
    at = [found["step"]] if "step" in found else []
    evaluations = frame[[*at, *evaluated]].dropna(how="all", subset=evaluated)
    evaluations = evaluations.rename(columns=dict.fromkeys(at, "step")).reset_index(drop=True)
    read, steps = [*found.values(), *evaluated], _without_repeats(steps).reset_index(drop=True)
    rest = [column for column in frame if column not in read]
    whole = [n for n in ("reward", "loss", "kl", "grad_norm") if n in found and known[found[n]]]
    odd = {n: odd[found[n]].dropna().to_numpy(bool) for n in whole}
    return Log(steps, evaluations, texts, dict(settings or {}), read, rest, odd)


def _plain(name: Any) -> str:
    """A column's name without what a table, a tracker or an evaluation of ours puts around it."""
    name = re.sub(r"\s*/\s*", "/", str(name).rpartition(" - ")[2].strip()).removeprefix("train/")
    return name if "/" in name else name.lower()


def numbers(values: pd.Series) -> pd.Series:
    plain = values.map(lambda v: v if isinstance(v, str | int | float | np.number) else None)
    return pd.to_numeric(plain, errors="coerce").astype(float).replace([np.inf, -np.inf], np.nan)


def _without_repeats(steps: pd.DataFrame) -> pd.DataFrame:
    """Without rows that repeat the row before: lists that are filled up between two real logs."""
    moving = [c for c in ("kl", "grad_norm", "length", "reward") if c in steps]
    values = steps.drop(columns=["step", "epoch", "learning_rate"], errors="ignore")
    same = (values == values.shift()).where(values.notna(), True).all(axis=1)
    filled = same & (steps[moving] != 0).all(axis=1)
    return steps[~filled] if len(moving) >= 3 and filled.mean() > FILLED else steps


def _folder(path: Path) -> tuple[str, list[dict]]:
    """Of what a run folder holds, the log with most to say."""
    for pattern in FILES.split():
        files = [file for file in path.glob(pattern) if not file.name.startswith("completions")]
        for file in sorted(files, key=lambda f: (len(str(f)), str(f)))[::-1][:3]:
            names = {*chain(*(rows := _file(file)))}
            if re.search("reward|score|loss|completion", " ".join(map(str, names))):
                return str(file.relative_to(path)), rows
    return "", []


def _file(path: Path) -> list[dict]:
    """The rows of a file; whatever its name says, it may be a console log."""
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError, OSError):
        if rows := READERS[path.suffix.lower()](path):
            return rows
    return list(_lines(_text(path)))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _json(path: Path) -> list[dict]:
    content = json.loads(_text(path))
    if isinstance(content, dict) and isinstance(content.get("curve"), dict):  # a record of ours
        tables = (content["curve"], content.get("validation") or {})
        return [row for rows in tables for row in _rows(pd.DataFrame(rows))]
    rows = content.get("log_history", [content]) if isinstance(content, dict) else content
    return [row for row in rows if isinstance(row, dict)]


def _jsonl(path: Path) -> list[dict]:
    rows = []
    for line in _text(path).splitlines():
        with suppress(ValueError, RecursionError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict)]


def _notebook(path: Path) -> list[dict]:
    """The longest table with a reward among the outputs of a notebook, or what it printed."""
    outputs = [out for cell in json.loads(_text(path))["cells"] for out in cell.get("outputs", [])]
    tables = [_table_rows(out.get("data", {}).get("text/html", "")) for out in outputs]
    known = [rows for rows in tables if rows and "reward" in str(list(rows[0])).lower()]
    printed = "".join("".join(out.get("text", "")) for out in outputs)
    return max(known, key=len) if known else list(_lines(printed))


def _table_rows(text: str | list[str]) -> list[dict]:
    """The rows of a table as transformers and pandas write it in HTML."""
    rows = re.findall(r"<tr.*?</tr>", "".join(text), re.S)
    rows = [re.findall(r"<t[hd][^>]*>\s*(.*?)\s*</t[hd]>", row) for row in rows]
    return [{n: v for n, v in zip(rows[0], row, strict=False) if v != "NaN"} for row in rows[1:]]


def _csv(path: Path) -> list[dict]:
    mark = max(",;\t", key=_text(path).partition("\n")[0].count)
    mends = {"on_bad_lines": "skip", "encoding_errors": "replace", "keep_default_na": False}
    return _rows(pd.read_csv(path, sep=mark, na_values="", **mends))


def _rows(frame: pd.DataFrame) -> list[dict]:
    """Rows of a table, without what is missing."""
    rows = frame.to_dict("records")
    return [{n: v for n, v in row.items() if not (isinstance(v, float) and v != v)} for row in rows]


READERS: Mapping[str, Callable[[Path], list[dict]]] = {
    **{".csv": _csv, ".tsv": _csv, ".jsonl": _jsonl, ".json": _json, ".ipynb": _notebook},
    ".parquet": lambda path: _rows(pd.read_parquet(path)),
}


def _lines(text: str) -> Iterator[dict]:
    """The steps of a console log; progress bars and everything else around them is left out."""
    text = NUMPY.sub(r"\1", ANSI.sub("", text))
    text, step, last = DICT.sub(lambda it: " ".join(it[0].splitlines()), text), None, None
    for line in re.split(r"[\r\n]", text):
        if match := VERL.search(line):
            pairs = (part.rpartition(":") for part in line[match.start() :].split(" - "))
            yield {name.strip(): value.strip() for name, _, value in pairs if name}
            continue
        number, known = STEP.search(line), 0
        step = int(number[1][:15]) if number else step
        for match in DICT.finditer(line):
            row = {}
            with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                row = ast.literal_eval(re.sub(r"(?<=[ :-])(nan|inf)\b", r"'\1'", match[0]))
            names = {str(name) for name in row}
            if names & SUMMARY or any("reward" in name for name in names):
                named, known = number and number.end() <= match.start() and "step" not in row, 1
                yield dict(row) | ({"step": step} if named else {})
        row = dict(PAIR.findall(line)) if "reward" in line and not known else {}
        if any("reward" in name for name in row) and row != last:
            yield row | ({"step": step} if number and "step" not in row else {})
            last = row


def _completions(path: Path) -> pd.DataFrame:
    files = sorted(path.glob("completions*/*")) or sorted(path.glob("completions*.*"))
    read = [pd.DataFrame(READERS[f.suffix](f)) for f in files if f.suffix in (".parquet", ".jsonl")]
    return pd.concat(read, ignore_index=True) if read else pd.DataFrame()


def _named(texts: pd.DataFrame) -> pd.DataFrame:
    """TRL writes a column for each reward function; here it is `reward/NAME`, as in our runs."""
    if texts.empty or "completion" not in texts:
        return pd.DataFrame()
    figures = {"step", "reward", "correct", "truncated", "tokens", "well_formed"}
    others = figures | {"advantage", "answer", "strict", "seed", "id", "epoch"}
    parts = [c for c in texts.select_dtypes("number") if c not in others]
    texts = texts.rename(columns={c: f"reward/{c.removeprefix('reward/')}" for c in parts})
    paid = [c for c in texts if c.startswith("reward/")]
    texts = texts.assign(**{c: numbers(texts[c]) for c in [*paid, *figures & {*texts}]})
    if "reward" not in texts and paid:
        texts["reward"] = texts[paid].sum(axis=1)
    ordered = "step" in texts
    return texts.dropna(subset="step").sort_values("step", kind="stable") if ordered else texts


def _steps_of(texts: pd.DataFrame) -> list[dict]:
    """One row a step, from what was paid for its completions."""
    if not {"step", "prompt", "reward"} <= set(texts):
        return []
    parts = {c: f"rewards/{c[7:]}/mean" for c in texts if c.startswith("reward/")}
    named = {**parts, "reward": "reward", "tokens": "completion_length", "truncated": "truncated"}
    frame = texts[[c for c in named if c in texts]].rename(columns=named)
    groups = texts["reward"].groupby([texts["step"], texts["prompt"].map(str)])
    spread, size = groups.agg(np.ptp), groups.size()
    silent = (spread[size > 1] <= SPREAD).groupby("step").mean().rename("frac_reward_zero_std")
    return frame.groupby(texts["step"]).mean().join(silent).reset_index().to_dict("records")


def _settings(path: Path) -> dict[str, Any]:
    files = [f for n in ("config.yaml", "training_args.yaml") for f in path.glob(n)]
    with suppress(yaml.YAMLError, ValueError, RecursionError, LookupError, TypeError):
        log = path.suffix == ".json" and path.is_file()
        found = json.loads(_text(path))["config"] if log else yaml.safe_load(_text(files[0]))
        return found if isinstance(found, dict) else {}
    return {}
