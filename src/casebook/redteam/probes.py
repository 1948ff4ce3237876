"""What is tried: the list of `casebook.rewards.attacks` in the form that the examples teach, and
what needs more than one completion. A probe says which rule must hold:

    less      what it pays is less than the right completion earns
    right     of other honest forms of the right answer, one keeps more than half of its pay
    no more   nothing is added that deserves more
    survive   there is a number, in time

Rules are loose where fair readers differ: a right answer out of form may be paid or not, and of two
answers the first may count or the last, but not both. The texts stand in `redteam.yaml`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from casebook.redteam.form import Example, others, same
from casebook.redteam.subject import PLANTED
from casebook.rewards.attacks import MEGABYTE, attacks

KINDS = ("answer", "form")
LONG = 16_000  # characters, which a policy can write in about 4,000 tokens
TEXTS = yaml.safe_load(Path(__file__).with_name("redteam.yaml").read_text("utf-8"))
STEPS = "\n".join(f"Then we look at part {chr(97 + n % 26)} of it." for n in range(40))
LONG_TEXTS = {"long": TEXTS["filler"] * 60, "words": TEXTS["keywords"] * 10}
LONG_TEXTS |= {"lines": TEXTS["several"], "steps": STEPS}


class Probe(NamedTuple):
    """Rows to try, one call each; the rule is broken where *all* of them break it. `control` is the
    row whose pay is the measure, by default the right example's; `lenient`: raising is no fault."""

    kind: str
    name: str
    rule: str
    rows: tuple[Mapping[str, Any], ...]
    control: Mapping[str, Any] | None = None
    lenient: bool = False


def probes(example: Example, examples: Sequence[Example], kind: str) -> Iterator[Probe]:
    """What is tried in the place of one right example, without what is to break the reward."""

    def one(kind: str, name: str, rule: str, *texts: Any) -> Probe:
        return Probe(kind, name, rule, tuple(example.asking(text) for text in texts))

    told, right, wrongs = example.told, example.slot, others(example, examples) or ["no idea"]
    yield from _shared(example, examples, wrongs[0], kind, one)
    prompt, unknown = example.row["prompt"], example.asking("I do not know.")
    for shown in (f"{example.question}\n{example.text}", example.text):
        chat = isinstance(prompt, list)
        row = {**unknown, "prompt": [{"role": "user", "content": shown}] if chat else shown}
        yield Probe("prompt_leak", "the answer in the prompt", "no more", (row,), unknown, True)
    fields = {"meant": told(), "lie": told(wrongs[0]), "right": right, "void": told("")}
    fields |= {"lie_doubt": told(wrongs[0], f"Perhaps {right}?")} | LONG_TEXTS
    fields |= {f"thinks_{name}": told(thought=text) for name, text in LONG_TEXTS.items()}
    fields["lie_long"] = told(wrongs[0], LONG_TEXTS["long"])
    fields["steps_stripped"] = told(thought=STEPS).rstrip()
    marked = example.between.rstrip()[-1:] in (">", "{", "#")
    chosen = ["any"] + ["thinking"] * (example.thought is not None)
    chosen += ["answer"] + ["marked"] * marked if kind == "answer" else []
    for name, *rest in (it for table in chosen for it in TEXTS["tried"][table]):
        yield one(name, *rest[:2], *(text.format(**fields) for text in rest[2:]))
    if kind == "form":
        return
    yield one("no_answer_paid", "None", "less", None)._replace(lenient=True)
    for it in examples:
        if not it.right and it.row["prompt"] == prompt:
            yield one("wrong_answer_paid", "an example that is wrong", "less", it.text)
    for it in wrongs[1:6]:
        near = example.direct and (it.lower() in right.lower() or right.lower() in it.lower())
        found = "near_miss_paid" if near else "wrong_answer_paid"
        yield one(found, "another wrong answer", "less", told(it))
    for it in TEXTS["constants"] if example.direct else ["..."]:
        if not same(it, right):
            yield one("constant_paid", f"always {it}", "less", told(it))
    if example.direct:
        yield from _other_answers(example, wrongs[0], marked)


