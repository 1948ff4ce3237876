"""Is the model that `casebook models fetch smollm2` makes the one in the GGUF file?

llama.cpp defines what a GGUF file means, so it is asked. Both read the same file and the same
token ids; compared are the next token's probabilities at every position of the prompts below, and
the greedy continuations.

llama.cpp multiplies weights of 4 bits with activations that it rounds to 8 bits first; nothing is
rounded here. So a difference may be that rounding or a fault, and there are two comparisons:

    as published   llama.cpp on the file: at least 95 % of positions with the same most likely token
                   was asked for beforehand; the bound on the divergence was written after a trial
                   on four texts, which gave 0.002 to 0.006 nats, and before the prompts below
    expanded       llama.cpp on its own expansion of the file to float32, without any rounding of
                   activations: what is left is the order of additions

`casebook study conversion` makes the committed record, `results/poker/data/conversion.json`.
llama-cpp-python is no part of the casebook's environment: pip compiles it for a quarter of an
hour.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from casebook import pretrained
from casebook.case import CasebookError
from casebook.records import provenance

NAME = "smollm2"
BOUNDS = {  # the largest mean divergence in nats, the smallest share of positions
    "as published": {"kl": 0.01, "same_token": 0.95},
    "expanded": {"kl": 1e-6, "same_token": 0.999},
}
NEW_TOKENS = 24  # of a greedy continuation
CONTEXT = 512  # tokens; the prompts are shorter
HAND = "Cards: {}\nName the hand. Answer with one label and nothing else.\nAnswer:"
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = (
    *map(
        HAND.format,
        (
            "2H 2D 2C 9S 9H",
            "AS KS QS JS TS",
            "7C 8D 9H TS JC",
            "4D 4H KC 9S 2D",
            "QH JH 8H 5H 2H",
            "6S 6D 6H 6C AD",
        ),
    ),
    "In five-card draw, a full house beats a flush, and a flush beats a straight, because",
    "Rank these hands from weakest to strongest:\n\n1. two pair\n2. high card\n3. flush\n\n",
    "Cards: 5C 5D KH 8S 2C\nAnswer: pair\n\nCards: 3C 4D 5H 6S 7C\nAnswer: straight\n\n"
    "Cards: AC AD AH 8S 8C\nAnswer:",
    CHAT.format("What is the best hand in poker?"),
    CHAT.format("I hold the king and the queen of hearts. Which cards make a flush with them?"),
    CHAT.format("Which hand is this: 2H 2D 2C 9S 9H? Say the label only."),
    "The capital of France is Paris, and the capital of Italy is",
    "Once upon a time there was a small lighthouse keeper who had never seen the",
    "Water boils at 100 degrees Celsius at sea level. On a mountain of 3,000 metres it boils",
    "Tom has 12 apples. He gives 5 to Ann and buys 23 more.  How many has he now?\n\nTom has",
    "def area(width, height):\n    return width * height\n\n\ndef perimeter(width, height):\n    ",
    "Dear Sir or Madam,\n\nI am writing to complain about the train that left at 7:45 and did",
    "Shopping list:\n\n1. 12 eggs\n2. 500 g flour\n3. salt\n\n4.",
    "SELECT name, price FROM products WHERE price > 10 ORDER BY",
    "Im Jahr 1889 wurde in Paris der Eiffelturm gebaut. Er ist",
    '{"name": "Ada", "born": 1815, "languages": ["English", "French"], "field": "',
    CHAT.format("Write a haiku about autumn."),
    CHAT.format("Explain in two sentences why the sky is blue."),
    "It's raining; we'll stay at home, they've said, and I'd rather read. The book I chose was",
    "def f(n):\n\treturn 1 if n < 2 else n * f(n - 1)\n\nprint(f(5))  # prints",
)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL divergence of the second distribution from the first, in nats: one number a row.

    Args:
        p: logits `(n, vocabulary)` of the distribution over which the mean is taken.
        q: logits of the other one.

    >>> kl(np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])).round(4).tolist()
    [0.1438]
    """
    p, q = (_log_softmax(np.asarray(logits, np.float64)) for logits in (p, q))
    return (np.exp(p) * (p - q)).sum(-1)


