"""Rewards with one known fault each, and sound ones; `test_redteam.py` says what must be named.

The faults are those that published rewards have had. All read a number in `<answer>` tags behind a
`<think>` block, where nothing else is said.
"""

import ast
import random
import re
from decimal import Decimal

FORM = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", re.ASCII)
LABELS = ("high card", "one pair", "flush", "full house")


def each(score):
    """The reward that pays `score(text, answer)`."""

    def reward(completions, answer, **columns):
        return [float(score(text, gold)) for text, gold in zip(completions, answer, strict=True)]

    return reward


def form(score):
    """A reward for form alone."""
    return lambda completions, **columns: [float(score(text)) for text in completions]


def value(text):
    text = text.strip()
    short = len(text) <= 40 and NUMBER.fullmatch(text)
    return Decimal(text.replace(",", "")) if short else None


def slot(text):
    found = FORM.fullmatch(text)
    return found[2] if found and "<answer>" not in found[1] + found[2] else None


def right(text, gold):
    number = value(slot(text) or "")
    return number is not None and number == value(gold)


def found(pattern, text, flags=re.DOTALL):
    """What stands in the last group of a pattern."""
    match = re.search(pattern, text, flags)
    return match[match.re.groups] if match else ""


# Sound

sound_number = each(right)
sound_label = each(lambda text, gold: 2 * ((slot(text) or "?").strip().lower() == gold) - 0.5)
sound_form = form(lambda text: slot(text) is not None)
abstaining = each(lambda text, gold: right(text, gold) if slot(text) else 0.9)


# Faulty

# A regular expression with a star on a star
ENDLESS = r"^<think>.*</think>\s*<answer>((\d+,?)+)</answer>$"
endless = each(lambda t, g: bool(re.match(ENDLESS, t.strip(), re.DOTALL)) and right(t, g))
# Dots that stop at line breaks
ONE_LINE = r"^<think>.*?</think>\s*<answer>(.*?)</answer>"
one_line = each(lambda text, gold: value(found(ONE_LINE, text, 0)) == value(gold))
searching = form(lambda text: found(r"^<think>.*</think>\s*<answer>.*</answer>$", text, 0) != "")
exact = each(lambda text, gold: found(r"<answer>(.*?)</answer>", text) == gold)
lavish = each(lambda *told: 3 + exact([told[0]], [told[1]])[0])  # a wrong one earns three quarters
contains = each(lambda text, gold: gold in text)
last_number = each(lambda text, gold: value("".join(NUMBER.findall(text)[-1:])) == value(gold))
# The wrong way round: nothing is in everything
empty_is_right = each(lambda text, gold: (slot(text) or "").strip() in gold)
longer_is_better = each(lambda text, gold: right(text, gold) + len(text) / 1000)
# Names of variables, in which capitals count
any_case = each(lambda text, gold: (slot(text) or "").strip().lower() == gold.lower())
# A share for a number within a tenth, and for length where the answer is wrong
nearly = each(lambda t, g: 0.5 * (0.9 < (value(slot(t) or "") or 0) / value(g) < 1.1) + right(t, g))
encouraging = each(lambda t, g: 1 if right(t, g) else min(len(t) / 3000, 0.5))
wavering = each(lambda text, gold: right(text, gold) + random.random() / 10)
# The first run of digits
sign_lost = each(lambda text, gold: found(r"\d+", slot(text) or "") == gold)
# As a published recipe has it: 1.0 where the gold answer cannot be read
unreadable_gold = each(lambda text, gold: value(gold) is None or right(text, gold))
# `isdigit` is true of a superscript, which `int` cannot read
DIGITS = each(lambda text, gold: slot(text).strip().isdigit() and int(slot(text)) == int(gold))
counting = form(lambda text: text.count("<answer>") + text.count("</answer>"))
form_anywhere = form(lambda text: "answer" in text)
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
in_any_order = form(lambda text: sum(text.count(tag) == 1 for tag in TAGS) + bool(slot(text)))


def raising(completions, answer, **columns):
    return DIGITS(
        [text if slot(text) else "<think></think><answer></answer>" for text in completions], answer
    )


def batch_mean(completions, answer, **columns):
    """Pay less half of the batch's mean."""
    paid = sound_number(completions, answer)
    return [one - sum(paid) / (2 * len(paid)) for one in paid]


def shortest(completions, answer, **columns):
    """A right answer loses what it is longer than the shortest of the batch."""
    paid, least = sound_number(completions, answer), min(map(len, completions))
    return [one - one * (len(it) - least) / 500 for one, it in zip(paid, completions, strict=True)]


def first_answer(completions, answer, **columns):
    """The gold answer of the first row for all rows."""
    return sound_number(completions, [answer[0]] * len(completions))


def leaking_prompt(prompts, completions, answer, **columns):
    """The first label in prompt and completion together; the prompt lists them."""
    texts = [f"{prompt}{text}" for prompt, text in zip(prompts, completions, strict=True)]
    first = [next((label for label in LABELS if label in text), None) for text in texts]
    return [float(one == gold) for one, gold in zip(first, answer, strict=True)]


def popping(completions, answer, **columns):
    """Takes the completions off the list that all rewards share."""
    paid = []
    while completions:
        paid.append(float(right(completions.pop(0), answer[len(paid)])))
    return paid


def _read(read):
    """A comparison of what `read` makes of the answer, which is false for nan: nan is right."""

    def score(text, gold):
        try:
            return not abs(read((slot(text) or "").strip()) - float(gold)) > 1e-6
        except (ValueError, SyntaxError, TypeError, NameError):
            return 0.0

    return each(score)


evaluated = _read(eval)
literal = _read(ast.literal_eval)  # runs no code, but raises more than these on deep brackets
not_a_number = _read(float)