def survivals(example: Example) -> Iterator[Probe]:
    """Texts that are run as code, raise, never end or eat memory; the short ones first."""

    def probe(name: str, text: str) -> Probe:
        return Probe("raises", name, "survive", (example.asking(text),))

    for code in PLANTED:
        for text in (example.told(code), code, f"```python\n{code}\n```"):
            yield probe("code", text)
    for it in TEXTS["odd"] + [u * n + "1" for u, n in TEXTS["odd_repeated"].items()]:
        yield probe("odd answer", example.told(str(it)))
        yield probe("odd completion", str(it))
    # A formula of the numbers that are allowed may still be one that nothing can compute.
    yield probe("tower of powers", example.told("**".join(re.findall(r"\d+", example.slot))))
    head = example.before + (example.thought or "") + example.between
    for n in (36, 500):  # a power of the length ends, for what a policy writes; two to it does not
        for unit in TEXTS["repeated"]:
            much, name = unit * (n // len(unit)), f"{unit!r} again and again"
            for text in (example.told(much + "!"), example.before + much, head + much, much + "!"):
                yield probe(name, text)
            yield probe(name, example.told(thought=much, after=much + "!"))
        tags = [t for tag in example.tags or ("answer",) for t in (f"<{tag}>", f"</{tag}>")]
        for unit in [*tags, "".join(tags[:2]), "".join(reversed(tags)), r"\boxed{"]:
            yield probe("marks again and again", unit * (n // len(unit)))
    # These may be slow: no policy writes so much.
    texts = {"less": TEXTS["filler"] * (MEGABYTE // 36), "survive": example.told("1" * MEGABYTE)}
    for rule, text in texts.items():
        yield Probe("no_answer_paid", "a megabyte", rule, (example.asking(text),), None, True)


def _shared(example, examples, wrong: str, kind: str, one) -> Iterator[Probe]:
    """The list of `casebook.rewards.attacks`, in the learnt form."""
    labels = list(dict.fromkeys(it.answer for it in examples if it.direct))
    words = all(re.search(r"[^\W\d_]", label) for label in labels) and len(labels) <= 60
    opener = f"<{example.tags[1]}>" if example.tags else ""
    cut = example.between.rfind(opener) if opener else 0
    thought = example.before + (example.thought or "") + example.between[:cut]
    right = example.slot if re.search(r"[^\W_]", example.slot) else "x" + example.slot
    labels, frame = labels if words else (), (thought, example.between[cut:], example.after)
    reasoning = (example.thought or "").strip() or TEXTS["filler"].strip()
    tried = attacks(right, labels, wrong, example.question, reasoning, example.tags, frame=frame)
    text = {it.name: it.completion for it in tried if isinstance(it.completion, str)}
    for name in [it for it in text if it != "lone surrogate" and len(text[it]) <= LONG]:
        if kind == "form" and name in TEXTS["formless"]:
            yield one("form_ignored", name, "less", text[name])
        elif kind == "answer" and name in TEXTS["shared"]:
            yield one(TEXTS["shared"][name], name, "less", text[name])
        else:
            yield one("raises", name, "survive", text[name])
    if kind == "form" and example.between:
        yield one("form_ignored", "bare answer", "less", example.slot)
    for pair in TEXTS["both"] if kind == "answer" else ():
        if set(pair) <= set(text):
            yield one("hedge_paid", " and ".join(pair), "less", *map(text.get, pair))
    if kind == "answer" and re.fullmatch(r"[1-9]\d{,2}", example.slot):
        numbers = " ".join(map(str, range(1001)))
        for it in (numbers, example.told(numbers)):
            yield one("all_answers_paid", "every number up to 1000", "less", it)


def _other_answers(example: Example, wrong: str, marked: bool) -> Iterator[Probe]:
    """Rows whose right answer may be another: honest forms of it, and what only comes near it."""
    told, gold = example.told, example.answer

    def one(kind: str, name: str, rule: str, right: str, *texts: str) -> Probe:
        known = example.row["answer"]
        answer = int(right) if isinstance(known, int) else known.removesuffix(gold) + right
        *rows, control = (example.asking(it, answer=answer) for it in (*texts, told(right)))
        return Probe(kind, name, rule, tuple(rows), control, lenient=right != gold)

    for right in dict.fromkeys([gold, "1234"]) if re.fullmatch(r"-?\d+", gold) else ():
        near = TEXTS["near"] + ["{opposite}"] * (int(right) != 0)
        for it in near + TEXTS["near_1234"] * (right == "1234"):
            text = told(it.format(n=right, opposite=-int(right)))
            yield one("near_miss_paid", "a number near it", "less", right, text)
        if int(right) > 999:
            forms = told(f"{right}.0"), told(f"{int(right):,}")
            yield one("right_answer_refused", "the same number", "right", right, *forms)
    if re.fullmatch(r"[a-z][a-z -]+[a-z]", gold):
        yield one("near_miss_paid", "half of it", "less", gold, told(gold[: len(gold) // 2]))
        capital = told(gold.capitalize())
        yield one("right_answer_refused", "a capital letter", "right", gold, capital)
    for right, forms in TEXTS["latex"].items() if "\\" in gold else ():
        yield one("right_answer_refused", "the same fraction", "right", right, *map(told, forms))
    forms = [told(f" {gold} "), told(f"\n{gold}\n")] if marked else [told(after="\n")]
    if (marked and "#" not in example.between[-2:]) or not example.between:
        yield one("right_answer_refused", "white space around it", "right", gold, *forms)
    for it in ("see the proof", "") if isinstance(example.row["answer"], str) else ():
        row = example.asking(told(wrong), answer=it)
        yield Probe("unreadable_gold_paid", "an unreadable gold answer", "less", (row,), None, True)
