"""What the records and the claims say, as Markdown: sentences and tables, each with its command."""

import html
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import yaml

from casebook import paths, records
from casebook.case import PROFILES, Case, known_cases, load_case
from casebook.records import studies
from casebook.settings import read_arms
from casebook.stats import pool_seeds

MAIN_ARM = "grpo"  # the arm whose figures a result leads with
LABEL_ARM = "label_sft"  # its untrained base is asked for the label alone
REAL_ARM = "sound"  # and the arm, of profile smol, that says what a real model learned
# The supervised controls that a result is never told without: method -> its name in a sentence.
TAUGHT = {
    "rejection": "fine-tuning on the base's own right answers (rejection sampling)",
    "sft": "supervised fine-tuning on the oracle's",
}
# What the embedded model of a case is measured on, where it is not simply rows of the task.
HELD_OUT = {
    "landuse": "parcels of generated landscapes",
    "gsm8k": "*generated* problems",
    "math": "*generated* problems",
}
# How an expectation is told: of a figure against a number, of its bounds, of other words
DIRECTIONS = {"rises": "above", "falls": "below"}
BOUNDS = {"low": "at least", "high": "at most", "above": "above", "below": "below"}
WORDS = {
    "unchanged": "no change that the records show",
    "not above": "not above it by more than the interval",
}
# What a grade of a case's `answers.yaml` is called on its page, in the order shown.
GRADES = {
    "strict": "right, well formed",
    "lenient": "right",
    "wrong": "wrong",
    "none": "no answer",
}
COUNTED = {
    "computation": "by computation",
    "citation": "by a published document",
    "same model": "by running the write-up’s model",
    records.EXPLORATORY["same model"]: "by running the write-up’s model, exploratory",
    "other real model": "by running another real model",
    "nano": "on the embedded model",
    records.EXPLORATORY["other real model"]: "by running another real model, exploratory",
    records.EXPLORATORY["nano"]: "on the embedded model, exploratory",
    "none": "",
}


def numbered_cases() -> list[Case]:
    """All cases, in the order of their notebooks."""
    return sorted(map(load_case, known_cases()), key=lambda case: case.number)


# One case


def result(case: Case) -> str:
    """What GRPO did to the embedded model, beside what does without it, in a few sentences."""
    runs = records.committed(case.name, "nano", MAIN_ARM)
    if not runs:
        return records.missing(f"casebook experiments {case.name}")
    before, after = _accuracies(runs, "before"), _accuracies(runs, "after")
    told = [
        f"**{case.title}, on the embedded model:** GRPO took strict accuracy on held-out "
        f"{HELD_OUT.get(case.name, 'rows')}, when sampled, from {before['sampled_accuracy']} "
        f"to **{after['sampled_accuracy']}** ({len(runs)} seeds, {_seconds(runs)} of training "
        f"each). With greedy decoding, which shows more of what the base model could do already, "
        f"it went from {before['greedy_accuracy']} to {after['greedy_accuracy']}."
    ]
    alone = records.committed(case.name, "nano", LABEL_ARM)
    if alone:
        told.append(
            "The same base model, untrained and asked for the label alone, is right for "
            f"{_accuracies(alone, 'before')['greedy_accuracy']} (greedy)."
        )
    taught = {method: _taught(case, method, runs) for method in TAUGHT}
    others = [
        f"{words} reached {_accuracies(taught[method], 'after')['sampled_accuracy']} sampled and "
        f"{_accuracies(taught[method], 'after')['greedy_accuracy']} greedy"
        for method, words in TAUGHT.items()
        if taught[method]
    ]
    if others:
        told.append(f"With as many completions, {_listed(others)}.")
    return " ".join(told)


def counted(counts: Mapping[tuple[str, str], int]) -> dict[str, str]:
    """A case's counts of `records.tally` in words: how it was decided -> with which verdicts.

    >>> counted({("citation", "confirmed"): 2, ("citation", "refuted"): 0})
    {'by a published document': '2 confirmed'}
    """
    said: dict[str, list[str]] = {}
    for (evidence, verdict), count in counts.items():
        if count:
            said.setdefault(COUNTED[evidence], []).append(f"{count} {verdict}")
    return {how: ", ".join(parts) for how, parts in said.items()}


