"""Reward parts that every case shares: tag format, repetition penalty, random reward.

A reward factory takes the part's parameters and returns a TRL reward function

    f(completions, **columns) -> list of float, one per completion,

whose `__name__` is the name the part is logged under, `rewards/<name>/mean`. Columns of the
data set that a part does not need are ignored. No completion makes a reward raise, and each takes
time linear in its length: tags are found by plain search, because a regular expression with
several `.*?` backtracks on them.

The semantics are those of open-r1 (`src/open_r1/rewards.py`) where they are sound; where they are
not, each docstring says what differs.
"""

import hashlib
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from casebook.case import CasebookError

Reward = Callable[..., list[float]]


def part(name: str, score: Callable[..., float], *needed: str) -> Reward:
    """The reward called `name`: `score(text, *values)` for each completion's text.

    `values` are its row's in the `needed` columns, which are a `CasebookError` where missing.

    >>> part("same", lambda text, answer: text == answer, "answer")(["5", "6"], answer=["5", "5"])
    [1.0, 0.0]
    """

    def reward(completions: Iterable[Any], **columns) -> list[float]:
        for column in needed:
            if columns.get(column) is None:
                raise CasebookError(f"the reward {name} needs the rows' column {column!r}")
        rows = zip(completions, *(columns[column] for column in needed), strict=True)
        return [float(score(completion_text(completion), *values)) for completion, *values in rows]

    reward.__name__ = name
    return reward


def noisy(reward: Reward, misses: float = 0.0, false_alarms: float = 0.0) -> Reward:
    """A verifier that errs: 0.0 for a share of right completions, 1.0 for a share of wrong ones.

    A hash of prompt and completion decides for which, so it errs again on the same text, as a real
    verifier does. Raises `CasebookError` unless `misses` and `false_alarms` are shares.

    >>> sure = part("sure", lambda text: text == "right")
    >>> noisy(sure, misses=1.0)(["right", "wrong"], prompts=["?", "?"])
    [0.0, 0.0]
    """
    if not (0 <= misses <= 1 and 0 <= false_alarms <= 1):
        raise CasebookError(f"misses and false_alarms are shares, not {misses!r}, {false_alarms!r}")
    if not misses and not false_alarms:
        return reward

    def judged(completions: Iterable[Any], prompts: Iterable[Any], **columns) -> list[float]:
        paid = reward(completions=completions, prompts=prompts, **columns)
        texts = (repr((p, completion_text(c))) for p, c in zip(prompts, completions, strict=True))
        marks = (int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32 for text in texts)
        shares = (misses if value else false_alarms for value in paid)
        turned = [mark < share for mark, share in zip(marks, shares, strict=True)]
        return [1.0 - value if t else value for value, t in zip(paid, turned, strict=True)]

    judged.__name__ = reward.__name__
    return judged


def random_reward() -> Reward:
    """1.0 or 0.0 at random, whatever the completion: a control. No reward taught what it gains.

    The numbers come from Python's own generator, which a training seeds.

    >>> set(random_reward()(["flush"] * 100)) == {0.0, 1.0}
    True
    """

    def random_reward(completions: Iterable[Any], **columns) -> list[float]:
        return [float(random.random() < 0.5) for _ in completions]

    return random_reward


def tag_format(tags: Sequence[str] = ("think", "answer")) -> Reward:
    """1.0 where a completion is one block of each tag, in order, and nothing else; 0.0 otherwise.

    Whitespace around and between the blocks is free, and their content may be anything,
    nothing included, except another of the tags.

    What differs from open-r1's `format_reward`, and why:

    - Text after `</answer>` fails. There it passes if it begins on a new line, since its
      pattern is compiled with MULTILINE and `$` matches at any line's end.
    - A second block of a tag fails. There `.*?` runs over it, so a model may answer twice.
    - `<answer>x</answer>` on one line, and white space before and between the blocks, pass.
      There each tag needs a line of its own, and exactly one.

    As there, a completion fails whose opening `<think>` the chat template put into the prompt.
    `tags` are distinct names without brackets, in the order of the blocks; others raise
    `CasebookError`.

    >>> tag_format()(["<think>2 2 9</think><answer>one pair</answer>", "one pair"])
    [1.0, 0.0]
    """
    listed = isinstance(tags, Sequence) and not isinstance(tags, str) and len(tags) > 0
    named = listed and all(isinstance(t, str) and re.fullmatch(r"[A-Za-z][\w-]*", t) for t in tags)
    if not named or len(set(tags)) < len(tags):
        raise CasebookError(
            f"tags are different names without brackets, like ['think', 'answer'], not {tags!r}"
        )

    return part("tag_format", lambda text: tag_blocks(text, tags) is not None)


