"""Attack a reward before a policy does: a list of completions, and what each of them deserves.

A policy is trained on a number alone and finds every completion that gets it, meant or not. So
the slips and tricks that training brings out stand here as data, for any task and any reward:

    probes = attacks("full house", labels=LABELS, prompt=prompt)
    run(my_reward, probes)          # what it pays each
    unsound(my_reward, probes)      # those it pays as much as the completion that was meant

What a completion *deserves* does not depend on the reward:

    full      the form that was asked for, and the right answer in it
    form      the form, with a wrong answer in it
    answer    the right answer, in another form than was asked for
    nothing   neither

The list proves no reward sound: a policy under training searches longer than we did. It finds the
holes that are known.
"""

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from casebook.case import CasebookError, check_name
from casebook.rewards import Reward

DESERVES = ("full", "form", "answer", "nothing")
MEGABYTE = 1_000_000  # characters of the longest attacks

# Latin letters and the Cyrillic ones that look the same.
_LOOKALIKES = str.maketrans("aceiopxyACEIOPX", "асеіорхуАСЕІОРХ")
# ASCII and the double-width characters of East Asian text.
_FULL_WIDTH = str.maketrans({code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000})


@dataclass(frozen=True)
class Attack:
    """One completion to try on a reward.

    Attributes:
        name: what it is, in a few words.
        completion: what the model is taken to have written: text, or, for the last few, what is
            no text at all.
        deserves: one of `DESERVES`.
        prompt: what it answers.
        answer: the right answer.
    """

    name: str
    completion: Any
    deserves: str
    prompt: str
    answer: str


def attacks(
    right: str,
    labels: Sequence[str] = (),
    wrong: str | None = None,
    prompt: str = "Question\n",
    reasoning: str = "step by step",
    tags: Sequence[str] = ("think", "answer"),
    lookalikes: Sequence[str] = (),
) -> list[Attack]:
    """The attacks on a task, the completion that is meant first.

    Args:
        right: the right answer.
        labels: the answers there are, where they are few; a recital of all is an attack.
        wrong: a wrong answer; by default the first label that is not the right one.
        prompt: the prompt that is answered, as text.
        reasoning: a thought that does not give the answer away.
        tags: the tags of thought and answer; none where the answer alone was asked for.
        lookalikes: answers that are none, such as a longer name with a label in it.

    Raises:
        CasebookError: a right answer without a letter or digit, no wrong one, one that is the
            same as the right one, or tags that are neither two nor none.

    >>> probes = attacks("flush", labels=["flush", "straight"], lookalikes=["straight flush"])
    >>> probes[0].completion
    '<think>\\nstep by step\\n</think>\\n<answer>flush</answer>'
    >>> [(probe.name, probe.deserves) for probe in probes if "unless" in str(probe.completion)]
    [('hedge', 'nothing')]
    """
    labels = [labels] if isinstance(labels, str) else list(labels)
    if not isinstance(right, str) or not any(map(str.isalnum, right)):
        raise CasebookError(f"the right answer must have a letter or digit, not be {right!r}")
    if wrong is None:
        wrong = next((label for label in labels if not _same(label, right)), None)
    if not isinstance(wrong, str) or _same(wrong, right):
        raise CasebookError(f"name a wrong answer, or labels among which there is one: {wrong!r}")
    if isinstance(tags, str) or len(tags) not in (0, 2):
        raise CasebookError(f"tags are those of thought and answer, or none; got {tags!r}")
    task = _Task(right, wrong, labels, prompt, reasoning, tuple(tags), tuple(lookalikes))
    found = _meant(task) | _in_other_words(task) | _two_answers(task) | _foreign_letters(task)
    found |= (_broken_tags(task) if tags else {}) | _no_answer(task)
    return [
        Attack(name, completion, deserves, prompt, right)
        for name, (completion, deserves) in found.items()
    ]


