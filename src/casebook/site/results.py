"""What the records say, as texts and rows that the templates of `docs/templates/` put into words.

Figures are pooled over the seeds of an arm and stand with their 95 % interval.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from statistics import mean
from typing import Any

import yaml

from casebook import paths, records
from casebook.case import PROFILES, Case, known_cases, load_case
from casebook.records import studies
from casebook.settings import read_arms

MAIN_ARM = "grpo"  # the arm whose figures a result leads with
LABEL_ARM = "label_sft"  # its untrained base is asked for the label alone
REAL_ARM = "sound"  # and the arm, of profile smol, that says what a real model learned
TAUGHT = ("rejection", "sft")  # the supervised controls that a result is never told without
# What the embedded model of a case is measured on, where it is not simply rows of the task
HELD_OUT = {
    "landuse": "parcels of generated landscapes",
    "gsm8k": "*generated* problems",
    "math": "*generated* problems",
}
# What a grade is called on the pages, in the order shown
GRADES = {"strict": "right, well formed", "lenient": "right", "wrong": "wrong", "none": "no answer"}
COUNTED = {
    "computation": "by computation",
    "citation": "by a published document",
    "same model": "by running the write-up’s model",
    records.EXPLORATORY["same model"]: "by running the write-up’s model, exploratory",
    "other real model": "by running another real model",
    "nano": "on the embedded model",
    records.EXPLORATORY["other real model"]: "by running another real model, exploratory",
    records.EXPLORATORY["nano"]: "on the embedded model, exploratory",
    "none": "not run here",
}
# How an expectation is told: of a figure against a number, of its bounds, of other words
DIRECTIONS = {"rises": "above", "falls": "below"}
BOUNDS = {"low": "at least", "high": "at most", "above": "above", "below": "below"}
WAYS = {
    "equivalent": "no change",
    "differs": "a difference either way",
    "not above": "not above it",
}


def numbered_cases() -> list[Case]:
    """All cases, in the order of their notebooks."""
    return sorted(map(load_case, known_cases()), key=lambda case: case.number)


def counted() -> dict[str, Any]:
    """The claims of all cases: their `number`, and as `rows` what decided -> word -> number."""
    together: Counter = Counter()
    claims = {case.name: records.load_claims(case.name) for case in numbered_cases()}
    for found in records.tally(claims).values():
        together.update(found)  # all have the same columns, in one order
    rows: dict[str, dict[str, int]] = {}
    for (evidence, word), count in together.items():
        rows.setdefault(COUNTED[evidence], {})[word] = count
    return {"number": together.total(), "rows": rows}


def learned(case: Case) -> dict[str, Any]:
    """What GRPO did to the embedded model, beside what does without it.

    Returns:
        `title`, `command`, what is `held_out`, and where there are records: `seeds` and `seconds`
        of the trainings, and the accuracies (`sampled`, `greedy`) `before`, `after`, of the base
        asked for the label `alone`, and after each of the supervised controls.
    """
    told: dict[str, Any] = {"title": case.title, "command": f"casebook experiments {case.name}"}
    told["held_out"] = HELD_OUT.get(case.name)
    if runs := records.committed(case.name, "nano", MAIN_ARM):
        told |= {"seeds": len(runs), "seconds": _seconds(runs)}
        told |= {when: _accuracies(runs, when) for when in ("before", "after")}
        if alone := records.committed(case.name, "nano", LABEL_ARM):
            told["alone"] = _accuracies(alone, "before")
        for method in TAUGHT:  # with the main arm's prompt
            own = records.committed(case.name, "nano", method)
            if taught := [run for run in own if _variant(run) == _variant(runs[0])]:
                told[method] = _accuracies(taught, "after")
    return told


def real_model() -> dict[str, Any]:
    """What training did to the one real model that was run, good or bad; empty without records."""
    case, runs = "poker", records.committed("poker", "smol", REAL_ARM)
    if not runs:
        return {}
    name, _, what = records.models_of(case, runs).partition(", ")
    counts = [figure["n"] for figure in runs[0]["after"]["per_class"].values()]
    taught = records.committed(case, "smol", f"{REAL_ARM}_sft")
    answers = [run["after"].get("also", {}).get("trie", {}) for run in runs]  # greedy, any label
    return {
        **{"name": name, "what": what, "seeds": len(runs)},
        **{when: _accuracies(runs, when)["greedy"] for when in ("before", "after")},
        "one_label": all(len(found.get("label_histogram", ())) == 1 for found in answers),
        "constant": f"{100 * max(counts) / sum(counts):.1f} %",
        "taught": taught and f"{_accuracies(taught, 'after')['greedy']} ({len(taught)} seeds)",
    }


def arms(case: str, profile: str) -> dict[str, Any]:
    """The recorded arms of a case and profile, in the order of their file; empty without any.

    Returns:
        The `model`, the `command` of all, their `number` and `minutes`, and `rows`: what each
        `asks`, its `command`, accuracies of base and policy, `seeds` and `seconds` of training.
    """
    runs = records.committed(case, profile)
    if not runs:
        return {}
    asked = questions(case)
    order = [*asked, *(run["arm"] for run in runs)]
    runs.sort(key=lambda run: order.index(run["arm"]))
    command = f"casebook experiments {case}" + f" --profile {profile}" * (profile != "nano")
    usual = next((_variant(run) for run in runs if run["arm"] == MAIN_ARM), None)
    rows = []
    for arm in dict.fromkeys(run["arm"] for run in runs):
        group, asks = [run for run in runs if run["arm"] == arm], asked.get(arm, arm)
        if profile == "nano" and _variant(group[0]) != usual:
            asks += f" (prompt `{_variant(group[0])}`)"
        about = {"asks": asks, "command": f"{command} --arm {arm}", "seconds": _seconds(group)}
        rows.append(about | {"seeds": len(group)} | _changes(group))
    seconds = sum(run["train_seconds"] + run.get("measure_seconds", 0) for run in runs)
    told = {"command": command, "number": len(runs), "minutes": f"{seconds / 60:.0f}"}
    if not PROFILES[profile].embedded:
        told["model"] = records.models_of(case, runs)
    return told | {"rows": rows}


def before_and_after(case: str) -> list[dict[str, Any]]:
    """What a real model wrote on the first test rows, by arm; `same`: how all prompts begin."""
    found, asked = [], questions(case)
    for run in records.committed(case, "smol"):
        if run["seed"] == 0 and run.get("completions_before"):
            after = {entry["row"]: entry for entry in run["completions"]}
            rows = [(entry, after[entry["row"]]) for entry in run["completions_before"]]
            model, asks = records.models_of(case, [run]), asked.get(run["arm"], run["arm"])
            same = commonprefix([it["prompt"] for it, _ in rows]).rpartition("\n")[0]  # noqa: RUF071
            found.append({"asks": asks, "model": model, "rows": rows, "same": same})
    return found


def answers(case: str) -> dict[str, list[dict[str, Any]]]:
    """The written policy of what a case's answer is: rule -> at most two examples of a grade."""
    policy = yaml.safe_load((records.claims.CASES / case / "answers.yaml").read_text("utf-8"))
    shown = {}
    for name, rule in policy["rules"].items():
        own = [example for example in policy["examples"] if example["rule"] == name]
        by_grade = [[one for one in own if one["grade"] == grade] for grade in GRADES]
        shown[" ".join(rule.split())] = [one for group in by_grade for one in group[:2]]
    return shown