def compared(ours: Any, theirs: Any, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What two readers of the same weights say of the same prompts.

    Args:
        ours: an object with `logits(ids)` -> `(len(ids), vocabulary)` and `greedy(ids)` -> ids.
        theirs: the same of llama.cpp.
        prompts: token ids of each.

    Returns:
        `positions`, and over all of them `same_token`, the share with the same most likely token,
        and `kl` and `largest_kl`, the mean and the largest divergence; `same_continuations`; and
        `by_prompt` the same of each prompt with both continuations and `differs`, the place of
        their first token that is not the same.
    """
    rows = []
    for ids in prompts:
        a, b = ours.logits(ids), theirs.logits(ids)
        divergence = kl(b, a)
        one, other = ours.greedy(ids), theirs.greedy(ids)
        rows.append(
            {
                "tokens": len(ids),
                "same_token": float((a.argmax(-1) == b.argmax(-1)).mean()),
                "kl": float(divergence.mean()),
                "largest_kl": float(divergence.max()),
                "differs": _first_difference(one, other),
                "ours": one,
                "theirs": other,
            }
        )
    sizes = np.array([row["tokens"] for row in rows])
    return {
        "positions": int(sizes.sum()),
        "same_token": float(np.average([row["same_token"] for row in rows], weights=sizes)),
        "kl": float(np.average([row["kl"] for row in rows], weights=sizes)),
        "largest_kl": max(row["largest_kl"] for row in rows),
        "same_continuations": sum(row["differs"] is None for row in rows),
        "by_prompt": rows,
    }


def record() -> dict[str, Any]:
    """The comparison, with the checksum of the file and the versions of both sides.

    Raises:
        CasebookError: the model was not fetched, or llama-cpp-python is not installed.
    """
    entry = pretrained.MODELS[NAME]
    if pretrained.which(NAME) == "hub":
        raise CasebookError(f"{entry.model} is not here: casebook models fetch {NAME}")
    if not entry.weights.exists():
        raise CasebookError(f"{entry.weights} is gone: remove {entry.folder} and fetch it again")
    try:
        import llama_cpp  # noqa: F401
    except ModuleNotFoundError:
        raise CasebookError(
            "llama-cpp-python is not installed here: pip install llama-cpp-python (it compiles "
            "for a quarter of an hour)"
        ) from None
    ours = Ours()
    prompts = [list(ours.tokenizer(text).input_ids) for text in PROMPTS]
    found = {}
    with _llama(entry.weights) as theirs:
        texts = [text.encode() for text in PROMPTS]
        split = [theirs.model.tokenize(t, add_bos=False, special=True) for t in texts]
        same_ids = sum(a == b for a, b in zip(prompts, split, strict=True))
        found["as published"] = compared(ours, theirs, prompts)
    with TemporaryDirectory(dir=entry.weights.parent) as folder:
        expanded = Path(folder) / "expanded.gguf"
        _expand(entry.weights, expanded)
        with _llama(expanded, exact=True) as theirs:
            found["expanded"] = compared(ours, theirs, prompts)
    for name, comparison in found.items():
        comparison["bounds"] = BOUNDS[name]
        for row in comparison["by_prompt"]:
            for side in ("ours", "theirs"):
                row[side] = ours.tokenizer.decode(row[side])
    made = provenance()
    made["versions"] |= {"llama-cpp-python": version("llama-cpp-python")}
    return {
        "provenance": made,
        "model": {"name": NAME, "source": pretrained.which(NAME)},
        "file": {"name": entry.weights.name, "sha256": entry.sha256},
        "dtype": "float32",
        "prompts": list(PROMPTS),
        "same_token_ids": same_ids,
        "new_tokens": NEW_TOKENS,
        **found,
    }


class Ours:
    """The converted model, as every profile loads it."""

    def __init__(self):
        from casebook.models import load_base, read_settings

        self.model, self.tokenizer = load_base(read_settings("poker", "smol"))
        self.model.eval()

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Of the next token after each of `ids`: `(len(ids), vocabulary)`."""
        import torch

        with torch.inference_mode():
            return self.model(torch.tensor([ids])).logits[0].float().numpy()

    def greedy(self, ids: Sequence[int]) -> list[int]:
        """The most likely continuation, its end included."""
        from casebook.models.generation import generate

        return generate(self.model, self.tokenizer, [list(ids)], NEW_TOKENS)[0]["ids"][1]


class Llama:
    """A model of llama.cpp with the same two methods."""

    def __init__(self, model: Any):
        self.model = model

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Of the next token after each of `ids`: `(len(ids), vocabulary)`."""
        self.model.reset()
        self.model.eval(list(ids))
        return self.model.scores[: len(ids)].copy()

    def greedy(self, ids: Sequence[int]) -> list[int]:
        """The most likely continuation, its end included."""
        self.model.reset()
        self.model.eval(list(ids))
        written: list[int] = []
        while len(written) < NEW_TOKENS:
            written.append(int(self.model.scores[self.model.n_tokens - 1].argmax()))
            if written[-1] == self.model.token_eos():
                break
            self.model.eval(written[-1:])
        return written


@contextmanager
def _llama(file: Path, exact: bool = False) -> Iterator[Llama]:
    """A file in llama.cpp, on one thread; `exact`: keys and values are not rounded to 16 bits."""
    import llama_cpp

    more = {"type_k": 0, "type_v": 0, "flash_attn": False} if exact else {}  # 0: float32
    model = llama_cpp.Llama(
        str(file),
        n_ctx=CONTEXT,
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        verbose=False,
        **more,
    )
    try:
        yield Llama(model)
    finally:
        model.close()


def _expand(file: Path, output: Path) -> None:
    """llama.cpp's own expansion of a file to float32."""
    import llama_cpp

    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype, how.allow_requantize, how.nthread = 0, True, 1  # 0: every weight in float32
    if llama_cpp.llama_model_quantize(bytes(file), bytes(output), ctypes.byref(how)):
        raise CasebookError(f"llama.cpp could not expand {file}")


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The place of the first token in which two continuations differ; `None`: they are the same."""
    if one == other:
        return None
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
