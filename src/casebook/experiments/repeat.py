"""What of a record can be repeated in seconds: its figures before training, its first steps, and
what its adapter does, where that is kept.

As a program it reads records from the standard input, a line of JSON for each: its name, and the
settings that take another value. It answers with a line of JSON. `casebook replay` runs it so with
the code of an older revision, which is why it takes nothing from its neighbours that is not in
older revisions too.
"""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from casebook import paths, training
from casebook.experiments import arms
from casebook.models import load_saved
from casebook.records import freshness
from casebook.records.files import DIGITS, has_test_figures, plain, read_record

STEPS = training.CURVE_WINDOW  # the first window of a recorded curve
WRITTEN = ("completion", "reward", "advantage")


def repeat(record: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measure and train again, as far as that takes seconds; JSON's own types.

    Args:
        record: as `read_record` gives it.
        overrides: settings that take another value than in the record.

    Returns:
        `before`, `completions_before`, `validation`, `curve`, `findings`, `written`, `after` and
        `completions`, as a record has them, but for what this one has not. `written` has the
        completions, rewards and advantages of the first `STEPS` steps.
    """
    settings = {**record["config"], **(overrides or {})}
    config = training.read_config((record["case"], record["profile"]), settings)
    found: dict[str, Any] = {}
    if has_test_figures(record):
        found["before"], completions = training.measure_base(config)
        if "completions_before" in record:
            found["completions_before"] = completions
    with tempfile.TemporaryDirectory() as folder:
        run = training.first_steps(config, Path(folder) / "run", STEPS)
        found["validation"] = run.validation().round(4).to_dict("list")
        found["curve"] = training.curve(run.metrics())
        found["findings"] = arms.findings(run)
        found["written"] = _written(run.completions())
    written_to = arms.kept_completions(record)
    if written_to and (adapter := written_to.with_name("adapter")).is_dir():
        found["after"], rows = training.measure_test(config, *load_saved(adapter)[:2])
        found["completions"] = training.kept_rows(rows)
    return plain(found)


def _written(completions: Any) -> dict[str, list]:
    columns = {name: completions[name].tolist() for name in WRITTEN if len(completions)}
    for name in set(columns) - {"completion"}:
        columns[name] = [round(value, DIGITS) for value in columns[name]]
    return columns


def _answer(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What this code makes of the record with this name, `case/profile/arm/seedN`."""
    record = read_record(paths.RESULTS / f"{name}.json")
    return {
        "record": freshness.digest(record),
        "state": freshness.state(record),
        "figures": repeat(record, overrides),
    }


def main() -> None:
    # Libraries print: only answers go to the standard output.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        print(json.dumps(_answer(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