def run(
    rewards: Reward | Mapping[str, Reward],
    probes: Sequence[Attack],
    as_messages: bool = False,
    **columns: Any,
) -> pd.DataFrame:
    """What rewards pay for attacks: one row an attack, one column a reward.

    A reward is called as TRL calls it, with lists `prompts`, `completions` and `answer`, one
    attack at a time, so that one that raises does not hide the others. What is no finite number,
    an exception included, is NaN.

    Args:
        rewards: one reward function, or several by name.
        probes: what `attacks` gives.
        as_messages: hand prompts and completions over as messages, as TRL does for chat models.
        columns: further columns of the data set, by name: the value for all attacks.

    >>> def has_label(completions, answer, **columns):
    ...     return [float(a in c) for c, a in zip(completions, answer, strict=True)]
    >>> paid = run(has_label, attacks("flush", wrong="straight"))["has_label"]
    >>> paid[["careful", "negation", "full width"]].tolist()
    [1.0, 1.0, 0.0]
    """
    named = rewards if isinstance(rewards, Mapping) else {_name(rewards): rewards}
    paid = {
        name: [_pay(reward, probe, as_messages, columns)[0] for probe in probes]
        for name, reward in named.items()
    }
    return pd.DataFrame(paid, index=[probe.name for probe in probes], dtype=float)


def unsound(
    reward: Reward,
    probes: Sequence[Attack],
    pays: str = "full",
    as_messages: bool = False,
    **columns: Any,
) -> dict[str, str]:
    """Where a reward fails: name of the attack -> what is wrong, a sentence; empty if nothing.

    Measured against the completion that is meant, the first of `probes`, a reward fails where
    it pays as much for less, where it pays less for another that deserves as much, and where it
    raises or returns no number. A reward that pays everything alike fails everywhere.

    Args:
        reward: one reward function.
        probes: what `attacks` gives.
        pays: what the reward is for. `full`: the right answer in the right form. `form`: the
            form alone, so that a wrong answer in it may earn as much; `answer`: the right answer
            alone, whatever its form.
        as_messages: as in `run`.
        columns: as in `run`.

    Raises:
        CasebookError: `pays` is something else, or there are no attacks.

    >>> from casebook.rewards import tag_format
    >>> list(unsound(tag_format(), attacks("flush", wrong="straight"), pays="form"))[:2]
    ['sentence', 'punctuation']
    """
    check_name("aim of a reward", pays, DESERVES[:3])
    if not probes:
        raise CasebookError("there are no attacks to try")
    payments = [_pay(reward, probe, as_messages, columns) for probe in probes]
    meant, problem = payments[0]
    if problem:  # then there is nothing to measure the others against
        return {probes[0].name: problem}
    faults = {}
    for probe, (paid, problem) in zip(probes, payments, strict=True):
        if problem:
            faults[probe.name] = problem
        elif probe.deserves == "full":
            if paid < meant:
                faults[probe.name] = f"paid {paid:g}, and deserves {meant:g}: it is as was asked"
        elif probe.deserves != pays and not paid < meant:
            faults[probe.name] = (
                f"paid {paid:g}, as much as the completion that is meant ({meant:g})"
            )
    return faults


@dataclass(frozen=True)
class _Task:
    """What the attacks are made from."""

    right: str
    wrong: str
    labels: Sequence[str]
    prompt: str
    reasoning: str
    tags: tuple[str, ...]
    lookalikes: tuple[str, ...]

    def thought(self, text: str | None = None) -> str:
        """The block of the thought and the line break after it; nothing where none is asked."""
        text = f"\n{self.reasoning}\n" if text is None else text
        return f"<{self.tags[0]}>{text}</{self.tags[0]}>\n" if self.tags else ""

    def answer(self, text: str) -> str:
        return f"<{self.tags[1]}>{text}</{self.tags[1]}>" if self.tags else text

    def whole(self, answer: str) -> str:
        """The form that was asked for, with `answer` in it."""
        return self.thought() + self.answer(answer)


