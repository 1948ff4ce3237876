"""From a finished run folder to a bundle."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from casebook.bundle import contents, measured
from casebook.bundle.archive import (
    CannotCheck,
    Refused,
    json_bytes,
    lines_bytes,
    packed,
    sha256,
    unpacked,
    write_bundle,
)
from casebook.bundle.checking import check
from casebook.bundle.scrub import Scrubber, names_here
from casebook.case import CasebookError
from casebook.models import weights_hash
from casebook.paths import plain, read_json
from casebook.records import has_test_figures
from casebook.training.config import Config
from casebook.training.run import Run, read_lines

# Of a record: what is computed from completions, and compared. Scrubbed, it would differ.
OF_COMPLETIONS = ("completions", "completions_before", "before", "after")


def export_run(
    folder: str | Path, output: str | Path | None = None, say: Callable[[str], None] = print
) -> Path:
    """Write a finished run as one file that can be sent.

    The bundle is checked before it is written, as whoever imports it will.

    Args:
        folder: of the run.
        output: the file; by default `<case>-<profile>-seed<k>.zip` beside the run's folder.
        say: called with one line about what was removed, one about the check, and one about size
            and checksum.

    Returns:
        The path of the bundle.

    Raises:
        CasebookError: the folder holds no finished run with test figures, something in it is not
            as the run left it, or the bundle would be refused or too large.
        OSError: the file cannot be written.
    """
    run = Run(Path(folder))
    record, config = _finished(run)
    files, scrubber = _files(run, record, config)
    about = {
        "case": record["case"],
        "profile": record["profile"],
        "seed": record["seed"],
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "overrides": scrubber.scrub(contents.overrides(record["config"])),
        "scrubbed": dict(sorted(scrubber.found.items())),
    }
    made = packed(files, about)
    removed = ", ".join(f"{kind} {count} times" for kind, count in about["scrubbed"].items())
    say(f"removed: {removed or 'nothing, there were no paths, names or secrets'}")
    try:
        checked = check(*unpacked(made))
        say(f"checked: {checked.line}")
    except CannotCheck as error:
        say(f"not checked here: {error}")
    except Refused as error:
        raise CasebookError(f"the run would be refused where it is imported: {error}") from None
    name = f"{record['case']}-{record['profile']}-seed{record['seed']}.zip"
    path = Path(output) if output else run.path.resolve().with_name(name)
    write_bundle(path, made)
    say(f"{path}: {len(files) + 1} files, {len(made) / 2**20:.1f} MiB, SHA-256 {sha256(made)}")
    return path


def _finished(run: Run) -> tuple[dict[str, Any], Config]:
    """The record and configuration of a run, if it can be exported at all."""
    if not run.path.is_dir():
        raise CasebookError(f"there is no run folder at {run.path}")
    if not run.finished:
        raise CasebookError(
            f"the run in {run.path} has not finished: casebook train with --resume goes on with it"
        )
    record = run.record()
    if not has_test_figures(record):
        raise CasebookError(
            f"the run in {run.path} was not measured on test rows: nothing to check"
        )
    if plain(run.settings()) != record["config"]:
        raise CasebookError(f"config.yaml in {run.path} is not the configuration of its record")
    note = run.path / "measured" / "policy"
    if not note.is_file():
        raise CasebookError(f"the run in {run.path} keeps no completions of its measuring")
    if note.read_text() != weights_hash(run.adapter):
        raise CasebookError(f"the adapter in {run.path} is not the one that was measured")
    return record, contents.to_read(record["config"])


def _files(
    run: Run, record: Mapping[str, Any], config: Config
) -> tuple[dict[str, bytes], Scrubber]:
    """The files of a bundle without what is private, and what scrubbed them."""
    words = contents.own_words(record["case"], record["profile"])
    scrubber, plans = Scrubber(names_here(words=words)), measured.plan(config)
    completions, ends, dropped = _completions(run, config, plans)
    kept = {name: record[name] for name in OF_COMPLETIONS if name in record}
    provenance = record["provenance"]
    model = {
        **provenance["model"],
        **_hub(provenance["model"]),
        "adapter": weights_hash(run.adapter),
    }
    small = {
        "record": {n: value for n, value in record.items() if n not in OF_COMPLETIONS},
        "config": record["config"],
        "environment": contents.environment(provenance),
        "model": model,
        "measured": contents.decodings(plans, ends, dropped),
    }
    if (run.path / "preflight.json").is_file():
        small["preflight"] = read_json(run.path / "preflight.json")
    small = {name: scrubber.scrub(value) for name, value in small.items()}
    small["record"] |= kept
    files = {f"{name}.json": json_bytes(plain(value)) for name, value in small.items()}
    metrics = [plain(line) for line in read_lines(run.metrics_file)]
    files["metrics.jsonl"] = lines_bytes(scrubber.scrub(metrics))
    return files | completions, scrubber


def _completions(
    run: Run, config: Config, plans: Mapping[str, measured.Measurement]
) -> tuple[dict[str, bytes], list[int], dict[str, list[int]]]:
    """The files of completions, the tokens that end one, and the rows left out of each."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(run.adapter)
    except Exception as error:  # the tokenizers library raises bare ones
        raise CasebookError(f"the tokenizer in {run.adapter} is damaged: {error}") from error
    lines = {
        (when, name): measured.lines_of(run.path / "measured" / when / f"{name}.jsonl", tokenizer)
        for when in measured.WHEN
        for name in plans
    }
    every = [line for part in lines.values() for line in part]
    ends = measured.ends_of(tokenizer, every, config.max_completion_length)
    dropped = {name: _dropped(config, plans[name], lines["after", name]) for name in plans}
    files = {
        f"completions/{when}/{name}.jsonl": lines_bytes(part)
        for (when, name), part in lines.items()
    }
    return files, ends, dropped


def _dropped(config: Config, wanted: measured.Measurement, lines: list[Mapping]) -> list[int]:
    """The rows without any completion; none where the rows are not here, which is found later."""
    try:
        asked = len(measured.Rows(config.case, config.profile).of(wanted.variant, wanted.limit))
    except CannotCheck:
        asked = max((line["row"] for line in lines), default=-1) + 1
    return sorted(set(range(asked)) - {line["row"] for line in lines})


def _hub(model: Mapping[str, Any]) -> dict[str, Any]:
    """Commit and hash of a hub model's weights, from this machine's cache, where it has them.

    A record names a hub model by its commit alone, and not even by that where a library loads it
    in its own way.
    """
    if model["weights"]:
        return {}
    from huggingface_hub import snapshot_download

    try:
        cached = snapshot_download(model["name"], revision=model["revision"], local_files_only=True)
    except (OSError, ValueError):
        return {}
    return {"weights": weights_hash(Path(cached)), "revision": Path(cached).name}
