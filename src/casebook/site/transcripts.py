"""The transcript browser: what policies wrote at the recorded steps of their training.

One HTML file a case, with its data inside: the completions that are committed, and those of the
newest runs in `$RUNS_DIR`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths, records
from casebook.case import PROFILES, known_cases, load_case
from casebook.site.files import TEMPLATES, css, page_template, write_if_changed
from casebook.site.results import questions

MOST_RUNS = 3  # newest runs of a case that are shown
MOST_BYTES = 6_000_000  # of completions of one run


def write_transcripts(folder: Path) -> dict[str, int]:
    """Write a page for each case that has completions; case -> how many its page shows."""
    shown = {}
    for case in known_cases():
        tables = [_thinned(rows).assign(run=run) for run, rows in _runs(case) if len(rows)]
        if not tables:
            continue
        rows = pd.concat(tables, ignore_index=True)
        text = page_template("transcripts.html").render(
            title=load_case(case).title,
            note=f"{len(rows):,} completions of {len(tables)} runs at their recorded steps.",
            css=css("page", "transcripts"),
            script=(TEMPLATES / "transcripts.js").read_text(encoding="utf-8"),
            # `<` is the one character that could end the script element early.
            data=json.dumps(_columns(rows), ensure_ascii=False).replace("<", "\\u003c"),
        )
        write_if_changed(folder / f"{case}.html", text)
        shown[case] = len(rows)
    return shown


def _runs(case: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The runs of a case that kept their completions, in words, and what they wrote."""
    asked = questions(case)
    yield "nano, the recorded run", records.committed_completions(case, "nano")
    for profile in (name for name, about in PROFILES.items() if not about.embedded):
        for arm in records.arms_with_completions(case, profile):
            model = records.models_of(case, records.committed(case, profile, arm))
            told = f"{asked.get(arm, arm)} ({model})"
            yield told, records.committed_completions(case, profile, arm)
    own = {part.parents[1] for part in (paths.runs_dir() / case).glob("*/*/completions/train_*")}
    for run in sorted(own, key=lambda run: run.stat().st_mtime, reverse=True)[:MOST_RUNS]:
        parts = sorted((run / "completions").glob("train_*.parquet"))
        tested = ", which shows that the code runs and no result" * (run.parent.name == "smoke")
        told = f"your run {run.parent.name}/{run.name}{tested}"
        yield told, pd.concat([pd.read_parquet(part) for part in parts], ignore_index=True)


def _thinned(rows):
    """The rows of evenly spaced steps, as many as make a page of bearable size."""
    size = rows["prompt"].astype(str).str.len().sum() + rows["completion"].str.len().sum()
    steps = sorted(rows["step"].unique())
    every = -(-int(size) // MOST_BYTES)
    return rows[rows["step"].isin(steps[:: max(every, 1)])]


def _columns(rows) -> dict[str, Any]:
    """The rows as columns for the page's script, each distinct text written once."""
    coded = ["run", "prompt", "answer", "completion", "extracted"]
    rewards = [name for name in rows.columns if name.startswith("reward/")]
    numbers = ["step", "tokens", "advantage", "reward", *rewards]
    codes, texts = pd.factorize(rows[coded].astype("string").to_numpy().ravel())  # -1: no text
    columns = dict(zip(coded, codes.reshape(-1, len(coded)).T, strict=True))
    columns |= rows[numbers].astype(float).round(6).to_dict("list")
    columns |= rows[["truncated", "well_formed", "correct", "strict"]].eq(True).to_dict("list")
    return {
        "length": len(rows),
        "coded": coded,
        "rewards": [name.removeprefix("reward/") for name in rewards],
        "runs": list(dict.fromkeys(rows["run"])),
        "answers": sorted({str(answer) for answer in rows["answer"]}),
        "columns": paths.plain(columns),
        "texts": list(texts),
    }
