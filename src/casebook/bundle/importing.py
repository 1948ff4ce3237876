"""From a bundle to a contributed record."""

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from casebook import paths
from casebook.bundle import contents
from casebook.bundle.archive import Refused, read_bundle, unpacked
from casebook.bundle.checking import check
from casebook.case import CasebookError
from casebook.paths import plain, write_json
from casebook.records import digest, read_record
from casebook.settings import checked, read_arms

AS_CONFIGURED = "as_configured"  # the arm of runs of a profile's own settings
SAME_MODEL = ("name", "revision", "weights", "source", "dtype", "load_in_4bit")


def import_bundle(file: str | Path, say: Callable[[str], None] = print) -> Path:
    """Check a bundle, and write its record to `results/<case>/<profile>/<arm>/seed<k>.json`.

    The same file again is graded again, by the code as it is now.

    Args:
        file: the bundle.
        say: called with one line about the check and one about what the record is.

    Returns:
        The path of the record.

    Raises:
        Refused: the bundle is not what it says, or a record of its seed is there.
        CannotCheck: the rows that its completions answer are not here.
        CasebookError: the file cannot be read.
        OSError: the record cannot be written.
    """
    content = read_bundle(Path(file))
    found = check(*unpacked(content))
    record = found.record
    record["arm"] = arm_of(record["config"])
    folder = paths.RESULTS / record["case"] / record["profile"] / record["arm"]
    path = folder / f"seed{record['seed']}.json"
    # A hub model is told from another by what the sender's cache said besides.
    model = {k: v for k, v in record["contributed"].pop("model").items() if k != "adapter" or v}
    record["contributed"]["adapter"] = model.pop("adapter")
    record["provenance"] = {**record["provenance"], "model": model}
    record["contributed"]["bundle"] = hashlib.sha256(content).hexdigest()
    _check_place(folder, path, record)
    record["contributed"] |= {
        "imported": datetime.now(UTC).isoformat(timespec="seconds"),
        "not_checked": found.not_checked,
    }
    write_json(path, record)
    say(f"accepted: {found.line}")
    say(f"{path}: regraded, contributed")
    return path


def arm_of(config: Mapping[str, Any]) -> str:
    """The arm that a run is one of: that of the case with its settings, or one of its own.

    A run of a profile's settings as they are is of the arm `as_configured`.
    """
    case, profile, settings = config["case"], config["profile"], contents.of_the_arm(config)
    try:
        arms = read_arms(case)
    except CasebookError:
        arms = {}
    for name, arm in arms.items():
        if arm["profile"] == profile:
            same = checked((case, profile), arm["overrides"])
            if contents.of_the_arm(plain(same)) == settings:
                return name
    own = contents.of_the_arm(contents.overrides(config))
    return f"own_{digest(settings)[:8]}" if own else AS_CONFIGURED


def _check_place(folder: Path, path: Path, record: Mapping[str, Any]) -> None:
    """Refuse a seed that is there, the same run under another seed, and other settings."""
    if path.exists():
        if _bundle_of(read_record(path)) != _bundle_of(record):
            raise Refused(f"seed {record['seed']} of {_named(record)} is there already: {path}")
        return
    for other in sorted(folder.glob("seed*.json")):
        held = read_record(other)
        ours, theirs = (contents.of_the_arm(one["config"]) for one in (record, held))
        if ours != theirs:
            names = sorted({*ours, *theirs})
            odd = next(n for n in names if ours.get(n, ...) != theirs.get(n, ...))
            raise Refused(f"{other.name} of {_named(record)} was made with another {odd}")
        models = [one["provenance"].get("model", {}) for one in (record, held)]
        for name in SAME_MODEL:
            if models[0].get(name) != models[1].get(name):
                raise Refused(f"{other.name} of {_named(record)} is of a model with another {name}")
    _check_once(folder.parent, record)


def _check_once(folder: Path, record: Mapping[str, Any]) -> None:
    """Refuse a run that is there under another seed, or in another arm of case and profile."""
    for path in sorted(folder.glob("*/seed*.json")):
        held = read_record(path)
        there = held.get("contributed", {})
        for name in ("adapter", "completions"):
            if there.get(name) == record["contributed"][name]:
                raise Refused(
                    f"the {name} of this bundle came before, as seed {held['seed']} of "
                    f"{_named(held)}: one run counts once"
                )


def _bundle_of(record: Mapping[str, Any]) -> str | None:
    return record.get("contributed", {}).get("bundle")


def _named(record: Mapping[str, Any]) -> str:
    return f"{record['case']}/{record['profile']}/{record['arm']}"
