"""What records say now, against what they said at a commit: one Markdown row an arm.

    python benchmarks/changed_records.py main > changed.md

Figures are means over the seeds that both have, in percent, base and trained policy.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

from casebook import paths

FIGURES = ("greedy_accuracy", "sampled_accuracy", "lenient_accuracy", "well_formed")


def before(revision: str, path: Path) -> dict | None:
    """The record as it was at a commit; `None` where it was not there."""
    name = path.relative_to(paths.ROOT).as_posix()
    shown = subprocess.run(
        ["git", "show", f"{revision}:{name}"], capture_output=True, text=True, cwd=paths.ROOT
    )
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def row(revision: str, folder: Path) -> list[str]:
    """Arm, seeds, and old -> new of each figure; a figure that is equal stands once."""
    pairs = [
        (old, json.loads(path.read_text()))
        for path in sorted(folder.glob("seed*.json"))
        if (old := before(revision, path))
    ]
    cells = [f"{folder.parents[1].name}/{folder.name}", str(len(pairs))]
    for when in ("before", "after"):
        for name in FIGURES:
            both = [[record[when][name]["value"] for record in pair] for pair in pairs]
            old, new = (f"{100 * mean(values):.1f}" for values in zip(*both, strict=True))
            cells.append(new if old == new else f"{old} → {new}")
    return cells


def main(revision: str) -> None:
    names = [name.replace("_accuracy", "").replace("_", " ") for name in FIGURES]
    head = ["arm", "seeds", *(f"{when}, {name}" for when in ("base", "policy") for name in names)]
    print("| " + " | ".join(head) + " |")
    print("| --- |" + " ---: |" * (len(head) - 1))
    for folder in sorted(paths.RESULTS.glob("*/nano/*/")):
        if any(folder.glob("seed*.json")):
            print("| " + " | ".join(row(revision, folder)) + " |")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
