"""What a run measures before and after training: the test rows, with base and trained policy.

With an adapter both are one model, with the adapter off and on. Completions are kept in the run's
folder line by line, so that a stop loses the completions of one batch.

A run that was made to choose a setting (`measure: validation`) uses no test row.
"""

import contextlib
import resource
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from casebook.case import PROFILES, load_case
from casebook.evaluation import (
    OTHER_ROWS,
    OTHER_TEXT,
    evaluate,
    other_prompt_perplexity,
    plain_text_perplexity,
)
from casebook.models import load_base, load_saved, weights_hash
from casebook.records import digest
from casebook.settings import marked
from casebook.training.config import Config, settings_mark
from casebook.training.log import text_of
from casebook.training.progress import Progress

KEPT_ROWS = 64  # test completions in a record, one a row
KEPT_BEFORE = 10  # of the base, on the first of the same rows
# By settings, for the arms of one process that start from one base: figures, what a record keeps
# of the completions, and the files that hold all of them.
_MEASURED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, bytes]]] = {}


def measure(
    adapter: Path,
    config: Config,
    folder: Path,
    progress: Progress,
    policy: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """`before`, `after` and some of the test `completions` of a policy that is saved.

    Args:
        folder: where completions are kept while this goes on; what lies there is used.
        policy: model and tokenizer as they were trained, where a second model would not fit
            beside them; by default the saved adapter is loaded.
    """
    if config.measure == "validation":
        return {"test": None, "before": None, "after": None}
    mark, note = weights_hash(adapter), folder / "policy"
    if folder.exists() and (not note.exists() or note.read_bytes() != mark.encode()):
        shutil.rmtree(folder)  # what lies there is another policy's
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(mark)
    shown = folder / "before", progress.measuring("before")
    if config.use_peft:
        policy = policy or load_saved(adapter)[:2]
        with policy[0].disable_adapter():
            before, kept = measure_base(config, policy, *shown)
    else:  # the base's weights are not in there any more
        before, kept = measure_base(config, None, *shown)
        policy = load_saved(adapter)[:2]
    after, rows = measure_test(config, *policy, folder / "after", progress.measuring("after"))
    both = {"before": before, "after": after}
    return both | {"completions_before": kept, "completions": kept_rows(rows)}


def kept_rows(
    rows: pd.DataFrame, count: int = KEPT_ROWS, more: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The first completion of the first test rows, with its grade, as a record keeps them."""
    sampled = rows[rows["decoding"] == "sample"]
    first = (sampled if len(sampled) else rows).query("sample == 0").head(count)
    names = ["row", "decoding", "completion", "tokens", "truncated", "well_formed", "extracted"]
    return first[[*names, "correct", *more]].to_dict("records")


def measure_base(
    config: Config,
    model_and_tokenizer: tuple[Any, Any] | None = None,
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The base's figures and completions for a record, shared by arms that measure it alike.

    Args:
        model_and_tokenizer: such as a policy with its adapter off; by default the base is loaded.
        folder, progress: as for `measure_test`.
    """
    mark = settings_mark(config, set(config.settings) - set(marked("card", "base", "test")))
    if mark not in _MEASURED:
        base = model_and_tokenizer or load_base(config.settings)
        # Torch multiplies by a weight that is to be trained in another order of additions, and a
        # base whose adapter is off is frozen: rounding would tell the two apart.
        base[0].requires_grad_(False)
        figures, rows = measure_test(config, *base, folder, progress)
        files = {file.name: file.read_bytes() for file in folder.iterdir()} if folder else {}
        # With prompt and answer: what was written before can be read from the record alone.
        rows = rows.assign(prompt=rows["prompt"].map(text_of))
        kept = kept_rows(rows, KEPT_BEFORE, ("prompt", "answer"))
        _MEASURED[mark] = figures, kept, files
    figures, kept, files = _MEASURED[mark]
    if folder and not folder.exists():
        folder.mkdir(parents=True)
        for name, lines in files.items():
            (folder / name).write_bytes(lines)
    return figures, kept


def measure_test(
    config: Config,
    model: Any,
    tokenizer: Any,
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """What a configuration measures of a model on the test rows, and the graded completions: they
    are kept in `folder`, and those that lie there are used."""
    asked = {"split": "test", "profile": config.profile, "progress": progress}
    found = {}
    for name, plan in plans(config).items():
        store = folder and folder / f"{name}.jsonl"
        found[name] = evaluate(model, tokenizer, config.case, store=store, **asked, **plan)
    figures = figures_of(config, found)
    if PROFILES[config.profile].embedded:
        asked = config.case, config.profile, config.variant
        figures["other_prompt_perplexity"] = other_prompt_perplexity(model, tokenizer, *asked)
    else:
        figures["plain_text_perplexity"] = plain_text_perplexity(model, tokenizer)
    return figures, found["test"].rows


def plans(config: Config) -> dict[str, dict[str, Any]]:
    """What a configuration measures: name of a file of completions -> how `evaluate` is asked."""

    def plan(limit: int, samples: int, changes: Mapping[str, Any] = {}, **more):
        settings = {"limit": limit, **config.settings, **changes}
        own = {name: settings[name] for name in ("limit", "variant")}
        return own | {"samples": samples, "settings": settings, **more}

    found = {"test": plan(config.test_limit, config.test_samples)}
    if rows := config.pass_at_k_rows:
        found["pass_at_k"] = plan(rows, config.pass_at_k_samples, greedy=False, seed=1)
    for number, changes in enumerate((config.also_evaluate or {}).values()):
        found[f"also_{number}"] = plan(config.test_limit, 0, changes)
    return found


def figures_of(config: Config, found: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says before or after, from an evaluation for each of `plans`."""
    figures = found["test"].summary() | {"bits": found["test"].bits()}
    if "pass_at_k" in found:
        figures["pass_at_k"] = found["pass_at_k"].pass_at_k()
        figures["bits"]["pass_at_k"] = found["pass_at_k"].bits()["sample"]
    if names := config.also_evaluate:
        also = (found[f"also_{i}"] for i in range(len(names)))
        both = [one.summary() | {"bits": one.bits()} for one in also]
        figures["also"] = dict(zip(names, both, strict=True))
    return figures


def input_digests(config: Config) -> dict[str, Any]:
    """Hashes of every column of the rows, by split, and of the corpus's text: what was asked; and
    where test rows are not independent, the number of each one's cluster."""
    case, rows = load_case(config.case), {}
    for split in ("train", "validation", "test"):
        seed = config.seed if split == "train" else 0  # all are measured on the same rows
        data = case.load(split, config.profile, seed, config.variant)
        rows[split] = digest({name: data[name][:] for name in data.column_names})
    text = list(islice(case.demonstrations(OTHER_TEXT), OTHER_ROWS))
    found = {"rows": rows, "demonstrations": digest(text)}
    if case.cluster and case.cluster(data[0]) is not None:  # `data` are the rows of the last split
        found["clusters"] = pd.factorize(pd.Series([case.cluster(row) for row in data]))[0].tolist()
    return found


def forget_peak() -> None:
    """Count memory from here on, where the system can (Linux); elsewhere the peak stays."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> int:
    """The most memory held since `forget_peak`, or since the process began, in MiB."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return round(int(next(li for li in lines if li.startswith("VmHWM:")).split()[1]) / 1024)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024))  # bytes there
