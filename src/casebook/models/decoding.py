"""Constrained decoding: let a model write one of a few texts, and score what it wrote alike.

Two rules say which tokens may come next. A *prefix trie* allows what continues the text so far
to one of the texts. The rule of the poker write-up (cell 5) looks at the position only, and
allows what *any* text has there: with one token a word that admits 72 strings for 8 labels.

Whoever samples under a rule samples from another distribution than the model's: all that is not
allowed has probability 0, and the rest is scaled up. `constrained` applies the same rule to
logits, so that log-probabilities are those of the distribution that was sampled from; a token
that was the only one allowed then costs nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import zip_longest
from typing import Any

import torch

from casebook.case import CasebookError, check_name

KINDS = ("none", "position", "trie")


class PrefixTrie:
    """Allows what continues the text so far to one of the texts, and the end only after a whole.

    `texts` are token ids without `eos`, the token that ends a text.

    >>> trie = PrefixTrie([[1, 2], [1, 3]], eos=0)
    >>> trie.allowed([]), trie.allowed([1]), trie.allowed([1, 3])
    ([1], [2, 3], [0])
    """

    def __init__(self, texts: Sequence[Sequence[int]], eos: int):
        self.eos = eos
        self._children: dict[tuple[int, ...], set[int]] = {}
        for whole in ((*text, eos) for text in texts):
            for end, token in enumerate(whole):
                self._children.setdefault(whole[:end], set()).add(token)

    def allowed(self, prefix: Sequence[int]) -> list[int]:
        """The token ids that may follow `prefix`; off the trie and after an end, the end."""
        return sorted(self._children.get(tuple(prefix), {self.eos}))


class PositionUnion:
    """The poker write-up's rule: at each position, the tokens that any text has there.

    The end is allowed wherever some text is that long, so texts are mixed and cut short.

    >>> rule = PositionUnion([[1, 2], [3, 4]], eos=0)
    >>> rule.allowed([1]), PrefixTrie([[1, 2], [3, 4]], eos=0).allowed([1])
    ([2, 4], [2])
    """

    def __init__(self, texts: Sequence[Sequence[int]], eos: int):
        self.eos = eos
        columns = zip_longest(*([*text, eos] for text in texts))
        self._at = [set(column) - {None} for column in columns]

    def allowed(self, prefix: Sequence[int]) -> list[int]:
        """The token ids that may follow `prefix`, of which only the length counts."""
        return sorted(self._at[len(prefix)]) if len(prefix) < len(self._at) else [self.eos]


Constraint = PrefixTrie | PositionUnion


def constraint_for(kind: str, texts: Sequence[str], tokenizer: Any) -> Constraint | None:
    """The rule of a configuration: `trie`, `position` (as published), or `none`.

    The trie knows each text in one form, with the blank that follows "Answer:"; by position the
    texts stand with the blank and without, mixed, as the write-up has them.

    Raises:
        CasebookError: unknown kind, a text that the tokenizer does not know, or no text at all.
    """
    check_name("constraint", kind, KINDS)
    if kind == "none":
        return None
    if not texts:
        raise CasebookError(f"constraint {kind!r}: the case has no fixed labels to choose from")
    if kind == "trie":
        return PrefixTrie(label_tokens(texts, tokenizer), tokenizer.eos_token_id)
    return PositionUnion(label_tokens(texts, tokenizer, ("", " ")), tokenizer.eos_token_id)


def label_tokens(
    labels: Sequence[str], tokenizer: Any, before: Sequence[str] = (" ",)
) -> list[list[int]]:
    """The token ids of each label, with each of `before` in front; each has to have some."""
    texts = [blank + label for blank in before for label in labels]
    tokens = [list(tokenizer(text, add_special_tokens=False).input_ids) for text in texts]
    unknown = getattr(tokenizer, "unk_token_id", None)
    for text, ids in zip(texts, tokens, strict=True):
        if not ids or (unknown is not None and unknown in ids):
            raise CasebookError(f"the tokenizer has no tokens for the label {text!r}")
    return tokens


def constrained_generation(model: Any, constraint: Constraint | None) -> AbstractContextManager:
    """Inside it, `model.generate` keeps to the rule: for code that calls `generate` itself."""

    def generate(plain, **arguments):
        length = arguments["input_ids"].shape[1]  # of the prompts, left padding included

        def allowed(batch_id: int, input_ids: torch.Tensor) -> list[int]:
            return constraint.allowed(input_ids[length:].tolist())

        return plain(prefix_allowed_tokens_fn=allowed, **arguments)

    return nullcontext() if constraint is None else replaced_generate(model, generate)


@contextmanager
def replaced_generate(model: Any, generate: Callable) -> Iterator[None]:
    """Inside it, the model's `generate` is `generate(the one before, **arguments)`."""
    own = vars(model).get("generate")
    model.generate = partial(generate, model.generate)
    try:
        yield
    finally:
        if own is None:
            del model.generate  # the class's shows again
        else:
            model.generate = own  # Unsloth gives a model one of its own


def constrained(
    logits: torch.Tensor, completion_ids: torch.Tensor, constraint: Constraint
) -> torch.Tensor:
    """Logits `(n, length, vocabulary)` with what the rule forbids at the lowest float.

    They predicted `completion_ids`, `(n, length)`; what comes after the first end is left as it is.
    The lowest float and not minus infinity: its probability is 0 as well, but 0 times it is a
    number, which an entropy and its gradient need.
    """
    allowed = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    for row, ids in enumerate(completion_ids.tolist()):
        length = ids.index(constraint.eos) + 1 if constraint.eos in ids else len(ids)
        for position in range(length):
            allowed[row, position, constraint.allowed(ids[:position])] = True
        allowed[row, length:] = True
    return logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
