"""How often six verifiers of mathematics are right, and how long a check takes.

They are scored on the casebook's own labelled pairs and, where the real problems are at hand, on
MATH-500: each worked solution against its answer and against another problem's. Last come texts
written to stop a verifier. The record holds numbers only, no problem texts.

    python benchmarks/verify.py --data-dir FOLDER --output results/math/data/verifiers.json

Timings depend on the machine and on what else runs on it; they are printed and recorded, and no
test relies on them.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from casebook.cases.math import verify
from casebook.cases.math.studies.verifiers import (
    HOSTILE,
    compare,
    hostile_times,
    math500_pairs,
    own_pairs,
    summary,
    verdicts,
)
from casebook.records import problems, provenance, write_json


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the real problems.")] = None,
) -> None:
    """Compare the verifiers and print the tables."""
    if data_dir is not None:
        os.environ[problems.VARIABLE] = str(data_dir)
    verify.prepare()
    own = own_pairs()
    said, seconds = verdicts(own)
    table = summary(own["equivalent"], said, seconds)
    wrong = said.ne(own["equivalent"], axis=0)
    missed, paid = wrong[own["equivalent"]], wrong[~own["equivalent"]]
    record: dict[str, Any] = {
        "benchmark": "verify",
        "own": {
            "table": table.to_dict("index"),
            "equivalent_by_kind": own.groupby("kind")["equivalent"].sum().to_dict(),
            "missed_by_kind": missed.groupby(own["kind"]).sum().to_dict(),
            "different_by_kind": (~own["equivalent"]).groupby(own["kind"]).sum().to_dict(),
            "wrongly_paid_by_kind": paid.groupby(own["kind"]).sum().to_dict(),
        },
    }
    typer.echo(f"{len(own)} own pairs\n{table.round(2).to_string()}\n")
    if problems.available("math500"):
        frame = problems.read("math500", "test")
        table = compare(math500_pairs(frame))
        record["math500"] = {
            "table": table.to_dict("index"),
            "subjects": frame["subject"].value_counts().to_dict(),
            "levels": {str(k): v for k, v in frame["level"].value_counts().items()},
            "forms": dict(Counter(frame["answer"].map(form))),
            "set": problems.provenance(frame),
        }
        typer.echo(f"MATH-500, {2 * len(frame)} pairs\n{table.round(2).to_string()}\n")
    times = hostile_times()
    record["hostile"] = {
        "texts": len(HOSTILE),
        "paid": int(times["paid"].sum()),
        "seconds": times[["first", "second"]].max(axis=1).to_dict(),
        "limit": verify.TIMEOUT,
    }
    record["provenance"] = provenance()
    typer.echo(times.round(3).to_string())
    if output is not None:
        write_json(output, record)


def form(answer: str) -> str:
    """A rough form of an answer, by what stands in it."""
    for name, mark in (("matrix", "matrix"), ("text", r"\text"), ("text", r"\mbox")):
        if mark in answer:
            return name
    if answer.lstrip("-").replace(",", "").replace(r"\!", "").replace(" ", "").isdigit():
        return "whole number"
    if "(" in answer or "[" in answer or r"\{" in answer:
        return "tuple, interval or set"
    if "," in answer:
        return "list"
    if r"\frac" in answer or r"\dfrac" in answer:
        return "fraction"
    return "decimal" if answer.replace(".", "", 1).isdigit() else "expression"


if __name__ == "__main__":
    typer.run(main)
