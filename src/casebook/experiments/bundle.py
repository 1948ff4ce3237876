"""A run as one file: the data that its figures are computed from, not the figures.

    config.json                       the settings of the run
    completions/<when>/<name>.jsonl   what was written before and after: [row, decoding, sample,
                                      token ids, text]

The receiver trusts nothing in it: `check_bundle` grades the completions with the case's own grader
and rows, and computes all figures and intervals. Nothing is unpacked to the disk, and only JSON is
read. Nobody can check that a model wrote the completions, so no command copies a bundle's figures
into `results/`.

The file contains nothing private: a setting that might be a path on somebody's machine, or markup,
stops the export.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from casebook import settings as schema
from casebook.case import PROFILES, CasebookError, check_name, known_cases, load_case
from casebook.evaluation import Evaluation, graded, stored_in
from casebook.models import model_source, weights_hash
from casebook.paths import plain, replacing
from casebook.records import figure_text, has_test_figures
from casebook.training import measure
from casebook.training.config import Config, read_config
from casebook.training.log import text_of
from casebook.training.run import Run

MEBIBYTE = 2**20
LARGEST_BUNDLE = 64 * MEBIBYTE  # 1,319 rows x 5 completions of 1,024 tokens have about 40
LARGEST_CONTENT = 256 * MEBIBYTE  # of all files together, expanded
TEMPLATE = 128  # tokens that a chat template may add around a prompt, generously
UNPROVEN = (
    "Nobody can check that a model wrote these completions, that it was the one named, or that "
    "this seed was the only one tried."
)

CONFIG = "config.json"
# Settings that decide nothing of a figure, and may name somebody's machine.
UNSENT = ("report_to", "disable_tqdm")
PLAIN_TEXT = re.compile(r"(?![/~]|.*\.\.)[\w .:,+/-]{0,100}")  # of a setting: no path, no markup


class Refused(CasebookError):
    """An invalid bundle: one sentence that names the first error."""


class CannotCheck(CasebookError):
    """A bundle that cannot be checked here, because its rows are missing."""


# Export


def export_run(
    folder: str | Path, output: str | Path | None = None, say: Callable[[str], None] = print
) -> Path:
    """Write a finished run as one file that can be sent, and check it as its receiver will.

    Args:
        folder: of the run.
        output: the file; by default `<case>-<profile>-seed<k>.zip` beside the run's folder.
        say: called with what the check found, and with the file and its size.

    Raises:
        CasebookError: there is no finished run with test figures, its adapter is another one, a
            setting may name somebody's machine, or the bundle would be refused.
    """
    run = Run(Path(folder))
    record = run.record()
    note = run.path / "measured" / "policy"
    if not has_test_figures(record) or not note.is_file():
        raise CasebookError(f"{run.path} has no completions of test rows: nothing can be checked")
    if note.read_text() != weights_hash(run.adapter):
        raise CasebookError(f"the adapter in {run.path} is not the one that was measured")
    settings = {name: v for name, v in record["config"].items() if name not in UNSENT}
    tokenizer = AutoTokenizer.from_pretrained(run.adapter)
    files = {CONFIG: json.dumps(settings, indent=1, sort_keys=True, ensure_ascii=False).encode()}
    for path in sorted((run.path / "measured").glob("*/*.jsonl")):
        stored = [[*job, ids, size] for job, ids, size in stored_in(path)]
        texts = tokenizer.batch_decode([ids for *_, ids, _ in stored], skip_special_tokens=True)
        lines = ([*line[:4], text] for line, text in zip(stored, texts, strict=True))
        files[f"completions/{path.parent.name}/{path.name}"] = _lines(lines)
    content = _zipped(files)
    try:
        found = check_bundle(content)
        say(f"{found['completions']:,} completions graded again")
    except CannotCheck as error:
        say(f"not checked here: {error}")
    except Refused as error:
        raise CasebookError(f"the check would refuse this run: {error}") from None
    name = f"{record['case']}-{record['profile']}-seed{record['seed']}.zip"
    path = Path(output) if output else run.path.resolve().with_name(name)
    with replacing(path) as part:
        part.write_bytes(content)
    say(f"{path}: {len(files)} files, {len(content) / MEBIBYTE:.1f} MiB")
    return path


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)  # with a fixed date: the same run gives the same bytes
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values).encode()


# Check


def check_bundle(bundle: str | Path | bytes) -> dict[str, Any]:
    """Grade the completions of a bundle again, and compute what they show.

    Args:
        bundle: the file, or its bytes.

    Returns:
        `case`, `profile`, `seed`, `overrides` (settings that are not the profile's),
        `completions` (how many), `texts` (whether they were compared with their token ids),
        `before` and `after` (figures as a record has them).

    Raises:
        Refused: the bundle is not built as one is, or its completions are not those that its
            settings ask for.
        CannotCheck: the rows that they answer are not here.
        CasebookError: the file cannot be read.
    """
    if not isinstance(bundle, bytes):
        try:
            with open(bundle, "rb") as file:
                bundle = file.read(LARGEST_BUNDLE + 1)
        except OSError as error:
            raise CasebookError(f"{bundle} cannot be read: {error.strerror or error}") from None
    try:
        return _checked(_unpacked(bundle))
    except CasebookError:
        raise
    except Exception as error:  # of libraries, on bytes and values that no list foresees
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refused(f"the file is not a valid bundle: {said[:200]}") from error


def _checked(files: Mapping[str, bytes]) -> dict[str, Any]:
    config, overrides = _configured(json.loads(files[CONFIG]))
    embedded = PROFILES[config.profile].embedded
    plans = measure.plans(config)
    wanted = {f"completions/{when}/{name}.jsonl" for when in ("before", "after") for name in plans}
    if odd := sorted(wanted ^ (set(files) - {CONFIG})):
        verb = "is missing from" if odd[0] in wanted else "does not belong in"
        raise Refused(f"{odd[0][:120]!r} {verb} a bundle with these settings")
    written = {n: [json.loads(x) for x in files[n].splitlines()] for n in sorted(wanted)}
    for name, lines in written.items():
        for row, decoding, sample, ids, text in lines:
            kinds = [type(value) for value in (row, decoding, sample, ids, text)]
            tokens = [type(token) is int and 0 <= token < 2**31 for token in ids]
            if kinds != [int, str, int, list, str] or not all(tokens):
                raise Refused(f"a line of {name} is not [row, decoding, sample, token ids, text]")
    longest = config.max_completion_length
    every = [ids for lines in written.values() for *_, ids, _ in lines]
    # A model may declare further ends than its tokenizer's: nothing else ends a completion early.
    ends = {ids[-1] for ids in every if 0 < len(ids) < longest}
    if embedded:
        _check_texts(config, written)
    found: dict[str, dict[str, Evaluation]] = {"before": {}, "after": {}}
    for name, lines in written.items():
        _, when, file = name.removesuffix(".jsonl").split("/")
        found[when][file] = _graded(name, config, plans[file], lines, ends)
    figures = {when: measure.figures_of(config, of_files) for when, of_files in found.items()}
    return {
        **{name: config.settings[name] for name in ("case", "profile", "seed")},
        **{"overrides": overrides, "completions": len(every), "texts": embedded},
        **plain(figures),
    }


def _configured(settings: Any) -> tuple[Config, dict[str, Any]]:
    """A bundle's configuration, and what in it is not its profile's."""
    if not isinstance(settings, dict):
        raise Refused(f"{CONFIG} contains no settings")
    _check_plain(settings)
    case, profile = settings.get("case"), settings.get("profile")
    try:
        check_name("case", case, known_cases())
        check_name("profile", profile, PROFILES)
        known = plain(schema.checked((case, profile)))
        whole = plain(schema.checked((case, profile), settings))
        # TRL's parser refuses bf16 where nothing computes with it: that decides no grade.
        anywhere = {"use_cpu": True, "bf16": False, "fp16": False}
        config = read_config((case, profile), {**settings, **anywhere})
    except CasebookError as error:
        raise Refused(f"{CONFIG}: {error}") from None
    if profile == "smoke" or config.measure == "validation":
        raise Refused("figures of the profile 'smoke' or of validation rows are never results")
    if missing := sorted(set(whole) - set(settings) - set(UNSENT)):
        raise Refused(f"{CONFIG} does not say {missing[0]}")
    own = {n: v for n, v in settings.items() if n not in known or known[n] != v}
    own.pop("seed", None)
    if PROFILES[profile].embedded and "model_name_or_path" in own:
        model = known["model_name_or_path"]
        raise Refused(f"the profile {profile!r} allows only the embedded model {model}")
    return config, own


def _check_plain(value: Any) -> None:
    """Refuse a text among settings that is a path, markup or the like."""
    if isinstance(value, str) and not PLAIN_TEXT.fullmatch(value):
        raise Refused(f"the setting {value[:60]!r} may name a path on a machine")
    for entry in value if isinstance(value, list) else ():
        _check_plain(entry)
    for pair in value.items() if isinstance(value, Mapping) else ():
        _check_plain(list(pair))


# Completions


def _graded(
    name: str, config: Config, plan: Mapping[str, Any], lines: Sequence[list], ends: set[int]
) -> Evaluation:
    """A file's completions with today's grades, if they are those that the settings ask for.

    Each test row has to be there exactly as often as the settings say; a row may be left out
    altogether only where its prompt leaves no room for a completion.
    """
    case = load_case(config.case)
    try:
        rows = case.load("test", config.profile, variant=plan["variant"])
    except (CasebookError, OSError) as error:
        raise CannotCheck(f"the rows of {case.name} are not here: {error}") from None
    asked = rows.select(range(min(plan["limit"] or len(rows), len(rows)))).to_list()
    found = {(row, decoding, sample): (ids, text) for row, decoding, sample, ids, text in lines}
    kept = sorted({row for row, *_ in found})
    jobs = [(row, "greedy", 0) for row in kept if plan.get("greedy", True)]
    jobs += [(row, "sample", k) for row in kept for k in range(plan["samples"])]
    for row in sorted(set(range(len(asked))) - set(kept)):
        prompt = asked[row]["prompt"]
        around = 0 if isinstance(prompt, str) else TEMPLATE
        size = len(text_of(prompt).encode()) + around  # no more tokens than bytes
        if size <= config.max_seq_length - config.max_completion_length:
            raise Refused(f"row {row} is missing from {name}, although its prompt fits")
    if len(found) != len(lines):
        raise Refused(f"{name} has a completion twice")
    if odd := sorted(set(found) ^ set(jobs)) or [job for job in jobs if job[0] >= len(asked)]:
        verb = "lacks" if odd[0] in jobs and odd[0] not in found else "should not have"
        raise Refused(f"{name} {verb} row {odd[0][0]}, {odd[0][1][:20]} {odd[0][2]}")
    if not jobs:
        raise Refused(f"{name} has no completions")
    longest, said = config.max_completion_length, []
    for job in jobs:
        ids, text = found[job]
        ended = bool(ids) and ids[-1] in ends
        if not ids or len(ids) > longest or ends.intersection(ids[:-1]):
            raise Refused(f"{name}, row {job[0]}: {len(ids)} tokens, with a misplaced end token")
        line = dict(zip(("row", "decoding", "sample"), job, strict=True))
        said.append(line | {"completion": text, "tokens": len(ids), "truncated": not ended})
    table = graded(case, (asked[job[0]] for job in jobs), said, plan["variant"])
    return Evaluation(table, case.labels, dropped=len(asked) - len(kept))


def _check_texts(config: Config, written: Mapping[str, Sequence[list]]) -> None:
    """Refuse texts of an embedded model, whose tokenizer is here, that its ids do not say."""
    tokenizer = AutoTokenizer.from_pretrained(model_source(config.settings["model_name_or_path"]))
    for name, lines in written.items():
        for row, *_, ids, text in lines:
            known = max(ids, default=0) < len(tokenizer)
            if not known or tokenizer.decode(ids, skip_special_tokens=True) != text:
                raise Refused(f"{name}, row {row}: the text differs from its tokens")


# The file


def _unpacked(content: bytes) -> dict[str, bytes]:
    """The files of a bundle; how large they are is looked at before anything is read."""
    if len(content) > LARGEST_BUNDLE:
        raise Refused(f"the file is larger than {LARGEST_BUNDLE // MEBIBYTE} MiB")
    if not content.startswith(b"PK\3\4"):
        raise Refused("the file is no zip")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if sum(one.file_size for one in entries) > LARGEST_CONTENT:
            raise Refused(f"its files have more than {LARGEST_CONTENT // MEBIBYTE} MiB in all")
        files = {one.orig_filename: archive.read(one) for one in entries}  # not cut at a NUL
        if len(files) < len(entries):
            raise Refused("the bundle has a file twice")
        if CONFIG not in files:
            raise Refused(f"{CONFIG} is missing from the bundle")
        return files


def report(found: Mapping[str, Any]) -> list[str]:
    """What a check found, as it is printed."""
    changed = ", ".join(f"{name} {value}" for name, value in found["overrides"].items())
    run = f"{found['case']}/{found['profile']}, seed {found['seed']}"
    said = [f"{run}, with {changed}" if changed else run]
    said.append(f"{found['completions']:,} completions graded again")
    for name in ("greedy_accuracy", "sampled_accuracy", "lenient_accuracy", "well_formed"):
        pair = [found[when].get(name) for when in ("before", "after")]
        if all(pair):
            before, after = map(figure_text, pair)
            said.append(f"  {name}: {before} before, {after} after")
    if not found["texts"]:
        said.append("Not checked, for want of the tokenizer: that the texts are what the ids say.")
    if PROFILES[found["profile"]].embedded:
        said.append("An embedded model trains in minutes: train it again, and believe that.")
    return [*said, UNPROVEN]
