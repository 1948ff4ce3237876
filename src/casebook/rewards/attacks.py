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

# The attacks, by what they deserve. In a template, `{right}` and `{wrong}` are answers, `{thought}`
# is a block of reasoning, `{open}` and `{close}` are the tags of the answer, `{think}` and
# `{answer}` their names; `_fields` has the others. Where no tags were asked for, there are none.
# The first table holds what is put in the answer's place, the others whole completions.
_IN_PLACE: Mapping[str, Mapping[str, str]] = {
    "full": {"careful": "{right}"},
    "form": {"wrong answer": "{wrong}"},
    "answer": {  # a slip, and no lie
        "sentence": "It is a {right}",
        "punctuation": "{right}!",
        "answer: X": "Answer: {right}",
        "said twice": "{right} {right}",
        "bold": "**{right}**",
        "box": r"\boxed{{{right}}}",
        "JSON": "{json}",
        "emoji": "{right} \N{PLAYING CARD BLACK JOKER}",
        "right to left": "\N{RIGHT-TO-LEFT OVERRIDE}{right}",
        "null byte": "{right}\0",
    },
    "nothing": {  # several answers, none that is meant, or what only looks like one
        "hedge": "{right}, unless it is {wrong}",
        "right or wrong": "{wrong} or {right}",
        "negation": "not {right}",
        "inside a word": "{edge}{right}{edge}",
        "all labels": "{listed}",
        "zero-width blanks": "{zero_width}",
        "full width": "{full_width}",
        "Cyrillic lookalikes": "{cyrillic}",
        "lone surrogate": "\ud800",
    },
}
_WHOLE: Mapping[str, Mapping[str, str]] = {
    "answer": {
        "code fence": "```\n{careful}\n```",
        "text before": "Sure, here it is:\n{careful}",
        "text after": "{careful}\nI hope this helps.",
        "end token as text": "{careful}<|im_end|>",
    },
    "nothing": {
        "prompt echo": "{prompt}",
        "all labels, bare": "\n{listed}\n",
        "rambling": "{rambling}",
        "a megabyte": "{megabyte}",
        "empty": "",
        "blanks": " \n\t ",
    },
}
_WITH_TAGS: Mapping[str, Mapping[str, str]] = {
    "full": {
        "white space": "\n{thought}\n{open} {right} {close}\n",
        "empty thought": "<{think}></{think}>\n{open}{right}{close}",
        "wrong in the thought": "<{think}>perhaps {wrong}?</{think}>\n{open}{right}{close}",
    },
    "form": {"right in the thought": "<{think}>perhaps {right}?</{think}>\n{open}{wrong}{close}"},
    "answer": {
        "bare answer": "{right}",
        "two equal answers": "{thought}{open}{right}{close}{open}{right}{close}",
        "right answer last": "{thought}{open}{wrong}{close}{open}{right}{close}",
        "echo, then the answer": "{prompt}{careful}",
        "no thought": "{open}{right}{close}",
        "no answer tag": "{thought}{right}",
        "answer before thought": "{open}{right}{close}{thought}",
        "answer not closed": "{thought}{open}{right}",
        "thought not closed": "<{think}>\n{reasoning}\n\n{open}{right}{close}",
        "opening tag in the prompt": "\n{reasoning}\n</{think}>\n{open}{right}{close}",
        "answer inside the thought": "<{think}>{open}{right}{close}</{think}>\n",
        "thought inside the answer": "{open}{thought}{right}{close}",
        "tags in capitals": "{capitals}",
        "attribute in the tag": '{thought}<{answer} type="label">{right}{close}',
        "escaped tags": "{escaped}",
        "two thoughts": "{thought}{careful}",
    },
    "nothing": {
        "wrong answer last": "{thought}{open}{right}{close}{open}{wrong}{close}",
        "label in the thought only": "<{think}>{right}</{think}>\n",
        "thought never ends": "<{think}>\n{reasoning}\n",
        "empty blocks": "<{think}></{think}>\n{open}{close}",
        "tags without brackets": "{think} /{think} {answer} /{answer}",
        "tags closed before opened": "</{think}><{think}></{answer}><{answer}>",
        # Regular expressions with several lazy stars take quadratic time or worse on this one.
        "a megabyte of opened tags": "{opened}",
    },
}
_WITHOUT_TAGS: Mapping[str, Mapping[str, str]] = {
    "full": {"white space": "{thought}{open} {right}{close}\n"},
    "answer": {"tags nobody asked for": "<answer>{right}</answer>"},
}

# Latin letters and the Cyrillic ones that look the same.
_LOOKALIKES = str.maketrans("aceiopxyACEIOPX", "асеіорхуАСЕІОРХ")
# ASCII and the double-width characters of East Asian text.
_FULL_WIDTH = str.maketrans({code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000})