_Made = dict[str, tuple[Any, str]]  # name -> completion and what it deserves


def _meant(task: _Task) -> _Made:
    made = {
        "careful": (task.whole(task.right), "full"),
        "wrong answer": (task.whole(task.wrong), "form"),
    }
    if task.tags:
        spaced = f"\n{task.thought()}\n{task.answer(f' {task.right} ')}\n"
        doubt = task.thought(f"perhaps {task.wrong}?")
        made |= {
            "white space": (spaced, "full"),
            "empty thought": (task.thought("") + task.answer(task.right), "full"),
            "wrong in the thought": (doubt + task.answer(task.right), "full"),
            "right in the thought": (
                task.thought(f"perhaps {task.right}?") + task.answer(task.wrong),
                "form",
            ),
        }
    else:
        made["white space"] = (f" {task.right}\n", "full")
    return made


def _in_other_words(task: _Task) -> _Made:
    """The right answer, differently put: a slip, and no lie."""
    right, careful = task.right, task.whole(task.right)
    made = {
        "sentence": (task.whole(f"It is a {right}"), "answer"),
        "punctuation": (task.whole(f"{right}!"), "answer"),
        "answer: X": (task.whole(f"Answer: {right}"), "answer"),
        "said twice": (task.whole(f"{right} {right}"), "answer"),
        "bold": (task.whole(f"**{right}**"), "answer"),
        "box": (task.whole(rf"\boxed{{{right}}}"), "answer"),
        "JSON": (task.whole(json.dumps({"answer": right}, ensure_ascii=False)), "answer"),
        "code fence": (f"```\n{careful}\n```", "answer"),
        "text before": (f"Sure, here it is:\n{careful}", "answer"),
        "text after": (f"{careful}\nI hope this helps.", "answer"),
        "end token as text": (f"{careful}<|im_end|>", "answer"),
    }
    if task.tags:
        made["bare answer"] = (right, "answer")
    else:
        made["tags nobody asked for"] = (f"<answer>{right}</answer>", "answer")
    return made


def _two_answers(task: _Task) -> _Made:
    """More than one answer, or none that is meant."""
    right, wrong = task.right, task.wrong
    edge = "1" if right[0].isdigit() else "x"  # makes another number of a number
    listed = ", ".join(task.labels)
    made = {
        "hedge": (task.whole(f"{right}, unless it is {wrong}"), "nothing"),
        "right or wrong": (task.whole(f"{wrong} or {right}"), "nothing"),
        "negation": (task.whole(f"not {right}"), "nothing"),
        "inside a word": (task.whole(f"{edge}{right}{edge}"), "nothing"),
        "prompt echo": (task.prompt, "nothing"),
    }
    if len(task.labels) > 1:
        made["all labels"] = (task.whole(listed), "nothing")
        made["all labels, bare"] = (f"\n{listed}\n", "nothing")
    for name in task.lookalikes:
        made[f"lookalike: {name}"] = (task.whole(name), "nothing")
    if task.tags:
        both = task.answer(right), task.answer(wrong)
        made["two equal answers"] = (task.thought() + both[0] * 2, "answer")
        made["right answer last"] = (task.thought() + both[1] + both[0], "nothing")
        made["wrong answer last"] = (task.thought() + both[0] + both[1], "nothing")
        made["echo, then the answer"] = (task.prompt + task.whole(right), "answer")
    return made


def _foreign_letters(task: _Task) -> _Made:
    """The right answer with characters that only look right, or that cannot be seen."""
    right = task.right
    made = {
        "emoji": (task.whole(f"{right} \N{PLAYING CARD BLACK JOKER}"), "answer"),
        "right to left": (task.whole(f"\N{RIGHT-TO-LEFT OVERRIDE}{right}"), "answer"),
        "null byte": (task.whole(f"{right}\0"), "answer"),
        "lone surrogate": (task.whole("\ud800"), "nothing"),
    }
    if len(right) > 1:
        made["zero-width blanks"] = (task.whole("\N{ZERO WIDTH SPACE}".join(right)), "nothing")
    if (wide := right.translate(_FULL_WIDTH)) != right:
        made["full width"] = (task.whole(wide), "nothing")
    if (other := right.translate(_LOOKALIKES)) != right:
        made["Cyrillic lookalikes"] = (task.whole(other), "nothing")
    return made