def _taught(case: Case, method: str, main: Sequence[Mapping]) -> list[dict[str, Any]]:
    """The runs of a supervised control with the main arm's prompt."""
    runs = records.committed(case.name, "nano", method)
    runs = [run for run in runs if run.get("config", {}).get("method") == method]
    return [run for run in runs if _variant(run) == _variant(main[0])]


# All cases


def claims_table(counts: Mapping[str, Mapping[tuple[str, str], int]]) -> str:
    """A small table of `records.tally`: the claims of all write-ups, by how they were decided."""
    together = sum((Counter(found) for found in counts.values()), Counter())
    order = [column for found in counts.values() for column in found]
    rows = counted({column: together[column] for column in dict.fromkeys(order)})
    lines = [f"| {together.total()} claims | verdicts |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {how or '–'} | {found} |" for how, found in rows.items())])


def headlines() -> str:
    """A table of greedy accuracies: each case's base, its policy, and what does without GRPO."""
    lines = [
        "| held-out rows | base | base, label alone | GRPO | rejection sampling "
        "| supervised fine-tuning |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in numbered_cases():
        runs = records.committed(case.name, "nano", MAIN_ARM)
        alone = records.committed(case.name, "nano", LABEL_ARM)
        shown = [(runs, "before"), (alone, "before"), (runs, "after")]
        shown += [(_taught(case, method, runs), "after") for method in TAUGHT if runs]
        if runs:
            cells = [_accuracies(*arm)["greedy_accuracy"] if arm[0] else "–" for arm in shown]
            rows = f", {HELD_OUT[case.name]}" if case.name in HELD_OUT else ""
            lines.append(f"| {case.title}{rows} | {' | '.join(cells)} |")
    if len(lines) == 2:
        return records.missing("casebook experiments poker")
    return "\n".join(lines)


def any_contributed() -> bool:
    """Whether any committed record of a GPU was sent by somebody and graded again here."""
    return any(
        "contributed" in run
        for case in known_cases()
        for profile in (name for name, about in PROFILES.items() if about.device == "gpu")
        for run in records.committed(case, profile)
    )


def real_model(case: str = "poker") -> str:
    """What training did to the one real model that was run, good or bad: two sentences."""
    runs = records.committed(case, "smol", REAL_ARM)
    if not runs:
        return records.missing(f"casebook experiments {case} --profile smol")
    name, _, what = records.models_of(case, runs).partition(", ")
    greedy = [_accuracies(runs, when)["greedy_accuracy"] for when in ("before", "after")]
    told = (
        f"A real model, {name} ({what}), named {greedy[0]} of held-out poker hands before GRPO "
        f"and {greedy[1]} after it"
    )
    if all(_one_label(run) for run in runs):
        told += ", when each seed gave every hand one and the same label"
    told += f"; the best constant answer gets {_best_constant(runs[0])}"
    if taught := records.committed(case, "smol", f"{REAL_ARM}_sft"):
        reached = _accuracies(taught, "after")["greedy_accuracy"]
        told += f"; supervised fine-tuning with as many samples reached {reached}"
    return f"{told} (greedy, {len(runs)} seeds)."


def _best_constant(run: Mapping[str, Any]) -> str:
    """The share of a run's test rows that have their most common label."""
    counts = [figure["n"] for figure in run["after"]["per_class"].values()]
    return f"{100 * max(counts) / sum(counts):.1f} %"


def _one_label(run: Mapping[str, Any]) -> bool:
    """Whether a trained policy, greedily and under the trie, answers all test rows alike."""
    greedy = run["after"].get("also", {}).get("trie", {})
    return len(greedy.get("label_histogram", ())) == 1


def real_models(case: Case) -> str:
    """The recorded arms of real models, each table with the model's name; empty without any."""
    parts = []
    for profile in (name for name, about in PROFILES.items() if not about.embedded):
        if runs := records.committed(case.name, profile):
            model = records.models_of(case.name, runs)
            parts.append(f"**{case.title}, on a real model:** {model}.")
            parts.append(arms_table(case, profile))
    return "\n\n".join(parts)


def arms_table(case: Case, profile: str = "nano") -> str:
    """Every recorded arm of a case and profile: what it asks, its command, what was measured."""
    runs = records.committed(case.name, profile)
    command = f"casebook experiments {case.name}"
    if profile != "nano":
        command += f" --profile {profile}"
    if not runs:
        return records.missing(command)
    asked_by = questions(case.name)
    runs.sort(key=lambda run: ([*asked_by, run["arm"]].index(run["arm"]), run["arm"]))
    table = [
        "| what was asked, and the command | strict, sampled: base → trained "
        "| strict, greedy: base → trained | seeds and training |",
        "| --- | ---: | ---: | ---: |",
    ]
    for arm, group in groupby(runs, key=lambda run: run["arm"]):
        group = list(group)
        asked = {_variant(run) for run in (*runs, *group) if run["arm"] in (MAIN_ARM, arm)}
        other = f" (prompt `{_variant(group[0])}`)" if len(asked) > 1 else ""  # than the main arm
        known = arm in asked_by or "contributed" not in group[0]
        makes = f"{command} --arm {arm}" if known else _training(group[0])
        asks = f"{_asked(group[0], asked_by)}{other}<br>`{makes}`"
        trained = _unbroken(f"{len(group)} × {_seconds(group)}")
        if sent := sum("contributed" in run for run in group):
            trained += f"<br>{sent} contributed"
        row = (asks.replace("|", "\\|"), *_changes(group), trained)
        table.append(f"| {' | '.join(row)} |")
    seconds = sum(run["train_seconds"] + run.get("measure_seconds", 0) for run in runs)
    total = f"All {len(runs)} records: {seconds / 60:.0f} minutes of training and measuring."
    if not all("contributed" in run for run in runs):
        total += f" `{command} --jobs 2` makes two at a time."
    return "\n".join([*table, "", total])


def _asked(run: Mapping[str, Any], asked_by: Mapping[str, str]) -> str:
    """What the arm of a run asks; of a contributed run outside all arms, which settings it has."""
    if run["arm"] in asked_by or "contributed" not in run:
        return asked_by.get(run["arm"], run["arm"])
    own = run["contributed"].get("overrides", {})
    named = f"What do the settings of `configs/{run['case']}/{run['profile']}.yaml` teach"
    if run["arm"] == "as_configured":
        return f"{named}, as they are?"
    changed = ", ".join(f"`{name}`" for name in sorted(own)[:3])
    return f"{named}, with other values of {changed}{' and more' * (len(own) > 3)}?"


def _training(run: Mapping[str, Any]) -> str:
    """The command of one training by a profile's settings."""
    return f"casebook train --config configs/{run['case']}/{run['profile']}.yaml"


def answers(case: str) -> str:
    """The written policy of what a case's answer is, each rule with examples: an HTML table.

    It is HTML, in one line, because in Markdown dollars and bars of an example have a meaning.
    """
    path = records.claims.CASES / case / "answers.yaml"
    policy = yaml.safe_load(path.read_text(encoding="utf-8"))
    rows = ["<tr><th>completion</th><th>right answer</th><th>grade</th></tr>"]
    for name, rule in policy["rules"].items():
        rows.append(f'<tr><td colspan="3">{html.escape(" ".join(rule.split()))}</td></tr>')
        rows += _examples([one for one in policy["examples"] if one["rule"] == name])
    return f'<table class="answers">{"".join(rows)}</table>'


def before_and_after(case: Case) -> list[dict[str, str]]:
    """What real models wrote on the first test rows before and after training.

    Returns:
        One dict an arm: what it `asks`, which `model` it was, the `table`, in HTML as that of
        `answers`, of the run of the first seed.
    """
    found = []
    for profile in (name for name, about in PROFILES.items() if not about.embedded):
        for run in records.committed(case.name, profile):
            if run["seed"] == 0 and run.get("completions_before"):
                model = records.models_of(case.name, [run])
                asks = _asked(run, questions(case.name))
                found.append({"asks": asks, "model": model, "table": _pairs(run)})
    return found


def expected_and_came(case: Case) -> dict[str, str]:
    """What was expected of a real model in a case, and what its records say.

    Returns:
        Two Markdown tables: `predictions`, of studies and control arms, and `claims`, one row for
        each figure that a write-up's claim is about. Either is empty where nothing was expected.
        The model stands once above a table, or in each row where models differ.
    """
    rows = records.predictions(case.name)
    predicted = [((row["what"], _said_to(row)), row) for row in rows]
    claims = [c for c in records.load_claims(case.name) if "profile" in c]
    claimed = []
    for claim in claims:
        for one in claim["compare"]:
            found = records.compared(case.name, one)
            behind = records.claims.records_behind(case.name, [one])
            row = one | {
                "measured": found.text.removeprefix(f"{one['what']}: ") if found else "",
                "model": records.models_of(case.name, behind),
                "outcome": found.verdict if found else records.claims.NO_RUN,
                "exploratory": records.claims.exploratory(one),
                "command": claim.get("command", ""),
            }
            said = f"{claim['claim']} *({one['what']})*"
            claimed.append(((said, _said_to(one)), row))
    return {
        "predictions": _expectations(["what", "predicted", "because"], predicted),
        "claims": _expectations(
            ["the claim, and the figure", "which the claim says", "what we expected"],
            claimed,
        ),
    }


def _expectations(
    heads: Sequence[str],
    rows: Sequence[tuple[tuple[str, str], Mapping[str, Any]]],
) -> str:
    if not rows:
        return ""
    models = {row["model"] for _, row in rows} - {""}
    shared = models.pop() if len(models) == 1 else ""
    heads = [*heads, "what came", "outcome"]
    table = [records.table_row(*cells) for cells in (heads, ["---"] * len(heads))]
    for said, row in rows:
        of_whom = f" ({row['model']})" if row["model"] and not shared else ""
        cells = (*said, _because(row), _measured(row) + of_whom, _came(row))
        table.append(records.table_row(*cells))
    above = f"Every figure is of {shared}.\n\n" if shared else ""
    return above + "\n".join(table)


def _said_to(comparison: Mapping[str, Any]) -> str:
    """How a figure is said to go, or within which bounds it is said to lie."""
    unit, expected = comparison.get("unit"), comparison.get("expected")

    def shown(number: float) -> str:
        return f"{number:g} {unit}" if unit else f"{100 * number:g} %"

    said = [
        f"{words} {shown(comparison[name])}" for name, words in BOUNDS.items() if name in comparison
    ]
    if expected in DIRECTIONS and (number := records.claims.number_in(comparison["left"])):
        said.append(f"{DIRECTIONS[expected]} {shown(number)}")
    elif "within" in comparison:
        said.append(f"no change beyond {shown(comparison['within'])}")
    elif expected:
        said.append(WORDS.get(expected, expected))
    return ", ".join([*said, *["by less"] * ("gains_less_than" in comparison)])


def _because(row: Mapping[str, Any]) -> str:
    """Why something was expected, and what a trial had shown before."""
    reason = row.get("reason", "")
    return f"{reason} *(Seen before: {row['seen']}.)*" if "seen" in row else reason


def _measured(row: Mapping[str, Any]) -> str:
    return row["measured"] or f"`{row['command']}` would make one"


def _came(row: Mapping[str, Any]) -> str:
    exploratory = row["exploratory"] and row["outcome"] != records.claims.NO_RUN
    return f"**{row['outcome']}**{', exploratory' * exploratory}"


def _pairs(run: Mapping[str, Any]) -> str:
    after = {entry["row"]: entry for entry in run["completions"]}
    heads = ("prompt", "right answer", "before", "after")
    rows = ["".join(f"<th>{head}</th>" for head in heads)]
    for entry in run["completions_before"]:
        both = (entry, after[entry["row"]])
        texts = [_code(entry["prompt"]), _code(entry["answer"])]
        texts += [f"{_code(one['completion'])} ({_worth(one)})" for one in both]
        rows.append("".join(f"<td>{text}</td>" for text in texts))
    return f'<table class="answers">{"".join(f"<tr>{row}</tr>" for row in rows)}</table>'


def _worth(entry: Mapping[str, Any]) -> str:
    """What a kept completion was graded, in the words of `GRADES`."""
    if entry["correct"]:
        return GRADES["strict" if entry["well_formed"] else "lenient"]
    return GRADES["none" if entry["extracted"] is None else "wrong"]


def _code(text: object) -> str:
    """Any text as HTML in one line."""
    shown = html.escape(str(text)).replace("\n", "&#8629;<wbr>") or "&nbsp;"
    return f"<code>{shown}</code>"


def _examples(examples: Sequence[Mapping[str, Any]]) -> list[str]:
    """At most two rows for each grade, so that both sides of a rule are seen."""
    rows = []
    for grade, said in GRADES.items():
        for example in [one for one in examples if one["grade"] == grade][:2]:
            cells = _code(example["completion"]), _code(example["gold"]), said
            rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return rows


LOOPS, EVALUATIONS = "source_loop", "evaluation_speed"
PROCESSES, PREFLIGHTS = "two_processes", "preflight"
CONVERSION = "conversion"  # the study of what `make smol` expands
TABLED = (LOOPS, EVALUATIONS, PROCESSES, PREFLIGHTS)  # benchmarks that have a table of their own
PHASES = ("generation", "scoring", "backward", "update", "bookkeeping")


def benchmarks_table() -> str:
    """The recorded benchmarks, with the command of each; empty where there are none."""
    lines = ["| benchmark | figure | command |", "| --- | ---: | --- |"]
    for path, content in _benchmarks():
        if not path.stem.startswith(TABLED):
            made_by = f"`python benchmarks/{path.stem}.py --output results/benchmarks/{path.name}`"
            lines += [f"| {name} | {value} | {made_by} |" for name, value in _numbers(content)]
    return "\n".join(lines) if len(lines) > 2 else ""


def loops_table() -> str:
    """Where the seconds of a step go, in the poker write-up's own loop and in TRL."""

    def cells(row: Mapping[str, Any], speed: Mapping[str, float]) -> list[str]:
        rate = [f"{speed[row['loop']]:.3g}", f"{speed[row['loop']] / speed['source']:.2f}"]
        return [*rate, *(f"{row[name]:.3g}" for name in ("step", *PHASES))]

    return _table_of_loops(("samples a second", "of the write-up's", "step", *PHASES), cells)


def slower_loops_table() -> str:
    """How many more seconds each phase takes in a loop that is slower than the write-up's own."""

    def cells(row: Mapping[str, Any], speed: Mapping[str, float]) -> list[str]:
        step = row["step"] * (1 - speed[row["loop"]] / speed["source"])
        more = (step, *map(row["more_than_the_source"].get, PHASES))
        return [f"{value:+.3f}" for value in more] if step > 0 else []

    return _table_of_loops(("step", *PHASES), cells)


def _table_of_loops(head: Sequence[str], cells: Callable[..., list[str]]) -> str:
    """A line for each loop of which `cells` says something, by its step and its batch's speeds."""
    head = ("model", "batch", "loop", *head)
    lines = [records.table_row(*head), "| --- " * 3 + "| ---: " * (len(head) - 3) + "|"]
    for path, content in _benchmarks():
        if path.stem.startswith(LOOPS):
            for row in content["seconds_of_a_step"]:
                if said := cells(row, content["samples_per_second"][row["batch"]]):
                    named = (content["profile"], row["batch"], row["loop"])
                    lines.append(records.table_row(*named, *said))
    return "\n".join(lines) if len(lines) > 2 else ""


def evaluations_table() -> str:
    """How long an evaluation takes, with and without the prompts' shared beginning."""
    tables = []
    for path, content in _benchmarks():
        if path.stem.startswith(EVALUATIONS):
            asked = (
                f"{content['hands']} hands, prompts of {content['tokens_of_a_prompt']:.0f} tokens, "
                f"{content['torch_threads']} threads"
            )
            lines = [records.table_row(content["profile"], asked), "| --- | ---: |"]
            lines += [
                records.table_row(way, f"{taken:.0f} s")
                for way, taken in content["seconds"].items()
            ]
            tables.append("\n".join(lines))
    return "\n\n".join(tables)


def processes_table() -> str:
    """What one process and two learned at the same global batch; empty where nobody compared."""
    lines = ["| processes | greedy, base → trained | sampled, base → trained |", "| --- " * 3 + "|"]
    for path, content in _benchmarks():
        if path.stem == PROCESSES:
            for count, arm in content["arms"].items():
                both = (
                    " → ".join(records.figure_text(arm[when][name]) for when in ("before", "after"))
                    for name in ("greedy_accuracy", "sampled_accuracy")
                )
                lines.append(records.table_row(count, *both))
    return "\n".join(lines) if len(lines) > 2 else ""


def preflights_table() -> str:
    """What preflights predicted, and what the trainings took; empty where nobody compared."""
    head = ("case", "model", "memory", "training")
    lines = [records.table_row(*head), "| --- | --- |" + " ---: |" * 2]
    for path, content in _benchmarks():
        if path.stem == PREFLIGHTS:
            for run in content["runs"]:
                pairs = (_predicted(run, name) for name in head[2:])
                lines.append(records.table_row(run["case"], run["profile"], *pairs))
    return "\n".join(lines) if len(lines) > 2 else ""


def conversion_table() -> str:
    """How the expanded SmolLM2 compares with llama.cpp on the same file; empty without a record."""
    if not studies.path(CONVERSION).exists():
        return ""
    record = studies.read(CONVERSION)
    prompts, tokens = len(record["prompts"]), record["new_tokens"]
    head = ("llama.cpp", "same most likely token", "mean divergence", "largest", "same texts")
    lines = [records.table_row(*head), "| --- |" + " ---: |" * (len(head) - 1)]
    first = ["| prompt | token | the folder | llama.cpp |", "| ---: | ---: | --- | --- |"]
    for name in ("as published", "expanded"):
        found, limits = record[name], record[name]["bounds"]
        lines.append(
            records.table_row(
                name,
                f"{found['same_token']:.1%} of {found['positions']:,} positions "
                f"(at least {limits['same_token']:.1%})",
                f"{found['kl']:.2g} nats (at most {limits['kl']:g})",
                f"{found['largest_kl']:.2g} nats",
                f"{found['same_continuations']} of {prompts}",
            )
        )
        for number, prompt in enumerate(found["by_prompt"], 1):
            if prompt["differs"] is not None:
                ours, theirs = _from_the_first_difference(prompt["ours"], prompt["theirs"])
                first.append(records.table_row(number, prompt["differs"] + 1, ours, theirs))
    told = f"Greedy continuations of {tokens} tokens, from the first token that differs:"
    differing = [told, "\n".join(first)] if len(first) > 2 else []
    return "\n\n".join(["\n".join(lines), *differing])


def _from_the_first_difference(*texts: str, most: int = 24) -> list[str]:
    """The beginnings of what is left of two texts without what both begin with."""
    shared = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(*texts, strict=False)))
    return [_code(text[shared : shared + most]) for text in texts]


