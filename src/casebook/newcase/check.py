"""What is wrong with a case before anything is trained: settings, rows, grader, rewards, base."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import combinations, product
from pathlib import Path
from typing import Any

from casebook import folder, paths, redteam
from casebook.case import PROFILES, SPLITS, Case, CasebookError, load_case
from casebook.records import gate
from casebook.redteam.subject import Subject
from casebook.settings import checked

ROWS, SAMPLES = 48, 8  # rows that are looked at closely, and samples of the base for each
ODD = ("", "<answer></answer>", "\x00½<answer>", "[" * 3000, "9" * 5000, "- 1e999 nan")


def check(name: str) -> list[tuple[str, str]]:
    """What would spoil a training of a case, each as a kind and a sentence; of the kind `note` is
    what could not be checked. A case or rows that cannot be read are a `CasebookError`."""
    case, found, settings, kinds = load_case(name), [], {}, set()
    rows = {split: case.load(split).to_list() for split in SPLITS}

    def add(kind: str, sentences: Iterable[str]) -> None:
        try:
            found.extend((kind, said) for said in sentences)
        except CasebookError as error:
            found.append((kind, str(error)))
        except TimeoutError:
            found.append(("note", f"{kind} was not attacked to the end: the time was up"))
        except ImportError as error:
            found.append(("note", f"{kind} was not checked, since {error.name} is not installed"))

    add("leak", _leaks(case, rows))
    add("grader", _grader(case, rows["train"][:ROWS]))
    for profile in [it for it in PROFILES if (folder.place(name) / f"{it}.yaml").is_file()]:
        add("settings", _settings((name, profile), settings if profile == "nano" else {}))
    for reward in settings.get("reward_funcs", case.rewards):
        given = (settings.get("reward_kwargs") or {}).get(reward, {})
        add(f"reward {reward}", _reward(case, reward, given, rows["train"][:ROWS], kinds))
    if kinds == {"form"}:
        found.append(("rewards", "none reads the answer, so form is all that can be learned"))
    if settings:
        base = paths.ROOT / settings["model_name_or_path"]
        if not base.is_dir():
            found.append(("note", f"there is no base model yet: casebook nano build {case.name}"))
        add("base", _base(case, settings, rows, base))
    return found


def _leaks(case: Case, rows: dict[str, list]) -> Iterator[str]:
    keys = {"prompt": lambda row: " ".join(row["prompt"].lower().split())}
    keys |= {"cluster": case.cluster} if case.cluster and not case.number else {}  # of folder.py
    for (what, key), (one, other) in product(keys.items(), combinations(SPLITS, 2)):
        if both := {str(key(row)) for row in rows[one]} & {str(key(row)) for row in rows[other]}:
            yield f"{one} and {other} share {len(both)} {what}s, as {min(both)!r:.80}"


def _grader(case: Case, rows: list[dict]) -> Iterator[str]:
    texts = [case.reference(row) for row in rows]
    asked = [*zip(rows * 2, texts + texts[1:] + texts[:1], strict=True)]
    asked += [(row, text) for row in rows[:8] for text in ODD]
    grades = [case.grade(text, row["answer"]) for row, text in asked + asked[::-1]]
    if wavers := sum(grades[i] != grades[-1 - i] for i in range(len(asked))):
        yield f"{wavers} of {len(asked)} completions get another grade the next time"
    if refused := sum(not grade.strict for grade in grades[: len(rows)]):
        yield f"{refused} of {len(rows)} references are not right and well formed"
    if len(rows) > 1 and all(grade.correct for grade in grades[len(rows) : 2 * len(rows)]):
        yield "the reference of any row is right for the next one"


def _settings(source: tuple[str, str], into: dict[str, Any]) -> Iterator[str]:
    into |= checked(source)
    yield from ()


def _reward(case: Case, name: str, given: dict, rows: list[dict], kinds: set) -> Iterator[str]:
    """What the red team finds; what pays another row's reference alike is attacked as for form."""
    target, texts = f"{case.name}:{name}", [*map(case.reference, rows)]
    asked = [zip(rows, said, strict=True) for said in (texts, texts[1:] + texts[:1])]
    with closing(Subject(target, given)) as subject:
        own, others = (
            subject.pay([row | {"completion": text} for row, text in pairs]).paid for pairs in asked
        )
    kind = "form" if own == others and any(own) else "answer"
    kinds.add(kind)
    report = redteam.redteam(target, kind=kind, **given)
    for it in report["findings"]:
        yield f"{it['kind']}: {it['meaning']} {it['completion']!r:.120}"
    if not report["complete"]:
        raise TimeoutError


def _base(case: Case, settings: dict, rows: dict[str, list], base: Path) -> Iterator[str]:
    """Whether the embedded model can read and write the rows, and is right now and then."""
    from casebook import evaluation, models
    from casebook.experiments import nano

    model, reader = models.load_base(settings) if base.is_dir() else (0, nano.build_tokenizer(case))
    most, room = settings["max_seq_length"], settings["max_completion_length"]
    for split in SPLITS:
        pairs = [(row["prompt"], case.reference(row)) for row in rows[split]]
        pairs = [[reader.tokenize(text) for text in pair] for pair in pairs]
        if strange := sum(nano.UNKNOWN in asked + said for asked, said in pairs):
            yield f"{strange} rows of {split} have words that no training row has"
        if any(len(asked) + room > most or len(said) >= room for asked, said in pairs):
            yield f"rows of {split} are too long for the lengths in nano.yaml"
    if model:
        how = {"limit": ROWS, "samples": SAMPLES, "greedy": False, "settings": settings}
        table = evaluation.evaluate(model, reader, case, "validation", **how).rows
        right = table.groupby("row")["strict"].mean()
        rate, silent, (low, high) = right.mean(), right.isin((0, 1)).mean(), gate.PASS_RATE
        if not low <= rate <= high or silent >= gate.MOST_SILENT:
            said = (
                f"{rate:.0%} of its samples are right and well formed, {silent:.0%} of its groups"
            )
            yield f"{said} silent: GRPO needs {low:.0%} to {high:.0%}, and fewer silent ones"