def repetition_penalty(ngram_size: int = 3, max_penalty: float = -1.0) -> Reward:
    """A penalty for repetition: `max_penalty * (1 - distinct / all n-grams)`.

    Words are what whitespace separates, lower-cased; n-grams overlap. Fewer than `ngram_size`
    words have no penalty. This is open-r1's `get_repetition_penalty_reward` for English (formula:
    Yeo et al. 2025, arXiv 2502.03373, appendix C.2), its blind spot included: one word repeated
    without spaces is one word.

    `ngram_size` is a whole number of words from 1, and `max_penalty`, the bound, zero or negative;
    other values raise `CasebookError`.

    >>> repetition_penalty(2, -1.0)(["a a a a a", "a b c d e"])
    [-0.75, 0.0]
    """
    if type(ngram_size) is not int or ngram_size < 1:
        raise CasebookError(f"ngram_size must be a whole number of at least 1, not {ngram_size!r}")
    if type(max_penalty) not in (int, float) or not -math.inf < max_penalty <= 0:
        raise CasebookError(f"max_penalty must be zero or a negative number, not {max_penalty!r}")

    def penalty(text: str) -> float:
        words = text.lower().split()
        total = len(words) - ngram_size + 1
        if total < 1:
            return 0.0
        distinct = len(set(zip(*(words[i:] for i in range(ngram_size)), strict=False)))
        # `distinct == total` apart, so that no repetition is 0.0 and not -0.0
        return 0.0 if distinct == total else max_penalty * (1 - distinct / total)

    return part("repetition", penalty)


def completion_text(completion: Any) -> str:
    """The model's text, from either of the two forms that TRL passes to a reward.

    Of a list of messages, the assistant's contents are joined by line breaks (without a role, a
    message is the assistant's). What is neither text nor messages gives `""`.

    >>> completion_text([{"role": "assistant", "content": "a flush"}])
    'a flush'
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list | tuple):
        return ""
    written = []
    for message in completion:
        if isinstance(message, Mapping) and message.get("role", "assistant") == "assistant":
            content = message.get("content")
            parts = content if isinstance(content, list | tuple) else [{"text": content}]
            texts = (part.get("text") for part in parts if isinstance(part, Mapping))
            written.append("".join(text for text in texts if isinstance(text, str)))
    return "\n".join(written)


def tag_blocks(text: str, tags: Sequence[str]) -> list[str] | None:
    """The content of each tag's block where `text` is exactly these blocks, else `None`.

    >>> tag_blocks("<think>hm</think> <answer>flush</answer>", ("think", "answer"))
    ['hm', 'flush']
    """
    contents, rest = [], text.strip()
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if text.count(opening) != 1 or text.count(closing) != 1 or not rest.startswith(opening):
            return None
        content, closed, rest = rest.removeprefix(opening).partition(closing)
        if not closed:
            return None
        contents.append(content)
        rest = rest.lstrip()
    return None if rest else contents


def last_block(text: str, tag: str) -> str | None:
    """The content of the last closed block of `tag` in `text`, or `None`.

    >>> last_block("<answer>flush</answer> no, <answer>straight</answer>", "answer")
    'straight'
    """
    before, closing, _ = text.rpartition(f"</{tag}>")
    _, opening, content = before.rpartition(f"<{tag}>")
    return content if closing and opening else None