@dataclass(frozen=True)
class Attack:
    """One completion to try on a reward."""

    name: str  # what it is, in a few words
    completion: Any  # what the model is taken to have written; the last few are no text at all
    deserves: str  # one of `DESERVES`
    prompt: str  # what it answers
    answer: str  # the right answer


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
        reasoning: a thought that does not give the answer away.
        tags: the tags of thought and answer; none where the answer alone was asked for.
        lookalikes: answers that are none, such as a longer name with a label in it.

    Raises:
        CasebookError: a right answer without a letter or digit, or no wrong one.

    >>> probes = attacks("flush", labels=["flush", "straight"], lookalikes=["straight flush"])
    >>> probes[0].completion
    '<think>\\nstep by step\\n</think>\\n<answer>flush</answer>'
    >>> [(probe.name, probe.deserves) for probe in probes if "unless" in str(probe.completion)]
    [('hedge', 'nothing')]
    """
    if not any(map(str.isalnum, right)):
        raise CasebookError(f"the right answer must have a letter or digit; got {right!r}")
    meant = right.lower().split()
    if wrong is None:
        wrong = next((label for label in labels if label.lower().split() != meant), None)
    if wrong is None or wrong.lower().split() == meant:
        raise CasebookError(f"give a wrong answer, or labels that include one; got {wrong!r}")
    think, answer = tags or ("", "")
    told = {"right": right, "wrong": wrong, "prompt": prompt, "reasoning": reasoning}
    fields = _fields(told | {"think": think, "answer": answer}, labels)
    in_place, by_form = "{thought}{open}%s{close}", _WITH_TAGS if tags else _WITHOUT_TAGS
    found = [
        Attack(name, text, deserves, prompt, right)
        for table, frame in ((_IN_PLACE, in_place), (_WHOLE, "%s"), (by_form, "%s"))
        for deserves, templates in table.items()
        for name, template in templates.items()
        if len(labels) > 1 or "{listed}" not in template
        # A right answer of one letter has no zero-width blanks in it, and so on.
        if (text := (frame % template).format(**fields)) != fields["careful"] or name == "careful"
    ]
    others: dict[str, Any] = {
        f"lookalike: {name}": fields["thought"] + fields["open"] + name + fields["close"]
        for name in lookalikes
    }
    others |= {"a number for text": 3, "bytes for text": b"", "None": None}
    return found + [Attack(name, it, "nothing", prompt, right) for name, it in others.items()]


def run(
    rewards: Reward | Mapping[str, Reward],
    probes: Sequence[Attack],
    as_messages: bool = False,
    **columns: Any,
) -> pd.DataFrame:
    """What rewards pay for attacks: one row an attack, one column a reward.

    A reward is called as TRL calls it, one attack at a time, so that one that raises does not
    hide the others. What is no finite number, an exception included, is NaN.

    Args:
        rewards: one reward function, or several by name.
        as_messages: hand prompts and completions over as messages, as TRL does for chat models.
        columns: further columns of the data set, by name: the value for all attacks.

    >>> def has_label(completions, answer, **columns):
    ...     return [float(a in c) for c, a in zip(completions, answer, strict=True)]
    >>> paid = run(has_label, attacks("flush", wrong="straight"))["has_label"]
    >>> paid[["careful", "negation", "full width"]].tolist()
    [1.0, 1.0, 0.0]
    """
    named = rewards if isinstance(rewards, Mapping) else {rewards.__name__: rewards}
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
        pays: what the reward is for. `full`: the right answer in the right form. `form`: the
            form alone, so that a wrong answer in it may earn as much; `answer`: the right answer
            alone, whatever its form.
        as_messages, columns: as in `run`.

    Raises:
        UnknownName: `pays` is something else.

    >>> from casebook.rewards import tag_format
    >>> list(unsound(tag_format(), attacks("flush", wrong="straight"), pays="form"))[:2]
    ['sentence', 'punctuation']
    """
    check_name("aim of a reward", pays, DESERVES[:3])
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
            faults[probe.name] = f"paid {paid:g}, as much as the one that is meant ({meant:g})"
    return faults


def _fields(told: Mapping[str, str], labels: Sequence[str]) -> dict[str, str]:
    """What the templates are filled with."""
    right, think, answer = told["right"], told["think"], told["answer"]
    line, opened = f"{told['reasoning']}\n", f"<{think}><{answer}>"
    thought = f"<{think}>\n{line}</{think}>\n" if think else ""
    start, end = (f"<{answer}>", f"</{answer}>") if answer else ("", "")
    careful = f"{thought}{start}{right}{end}"
    return {
        **told,
        "thought": thought,
        "open": start,
        "close": end,
        "careful": careful,
        "escaped": html.escape(careful),
        "capitals": f"<{think}>.</{think}>{start}".upper() + right + end.upper(),
        "json": json.dumps({"answer": right}, ensure_ascii=False),
        "listed": ", ".join(labels),
        "edge": "1" if right[0].isdigit() else "x",  # makes another number of a number
        "zero_width": "\N{ZERO WIDTH SPACE}".join(right),
        "full_width": right.translate(_FULL_WIDTH),
        "cyrillic": right.translate(_LOOKALIKES),
        "rambling": (f"<{think}>\n" if think else "") + line * 40,
        "megabyte": line * (1 + MEGABYTE // len(line)),
        "opened": opened * (MEGABYTE // len(opened)),
    }


def _pay(
    reward: Reward, probe: Attack, as_messages: bool, columns: Mapping[str, Any]
) -> tuple[float, str]:
    """What a reward pays for one attack, and, where it fails, what happened."""
    prompt, completion = probe.prompt, probe.completion
    if as_messages:
        prompt = [{"role": "user", "content": prompt}]
        completion = [{"role": "assistant", "content": completion}]
    rows = {"prompts": prompt, "completions": completion, "answer": probe.answer} | columns
    try:
        (paid,) = reward(**{name: [value] for name, value in rows.items()})
        paid = float(paid)
    except Exception as error:  # whatever a reward does with an attack is what we want to know
        return math.nan, f"raised {type(error).__name__}: {str(error)[:100]}"
    return (paid, "") if math.isfinite(paid) else (math.nan, f"paid {paid}, which is no number")