def _predicted(run: Mapping[str, Any], name: str) -> str:
    """One figure of a comparison: predicted, actual, and their ratio."""
    size, unit = (2**30, "GiB") if name == "memory" else (1, "s")
    predicted, actual = (run[side][name] / size for side in ("predicted", "actual"))
    return f"{predicted:.3g} of {actual:.3g} {unit}: {run['ratios'][name]:.2f}"


def _benchmarks() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((paths.RESULTS / "benchmarks").glob("*.json")):
        yield path, json.loads(path.read_text(encoding="utf-8"))


def questions(case: str) -> dict[str, str]:
    """What each arm of a case asks, in the order of its file of experiments."""
    named = (paths.CONFIGS / case / "experiments.yaml").exists()
    arms = read_arms(case) if named else {}
    return {name: arm["question"] for name, arm in arms.items()}


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _variant(run: Mapping[str, Any]) -> str | None:
    return run.get("config", {}).get("variant")


def _accuracies(runs: Sequence[Mapping], when: str) -> dict[str, str]:
    """The accuracies of an arm's runs, "before" or "after", pooled over its seeds, as text.

    A line may end before an interval and nowhere else.
    """
    texts = {
        name: records.figure_text(pool_seeds([run[when][name] for run in runs]))
        for name in ("sampled_accuracy", "greedy_accuracy")
    }
    return {name: " [".join(map(_unbroken, text.split(" ["))) for name, text in texts.items()}


def _changes(runs: Sequence[Mapping]) -> list[str]:
    """An arm's accuracies, base and trained: of the test rows, or of validation rows where it
    served the choice of a setting and measured nothing else."""
    if all(map(records.has_test_figures, runs)):
        before, after = _accuracies(runs, "before"), _accuracies(runs, "after")
        return [_unbroken(f"{before[name]}<br>→ {after[name]}") for name in after]
    said = []
    for name in ("sampled_accuracy", "greedy_accuracy"):
        pairs = [records.first_and_last(run, name) for run in runs]
        first, last = (100 * statistics.mean(values) for values in zip(*pairs, strict=True))
        said.append(_unbroken(f"validation: {first:.1f} %<br>→ {last:.1f} %"))
    return said


def _seconds(runs: Sequence[Mapping]) -> str:
    return f"{statistics.mean(run['train_seconds'] for run in runs):.0f} s"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _numbers(content: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The figures of a benchmark's record with their names: what is not about how it was made."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            if key not in ("provenance", "repeats"):
                yield from _numbers(value, f"{name} {key}".replace("_", " ").strip())
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield name, f"{float(f'{content:.3g}'):,.0f}" if abs(content) >= 100 else f"{content:.3g}"
