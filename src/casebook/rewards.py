"""Reward parts that every case shares: tag format, repetition penalty, and a coin for controls.

A reward factory takes the part's parameters and returns a TRL reward function

    f(completions, **columns) -> list of float, one per completion,

whose `__name__` is the name the part is logged under, `rewards/<name>/mean`. Columns of the
data set that a part does not need are taken and ignored. Rewards judge what a model wrote, so
no completion makes one raise, and each takes time linear in the completion's length: tags are
found by plain search, because a regular expression with several `.*?` backtracks on them.

The semantics are those of open-r1 (`src/open_r1/rewards.py`) where they are sound. Where they
are not, each docstring says what differs.
"""

import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from casebook.case import CasebookError

Reward = Callable[..., list[float]]
KL_PART = "kl_penalty"  # the reward part that holds a KL, as the poker write-up has it


def random_reward() -> Reward:
    """1.0 or 0.0 by the toss of a coin: the control that tells learning from drift.

    Whatever a policy gains under it was not taught by the reward. The tosses come from Python's
    own generator, which a training seeds.

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
    - `<answer>x</answer>` on one line, blank lines between the blocks, and white space before
      the first one pass. There each tag needs a line of its own, and exactly one.

    As there, a completion whose opening `<think>` was pre-filled by the chat template fails:
    the tag is in the prompt, so the reward cannot see it. Change the template.

    Args:
        tags: the names, without brackets, in the order the blocks must come.

    Raises:
        CasebookError: `tags` is not a list of distinct names.

    >>> tag_format()(["<think>2 2 9</think><answer>one pair</answer>", "one pair"])
    [1.0, 0.0]
    """
    if isinstance(tags, str) or not isinstance(tags, Sequence) or not tags:
        raise CasebookError(f"tags must be a list of names like ['think', 'answer'], not {tags!r}")
    if not all(isinstance(tag, str) and re.fullmatch(r"[A-Za-z][\w-]*", tag) for tag in tags):
        raise CasebookError(f"a tag is a name without brackets, like 'think'; got {tags!r}")
    if len(set(tags)) < len(tags):
        raise CasebookError(f"each tag may be named once; got {tags!r}")

    def tag_format(completions: Iterable[Any], **columns) -> list[float]:
        texts = map(completion_text, completions)
        return [float(tag_blocks(text, tags) is not None) for text in texts]

    return tag_format


def repetition_penalty(ngram_size: int = 3, max_penalty: float = -1.0) -> Reward:
    """A penalty for saying the same thing again: `max_penalty * (1 - distinct / all n-grams)`.

    Words are what whitespace separates, lower-cased; n-grams overlap. Fewer than `ngram_size`
    words cost nothing, and no text reaches `max_penalty` itself. This is open-r1's
    `get_repetition_penalty_reward` for English (formula: Yeo et al. 2025, arXiv 2502.03373,
    appendix C.2), its blind spot included: one word repeated without spaces is one word.
    TRL's reward of the same name counts n-grams of tokens instead.

    Args:
        ngram_size: words in an n-gram, at least 1.
        max_penalty: the bound, zero or negative.

    Raises:
        CasebookError: `ngram_size` is not a positive integer, or `max_penalty` is positive or
            not a number.

    >>> repetition_penalty(2, -1.0)(["a a a a a", "a b c d e"])
    [-0.75, 0.0]
    """
    if not isinstance(ngram_size, int) or isinstance(ngram_size, bool) or ngram_size < 1:
        raise CasebookError(f"ngram_size must be a whole number of at least 1, not {ngram_size!r}")
    if isinstance(max_penalty, bool) or not isinstance(max_penalty, int | float):
        raise CasebookError(f"max_penalty must be a number, not {max_penalty!r}")
    if not -math.inf < max_penalty <= 0:
        raise CasebookError(f"max_penalty must be zero or negative, not {max_penalty!r}")

    def penalty(text: str) -> float:
        words = text.lower().split()
        total = len(words) - ngram_size + 1
        if total < 1:
            return 0.0
        distinct = len(set(zip(*(words[i:] for i in range(ngram_size)), strict=False)))
        # `distinct == total` apart, so that no repetition is 0.0 and not -0.0
        return 0.0 if distinct == total else max_penalty * (1 - distinct / total)

    def repetition(completions: Iterable[Any], **columns) -> list[float]:
        return [penalty(completion_text(completion)) for completion in completions]

    return repetition


def completion_text(completion: Any) -> str:
    """What the model wrote, from either of the two forms in which TRL hands it over.

    A string is returned as it is. Of a list of messages, the assistant's contents are joined by
    line breaks (a message without a role counts as the assistant's; what a tool said is not
    the model's). Anything else, `None` and bytes included, is no text and gives `""`.

    >>> completion_text([{"role": "assistant", "content": "a flush"}])
    'a flush'
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list | tuple):
        return ""
    return "\n".join(
        _content_text(message.get("content"))
        for message in completion
        if isinstance(message, Mapping) and message.get("role", "assistant") == "assistant"
    )


def tag_blocks(text: str, tags: Sequence[str]) -> list[str] | None:
    """The content of each tag's block where `text` is exactly these blocks, else `None`.

    >>> tag_blocks("<think>hm</think> <answer>flush</answer>", ("think", "answer"))
    ['hm', 'flush']
    """
    contents = []
    rest = text.strip()
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


def _content_text(content: Any) -> str:
    """A message's content: a string, or a list of parts of which some are text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(part for part in parts if isinstance(part, str))
