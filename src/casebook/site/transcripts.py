"""The transcript browser: what a policy wrote at the recorded steps of its training.

Each page is one HTML file with its data inside. Every case has one that is committed; a run in
`$RUNS_DIR` that kept its completions gets a page of its own.
"""

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casebook import records
from casebook.case import PROFILES, known_cases, load_case
from casebook.site.files import TEMPLATES, css, digest, head_of, page_template, write_if_changed
from casebook.site.results import questions

if TYPE_CHECKING:
    import pandas as pd

MOST_TRANSCRIPTS = 5  # newest runs of one case and profile that get a page
MOST_BYTES = 15_000_000  # of completions on one transcript page


def write_transcripts(folder: Path, runs: Path) -> list[dict[str, Any]]:
    """Write a page for each case's committed completions and for each run that kept its own.

    Returns:
        What the listing needs, one dict a page: `case`, `profile`, `run`, `rows` and `file`.
    """
    listing = []
    for case in known_cases():
        pages = [_committed_page(folder, case, *kept) for kept in _kept(case)]
        for profile in sorted(path for path in (runs / case).glob("*") if path.is_dir()):
            kept = [run for run in profile.iterdir() if [*run.glob("completions/train_*.parquet")]]
            kept.sort(key=lambda run: run.stat().st_mtime, reverse=True)
            pages += [_run_page(folder, case, run) for run in kept[:MOST_TRANSCRIPTS]]
        listing += [page for page in pages if page]
    pages = {Path(entry["file"]).name for entry in listing}
    for stale in folder.glob("*.html"):
        if stale.name not in pages:
            stale.unlink()
    return listing


def _kept(case: str) -> list[tuple[str, str | None, str]]:
    """Whose completions are committed: profile, arm of a real model, and the run in words."""
    found: list[tuple[str, str | None, str]] = [("nano", None, "the recorded run")]
    for profile in (name for name, about in PROFILES.items() if not about.embedded):
        for arm in records.arms_with_completions(case, profile):
            runs = records.committed(case, profile, arm)
            asked = questions(case).get(arm, arm)
            found.append((profile, arm, f"{asked} ({records.models_of(case, runs)})"))
    return found


def _committed_page(
    folder: Path, case: str, profile: str, arm: str | None, run: str
) -> dict[str, Any] | None:
    rows = records.committed_completions(case, profile, arm)
    if rows.empty:
        return None
    page = folder / f"{case}-{profile}-{f'{arm}-' if arm else ''}committed.html"
    shown = _write_page(page, case, profile, run, rows)
    return {"case": case, "profile": profile, "run": run, "rows": shown} | {
        "file": f"transcripts/{page.name}"
    }


def _run_page(folder: Path, case: str, run: Path) -> dict[str, Any]:
    import pandas as pd

    profile = run.parent.name
    page = folder / f"{case}-{profile}-{run.name}.html"
    parts = sorted((run / "completions").glob("train_*.parquet"))
    stamps = [[part.name, part.stat().st_size, part.stat().st_mtime] for part in parts]
    inputs = digest(json.dumps(stamps).encode())
    shown = _shown_already(page, inputs)
    if shown is None:
        rows = pd.concat([pd.read_parquet(part) for part in parts], ignore_index=True)
        shown = _write_page(page, case, profile, f"the run {run.name}", rows, inputs)
    return {"case": case, "profile": profile, "run": run.name, "rows": shown} | {
        "file": f"transcripts/{page.name}"
    }


def _shown_already(page: Path, inputs: str) -> int | None:
    """How many completions the page shows if it was made from these inputs, else `None`."""
    known = re.search(rf"{inputs} (\d+)", head_of(page))
    return int(known[1]) if known else None


def _write_page(
    page: Path, case: str, profile: str, run: str, rows: "pd.DataFrame", inputs: str = ""
) -> int:
    """Write the page of one run; return how many completions it shows."""
    total = len(rows)
    rows = _thinned(rows)
    note = f"{len(rows):,} completions of {rows['step'].nunique()} recorded steps of {run}."
    if len(rows) < total:
        note += f" Left out, to keep the page light: {total - len(rows):,} of the steps between."
    if profile == "smoke":
        note += " The smoke profile only shows that the code runs: these are no results."
    text = page_template("transcripts.html").render(
        title=f"{load_case(case).title}: {profile}",
        inputs=f"{inputs} {len(rows)}",
        note=note,
        css=css("page", "transcripts"),
        script=(TEMPLATES / "transcripts.js").read_text(encoding="utf-8"),
        # `<` is the one character that could end the script element early.
        data=json.dumps(_columns(rows), ensure_ascii=False).replace("<", "\\u003c"),
    )
    write_if_changed(page, text)
    return len(rows)


def _thinned(rows):
    """The rows of evenly spaced steps, as many as make a page of bearable size."""
    size = rows["prompt"].astype(str).str.len().sum() + rows["completion"].str.len().sum()
    steps = sorted(rows["step"].unique())
    every = -(-int(size) // MOST_BYTES)
    return rows[rows["step"].isin(steps[:: max(every, 1)])]


def _columns(rows) -> dict[str, Any]:
    """The rows as columns for the page's script, each distinct text written once.

    A number that is not finite is `null`: JSON has no other way to say so.
    """
    rows = rows.astype(object).where(rows.notna(), None)
    texts: dict[str, int] = {}
    coded = ["prompt", "answer", "completion", "extracted"]
    rewards = [name for name in rows.columns if name.startswith("reward/")]
    numbers = ["step", "tokens", "advantage", "reward", *rewards]
    flags = ["truncated", "well_formed", "correct", "strict"]

    def code(value: Any) -> int | None:
        return None if value is None else texts.setdefault(str(value), len(texts))

    def number(value: Any) -> float | None:
        finite = value is not None and math.isfinite(value)
        return round(float(value), 6) if finite else None

    columns = {name: [code(value) for value in rows[name]] for name in coded}
    columns |= {name: [number(value) for value in rows[name]] for name in numbers}
    columns |= {name: [bool(value) for value in rows[name]] for name in flags}
    return {
        "length": len(rows),
        "coded": coded,
        "rewards": [name.removeprefix("reward/") for name in rewards],
        "answers": sorted({str(answer) for answer in rows["answer"]}),
        "columns": columns,
        "texts": list(texts),
    }