def benchmarks() -> dict[str, Any]:
    """The recorded benchmarks by name; the conversion of the real model is a study."""
    files = (paths.RESULTS / "benchmarks").glob("*.json")
    found = {path.stem: paths.read_json(path) for path in sorted(files)}
    if studies.path("conversion").exists():
        found["conversion"] = studies.read("conversion")
    return found


def questions(case: str) -> dict[str, str]:
    """What each arm of a case asks, in the order of its file of experiments."""
    return {name: arm["question"] for name, arm in read_arms(case).items()}


def expected(comparison: Mapping[str, Any]) -> str:
    """How a figure was expected to go, or within which bounds to lie, in words."""
    unit, way = comparison.get("unit"), comparison.get("expected")

    def shown(number: float) -> str:
        return f"{number:g} {unit}" if unit else f"{100 * number:g} %"

    said = [f"{word} {shown(comparison[n])}" for n, word in BOUNDS.items() if n in comparison]
    if way in DIRECTIONS and (number := records.claims.number_in(comparison["left"])) is not None:
        said.append(f"{DIRECTIONS[way]} {shown(number)}")
    elif way:
        margin = shown(comparison.get("margin", records.claims.MARGIN)).replace("%", "points")
        said.append(WAYS.get(way, way) + f" beyond {margin}" * (way == "equivalent"))
    return ", ".join([*said, *["by less"] * ("gains_less_than" in comparison)])


def predicted(predictions: Iterable[Mapping[str, Any]]) -> str:
    """Some of `records.predictions` as a Markdown table: what was expected and why, what came."""
    rows = [["figure", "expected", "because", "outcome", "measured"], ["---"] * 5]
    for it in predictions:
        outcome = it["outcome"] + ", exploratory" * it["exploratory"]
        rows.append([it["what"], expected(it), it["reason"], outcome, it["measured"]])
    return "\n".join(records.table_row(*row) for row in rows)


def _variant(run: Mapping[str, Any]) -> str | None:
    return run.get("config", {}).get("variant")


def _seconds(runs: Sequence[Mapping]) -> str:
    gpus = sum(not run.get("config", {}).get("use_cpu", True) for run in runs)
    note = f" ({gpus} on a GPU)" if gpus else ""
    return f"{mean(run['train_seconds'] for run in runs):.0f} s{note}"


def _accuracies(runs: Sequence[Mapping], when: str) -> dict[str, str]:
    """The accuracies of an arm's runs, "before" or "after", pooled over its seeds, as text."""
    found = {}
    case, arm, profile = (runs[0][name] for name in ("case", "arm", "profile"))
    for way in ("sampled", "greedy"):
        figures = records.figures_at(case, f"{arm}/{when}/{way}_accuracy", runs, profile)
        found[way] = records.figure_text(records.pooled(figures))
    return found


def _changes(runs: Sequence[Mapping]) -> dict[str, tuple[str, str]]:
    """An arm's accuracies, base and trained; of validation rows where no test row was asked."""
    ways = ("sampled", "greedy")
    if all(map(records.has_test_figures, runs)):
        before, after = _accuracies(runs, "before"), _accuracies(runs, "after")
        return {way: (before[way], after[way]) for way in ways}
    said = {}
    for way in ways:
        pairs = [records.first_and_last(run, f"{way}_accuracy") for run in runs]
        first, last = (100 * mean(values) for values in zip(*pairs, strict=True))
        said[way] = (f"validation: {first:.1f} %", f"{last:.1f} %")
    return said
