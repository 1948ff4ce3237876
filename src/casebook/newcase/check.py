"""What is wrong with a case before anything is trained: settings, rows, grader, rewards, base."""

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from itertools import combinations
from typing import Any

from casebook import folder, paths, redteam
from casebook.case import PROFILES, SPLITS, Case, CasebookError, load_case
from casebook.records import gate
from casebook.settings import checked

ROWS, SAMPLES = 48, 8  # rows that are looked at closely, and samples of the base for each
ODD = ("", "<answer></answer>", "\x00½<answer>", "[" * 3000, "9" * 5000, "- 1e999 nan")
Found = Iterator[tuple[str, str]]


def check(name: str) -> list[tuple[str, str]]:
    """What would spoil a training of a case, each as a kind and a sentence; of the kind `note` is
    what could not be checked. A case or rows that cannot be read are a `CasebookError`."""
    case, settings = load_case(name), {}
    rows = {split: case.load(split).to_list() for split in SPLITS}
    near = rows["train"][:ROWS]
    texts = [case.reference(row) for row in near]
    found = [*_leaks(case, rows), *_grader(case, near, texts)]
    for profile in [it for it in PROFILES if (folder.place(name) / f"{it}.yaml").is_file()]:
        try:
            own = checked((name, profile))
            settings = own if profile == "nano" else settings
        except CasebookError as error:
            found.append(("settings", str(error)))
    columns = {key: [row[key] for row in near] for key in near[0]}
    columns["prompts"] = columns["prompt"]
    for reward in settings.get("reward_funcs", case.rewards):
        given, kind = (settings.get("reward_kwargs") or {}).get(reward, {}), f"reward {reward}"
        try:  # one that pays another row's reference as the row's own is for form alone
            pay = partial(case.rewards[reward](**given), **columns)
            own, others = pay(completions=texts), pay(completions=texts[1:] + texts[:1])
            form = "form" if own == others and any(own) else "answer"
            told = redteam.redteam(f"{name}:{reward}", kind=form, **given)["findings"]
            found += [(kind, f"{it['kind']}: {it['meaning']}") for it in told]
        except CasebookError as error:
            found.append((kind, str(error)))
    if settings and find_spec("torch"):
        return [*found, *_model(case, settings, rows)]
    return [*found, ("note", "no look at the base: that needs torch, and a nano.yaml in order")]


def _leaks(case: Case, rows: dict[str, list]) -> Found:
    keys = {"prompt": lambda row: " ".join(row["prompt"].lower().split()), "cluster": case.cluster}
    for what, key in keys.items():
        seen = {split: {str(key(row)) for row in rows[split] if key} for split in SPLITS}
        for one, other in combinations(SPLITS, 2):
            if both := sorted(seen[one] & seen[other]):
                yield "leak", f"{one} and {other} share {len(both)} {what}s, as {both[0]!r:.80}"


def _grader(case: Case, rows: list[dict], texts: list[str]) -> Found:
    asked, grades = [*zip(rows * 2, texts + texts[1:] + texts[:1], strict=True)], []
    asked += [(row, text) for row in rows[:8] for text in ODD]
    for row, text in asked + asked[::-1]:
        try:
            grades.append(case.grade(text, row["answer"]))
        except CasebookError as error:
            yield "grader", f"{error}, of {text!r:.40} where {row['answer']!r:.40} is right"
            return
    if wavers := sum(grades[i] != grades[-1 - i] for i in range(len(asked))):
        yield "grader", f"{wavers} of {len(asked)} completions get another grade the next time"
    if refused := sum(not grade.strict for grade in grades[: len(rows)]):
        yield "grader", f"{refused} of {len(rows)} references are not right and well formed"
    if all(grade.correct for grade in grades[len(rows) : 2 * len(rows)]):
        yield "grader", "the reference of any row is right for the next one"


def _model(case: Case, settings: dict[str, Any], rows: dict[str, list]) -> Found:
    """Whether the embedded model can read and write the rows, and is right now and then."""
    from casebook import evaluation, models
    from casebook.experiments import nano

    model, base = None, paths.ROOT / settings["model_name_or_path"]
    if base.is_dir():
        model, reader = models.load_base(settings)
    else:
        reader = nano.build_tokenizer(case)
        yield "note", f"there is no base yet: casebook nano build {case.name}"
    most, room = settings["max_seq_length"], settings["max_completion_length"]
    for split in SPLITS:
        pairs = [(row["prompt"], case.reference(row)) for row in rows[split]]
        pairs = [[reader.tokenize(text) for text in pair] for pair in pairs]
        if strange := sum(nano.UNKNOWN in asked + said for asked, said in pairs):
            yield "tokens", f"{strange} rows of {split} have words that no training row has"
        if any(len(asked) + room > most or len(said) >= room for asked, said in pairs):
            yield "tokens", f"rows of {split} are too long for the lengths in nano.yaml"
    if model:
        how = {"limit": ROWS, "samples": SAMPLES, "greedy": False, "settings": settings}
        table = evaluation.evaluate(model, reader, case, "validation", **how).rows
        right = table.groupby("row")["strict"].mean()
        rate, silent, (low, high) = right.mean(), right.isin((0, 1)).mean(), gate.PASS_RATE
        if not low <= rate <= high or silent >= gate.MOST_SILENT:
            said = (
                f"{rate:.0%} of its samples are right and well formed, {silent:.0%} of its groups"
            )
            yield (
                "base",
                f"{said} silent: GRPO needs {low:.0%} to {high:.0%}, and fewer silent ones",
            )
