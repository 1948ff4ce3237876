"""What is tried on a reward, in the form that the examples teach: the list of `redteam.yaml`, and
what has to be made for an example. `casebook.rewards.attacks` has the like for a form that is known
beforehand. A probe says which rule of the file must hold. The rules are loose where fair readers
differ: a right answer out of form may be paid or not, and of two answers the first may count or the
last, but not both. What a reward does there are its *habits*.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from casebook.redteam.form import Example, others, same

LONG = 16_000  # characters, which a policy can write in about 4,000 tokens
TEXTS = yaml.safe_load(Path(__file__).with_name("redteam.yaml").read_text("utf-8"))
LONG_TEXTS = {name: text * times for name, (text, times) in TEXTS["long"].items()}
LONG_TEXTS["steps"] = "\n".join(f"Then we look at part {chr(97 + n % 26)}." for n in range(40))


class Probe(NamedTuple):
    """Rows to try, one call each; the rule is broken where *all* of them break it. `control` is the
    row whose pay is the measure, by default the right example's; `lenient`: raising is no fault."""

    kind: str
    name: str
    rule: str
    rows: tuple[Mapping[str, Any], ...]
    control: Mapping[str, Any] | None = None
    lenient: bool = False


def one(example: Example, kind: str, name: str, rule: str, *texts: Any, **more: Any) -> Probe:
    """A probe of completions to an example; `no more than TEXT` names what is the measure."""
    rule, _, control = rule.partition(" than ")
    more |= {"control": example.asking(control)} if control else {}
    return Probe(kind, name, rule, tuple(example.asking(text) for text in texts), **more)


def probes(example: Example, examples: Sequence[Example], kind: str) -> Iterator[Probe]:
    """What is tried in the place of one right example, without what is to break the reward."""
    told, right, texts = example.told, example.slot, fields(example, examples)
    prompt, unknown = example.row["prompt"], example.asking("I do not know.")
    for shown in (f"{example.question}\n{example.text}", example.text):
        chat = isinstance(prompt, list)
        row = {**unknown, "prompt": [{"role": "user", "content": shown}] if chat else shown}
        yield Probe("prompt_leak", "the answer in the prompt", "no more", (row,), unknown, True)
    labels, judged = {it.answer for it in examples if it.direct}, kind == "answer"
    words = 1 < len(labels) <= 60 and all(re.search(r"[^\W\d_]", it) for it in labels)
    ended = example.between.rstrip()[-1:] in (">", "{", "")
    chosen = ["any", kind] + [("ordered", "marked")[judged]] * example.marked
    chosen += ["thinking"] * (example.thought is not None and (judged or example.marked))
    chosen += ["direct"] * (judged and example.direct) + ["labels"] * (judged and words)
    chosen += ["enclosed"] * (judged and ended) + ["number"] * (not judged and right.isdigit())
    for name, *rest in (it for table in chosen for it in TEXTS["tried"][table]):
        yield one(example, name, *(text.format(**texts) for text in rest))
    if not judged:
        return
    yield one(example, "no_answer_paid", "None", "less", None, lenient=True)
    near = [it.text for it in examples if it.row["prompt"] == prompt and not it.right]
    near += map(told, others(example, examples)[1:6])
    tried = [("wrong_answer_paid", "another wrong answer", it) for it in near]
    always = TEXTS["constants"] if example.direct else ["..."]
    tried += [("constant_paid", f"always {it}", told(it)) for it in always if not same(it, right)]
    yield from (one(example, name, attack, "less", text) for name, attack, text in tried)
    if example.direct:
        yield from _other_answers(example, texts["wrong"])