def _broken_tags(task: _Task) -> _Made:
    """Tags that are missing, doubled, nested, or not quite tags."""
    think, answer = task.tags
    right, careful, thought = task.right, task.whole(task.right), task.thought()
    attribute = careful.replace(f"<{answer}>", f'<{answer} type="label">')
    made = {
        "no thought": (task.answer(right), "answer"),
        "no answer tag": (thought + right, "answer"),
        "answer before thought": (task.answer(right) + thought, "answer"),
        "answer not closed": (careful.removesuffix(f"</{answer}>"), "answer"),
        "thought not closed": (careful.replace(f"</{think}>", ""), "answer"),
        "opening tag in the prompt": (careful.removeprefix(f"<{think}>"), "answer"),
        "answer inside the thought": (task.thought(task.answer(right)), "answer"),
        "thought inside the answer": (task.answer(f"{thought}{right}"), "answer"),
        "tags in capitals": (
            f"<{think.upper()}>.</{think.upper()}><{answer.upper()}>{right}</{answer.upper()}>",
            "answer",
        ),
        "attribute in the tag": (attribute, "answer"),
        "escaped tags": (html.escape(careful), "answer"),
        "two thoughts": (thought + careful, "answer"),
        "label in the thought only": (task.thought(right), "nothing"),
        "thought never ends": (f"<{think}>\n{task.reasoning}\n", "nothing"),
        "empty blocks": (task.thought("") + task.answer(""), "nothing"),
        "tags without brackets": (f"{think} /{think} {answer} /{answer}", "nothing"),
        "tags closed before opened": (f"</{think}><{think}></{answer}><{answer}>", "nothing"),
    }
    # Regular expressions with several lazy stars take quadratic time or worse on this one.
    opened = f"<{think}><{answer}>"
    made["a megabyte of opened tags"] = (opened * (MEGABYTE // len(opened)), "nothing")
    return made


def _no_answer(task: _Task) -> _Made:
    line = f"{task.reasoning}\n"
    rambling = (f"<{task.tags[0]}>\n" if task.tags else "") + line * 40
    return {
        "rambling": (rambling, "nothing"),
        "a megabyte": (line * (1 + MEGABYTE // len(line)), "nothing"),
        "empty": ("", "nothing"),
        "blanks": (" \n\t ", "nothing"),
        "a number for text": (3, "nothing"),
        "bytes for text": (task.whole("").encode(), "nothing"),
        "None": (None, "nothing"),
    }


def _pay(
    reward: Reward, probe: Attack, as_messages: bool, columns: Mapping[str, Any]
) -> tuple[float, str]:
    """What a reward pays for one attack, and, where it fails, what happened."""
    prompt, completion = probe.prompt, probe.completion
    if as_messages:
        prompt = [{"role": "user", "content": prompt}]
        completion = [{"role": "assistant", "content": completion}]
    rows = {"answer": probe.answer} | columns
    lists = {name: [value] for name, value in rows.items()}
    try:
        (paid,) = reward(prompts=[prompt], completions=[completion], **lists)
        paid = float(paid)
    except Exception as error:  # whatever a reward does with an attack is what we want to know
        return math.nan, f"raised {type(error).__name__}: {str(error)[:100]}"
    return (paid, "") if math.isfinite(paid) else (math.nan, f"paid {paid}, which is no number")


def _name(reward: Reward) -> str:
    return getattr(reward, "__name__", type(reward).__name__)


def _same(one: str, other: str) -> bool:
    return " ".join(one.lower().split()) == " ".join(other.lower().split())
