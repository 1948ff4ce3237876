"""Which label does a completion give as its answer?

For cases whose answers are a few names, such as poker hands or land uses. Exactly one span is
read, chosen by its place and not by its meaning, and the whole span must be a label:

    the content of the last closed `<answer>` tag, or,
    where the prompt asks for the label alone, the first line.

So a hedge inside the span is no answer, and the text around it does not matter. Case, white
space, a final full stop, a leading article, and quotes or `*` around are ignored.

Without a tag, lenient reading takes the label named after the thought, if exactly one is named.
Such an answer is never well formed.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from casebook.rewards import completion_text, last_block, tag_blocks

TAGS = ("think", "answer")
_AROUND = " *\"'`“”‘’"  # quotes and stars
_EDGE = r"[\w\u200b-\u200d\u2060\ufeff]"  # a name touches no letter, nor what cannot be seen


class LabelReader:
    """Reads the one label that a completion gives as its answer, in linear time.

    Args:
        names: what a text may call it, in lower case -> the label that is meant.
        lookalikes: names that are no answer; beside a label they make the answer ambiguous.

    >>> read = LabelReader({"corn": "corn", "maize": "corn", "soy": "soy"})
    >>> read("<answer>corn or soy</answer> corn"), read("Soy? <answer>**Maize**</answer>")
    (None, 'corn')
    >>> read("I would plant maize."), read("maize\\nor soy"), read("maize\\nor soy", tagged=False)
    ('corn', None, 'corn')
    """

    def __init__(self, names: Mapping[str, str], lookalikes: Collection[str] = ()):
        self._labels = {_plain(name): label for name, label in names.items()}
        self._named = {name: name for name in lookalikes} | self._labels
        longest_first = sorted(map(re.escape, self._named), key=len, reverse=True)
        self._name = re.compile(rf"(?<!{_EDGE})(?:{'|'.join(longest_first)})(?!{_EDGE})")

    def __call__(self, completion: Any, tagged: bool = True) -> str | None:
        """The label, or `None`; `tagged`: the prompt asked for tags, not for the label alone."""
        text = completion_text(completion).lower()
        span = last_block(text, TAGS[1]) if tagged else text.strip().partition("\n")[0]
        label = None if span is None else self._labels.get(_plain(span))
        if label or (tagged and span is not None):
            return label
        after_thought = _spaced(text.rpartition("</think>")[2].partition("<think>")[0])
        meant = {self._named[found[0]] for found in self._name.finditer(after_thought)}
        return self._labels.get(meant.pop()) if len(meant) == 1 else None


def label_in_form(text: str, labels: Collection[str], tagged: bool = True) -> bool:
    """Whether a text is only a block of each of `TAGS` with a label in the second or, if no tags
    were asked for, only a label, perhaps with a full stop.

    >>> label_in_form("Corn.", ["corn"], tagged=False), label_in_form("Corn.", ["corn"])
    (True, False)
    """
    if not tagged:
        return text.strip().removesuffix(".").lower() in labels
    blocks = tag_blocks(text, TAGS)
    return blocks is not None and blocks[1].strip().lower() in labels


def _plain(span: str) -> str:
    """The span without the characters that are ignored."""
    whole = _spaced(span).strip(_AROUND).removesuffix(".").strip(_AROUND)
    return re.sub(r"^(?:an?|the) ", "", whole).strip(_AROUND)


def _spaced(text: str) -> str:
    """The text with a blank for all white space and for the hyphen of "three-of-a-kind"."""
    return " ".join(re.sub(r"(?<=\w)-(?=\w)", " ", text).split())