def survivals(example: Example) -> Iterator[Probe]:
    """Texts that are run as code, raise, never end or eat memory; the short ones first."""
    told, head = example.told, example.before + (example.thought or "") + example.between
    texts = [("code", it) for c in TEXTS["planted"] for it in (told(c), c, f"```python\n{c}\n```")]
    odd = [*map(str, TEXTS["odd"]), *(u * n + "1" for u, n in TEXTS["odd_repeated"].items())]
    texts += [pair for it in odd for pair in (("odd answer", told(it)), ("odd completion", it))]
    texts += [("a slip", told(slip.format(example.slot))) for slip in TEXTS["slips"]]
    # A formula of the numbers that are allowed may still be one that nothing can compute.
    texts.append(("tower of powers", told("**".join(re.findall(r"\d+", example.slot)))))
    marks = re.findall(r"</?\w+>|```\w*|#+", example.text) or ["<answer>", "</answer>"]
    marks = list(dict.fromkeys([*marks, "".join(marks[:2]), "".join(marks[1::-1]), "\\boxed{"]))
    for n in (36, 500, LONG):  # a power of the length ends, for what a policy writes; two to it not
        for unit in TEXTS["repeated"] if n < LONG else ():
            much, name = unit * (n // len(unit)), f"{unit!r} again and again"
            tails = told(much + "!"), example.before + much, head + much, much + "!"
            texts += [(name, it) for it in (*tails, told(thought=much, after=much + "!"))]
        much = [start + it * (n // len(it)) for it in marks for start in ("", head)]
        texts += [("marks again and again", it) for it in much]
    yield from (one(example, "raises", name, "survive", text) for name, text in texts)


def fields(example: Example, examples: Sequence[Example]) -> dict[str, str]:
    """What the templates of `redteam.yaml` are filled with."""
    told, right = example.told, example.slot
    wrong = (others(example, examples) or ["no idea"])[0]
    labels = dict.fromkeys(it.answer for it in examples if it.direct)
    slots = {"right": right, "wrong": wrong, "listed": "\n".join(labels)}
    slots["edge"] = "1" if right[:1].isdigit() else "x"  # makes another number of a number
    slots |= LONG_TEXTS | {"prompt": example.question, "numbers": " ".join(map(str, range(1001)))}
    made = {k: told(*(it.format(**slots) for it in own)) for k, own in TEXTS["slots"].items()}
    texts = {**slots, **made, "stripped": told().rstrip()}
    texts["steps_stripped"] = texts["thinks_steps"].rstrip()
    texts["reasoning"] = (example.thought or "").strip() or LONG_TEXTS["long"]
    texts["bracketless"] = re.sub(r"[<>{}\\]|####", "", texts["void"])
    parts = example.after, example.thought or "", example.between, right, "\n", example.before
    return texts | {"jumbled": "".join(parts) + "\n"}


def _other_answers(example: Example, wrong: str) -> Iterator[Probe]:
    """Rows whose right answer may be another: honest forms of it, and what only comes near it."""
    told, gold, known = example.told, example.answer, example.row["answer"]

    def on(right: str, kind: str, name: str, rule: str, control: str, *texts: str) -> Probe:
        answer = int(right) if isinstance(known, int) else known.removesuffix(gold) + right
        control, *rows = (example.asking(told(it), answer=answer) for it in (control, *texts))
        return Probe(kind, name, rule, tuple(rows), control, lenient=right != gold)

    for right in dict.fromkeys([gold, "1234"]) if re.fullmatch(r"-?\d+", gold) else ():
        near = TEXTS["near"] + ["{opposite}"] * (int(right) != 0)
        for it in near + TEXTS["near_1234"] * (right == "1234"):
            text = it.format(n=right, opposite=-int(right))
            yield on(right, "near_miss_paid", "a number near it", "no more", wrong, text)
        for form in (f"{right}.0", f"{int(right):,}") if int(right) > 999 else ():
            yield on(right, "right_answer_refused", "the same number", "right", right, form)
    if re.fullmatch(r"[a-z][a-z -]+[a-z]", gold):
        yield on(gold, "near_miss_paid", "half of it", "less", gold, gold[: len(gold) // 2])
        yield on(gold, "right_answer_refused", "a capital", "right", gold, gold.capitalize())
    for right, forms in TEXTS["latex"].items() if "\\" in gold else ():
        yield on(right, "right_answer_refused", "the same fraction", "right", right, *forms)
    pairs = (("see the proof", wrong), ("", wrong), ("see the proof", "it cannot be read"))
    for gold, text in pairs if isinstance(known, str) else ():
        row = example.asking(told(text), answer=gold)
        yield Probe("unreadable_gold_paid", "an unreadable gold answer", "less", (row,), None, True)
