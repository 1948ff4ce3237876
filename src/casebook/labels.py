"""Which label does a text give as its answer?

For cases whose answers are a few names, such as poker hands or land uses. A completion that
hedges must not be paid, and an answer with a reason behind it must be. Each case's `answers.yaml`
has the policy in examples; the rules are:

1. *Where.* What follows the last `</think>` is read. A thought that never ends holds no answer,
   except in answer tags. What stands before a tag is a thought as well.
2. *Denied.* A name after "not", "than", "at least" and the like, or before "is wrong", is not
   named as the answer. After a denied name another one counts only if it is contrasted: "not a
   straight but a flush".
3. *Alternatives.* A name beside "or" is no answer, and neither are two different names.
4. *Reasons.* After an answer, words such as "because", a colon or a bracket open a reason; so does
   a new sentence, if the answer stands alone in a tag or a sentence. What a reason names does not
   count unless it is all that the reason says, as in "flush (straight)", or it is put as another
   answer, as in "maybe a straight".

In doubt there is no answer. The time is linear in the text's length, and nothing raises.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from casebook.rewards import completion_text, tag_blocks


def _words(listed: str) -> frozenset[str]:
    """Words and phrases that are listed with commas."""
    return frozenset(" ".join(phrase.split()) for phrase in listed.split(","))


def _any_of(phrases: Iterable[str], between: str) -> str:
    """A pattern for phrases, the longest first, with `between` between the words of one."""
    longest_first = sorted(phrases, key=len, reverse=True)
    return "|".join(between.join(map(re.escape, phrase.split())) for phrase in longest_first)


# Words and phrases, by what they do. These deny the name after them, ...
_DENIES_NEXT = _words(
    """than, beats, beat, beating, at least, at most, up to, almost, nearly, short of, far from,
    without, except, excluding, exclude, excludes, unlike, lacks, non, avoid, reject, rejects,
    rule out, rules out, ruling out, anything but, everything but, all but, other than,
    rather than, instead of, opposite of, close to, different from, nothing like, hardly, doubt,
    nobody, no one, no way, ignore, forget, fake, pseudo, anti"""
)
# ... and these the one before them, too.
_DENIES = _words(
    """not, never, cannot, neither, nor, nope, wrong, false, incorrect, impossible, unlikely,
    mistake, mistaken, ruled out, excluded, rejected"""
)
# After a denied name, these say that the right one follows.
_CONTRAST = _words(
    """but, instead, rather, it, it's, its, this, that's, so, therefore, thus, hence, answer, plant,
    choose, pick"""
)
# After an answer, these say that it may be another.
_ALTERNATIVE = _words(
    """or, either, unless, if not, otherwise, alternatively, alternative, else, perhaps, maybe,
    possibly, also, as well, as well as, could, may, might, actually, wait, instead, rather,
    correction, sorry, mean, second thought, second thoughts, reflection, scratch, reconsider"""
)
_AS_WELL = _words("also, too, as well, possible")  # the same, of the name before
_REASON = _words(
    """because, since, as, with, due to, given, reason, explanation, which, while, whereas, though,
    although, considering, where"""
)
_COPULA = _words(
    "is, are, be, was, it's, that's, answer, say, choose, plant, pick, prefer, call, called"
)
# These say nothing: a clause of a name and such words is an answer, and no reason.
_EMPTY = _words(
    """a, an, the, it, this, that, these, of, on, in, to, and, plus, then, so, i, i'd, i'll, i'm,
    we, my, our, you, your, would, will, think, believe, guess, must, should, go, grow, hand, hands,
    card, cards, type, kind, category, label, class, parcel, crop, use, land, best, final, correct,
    right, yes, ok, okay, here, now, really, just, only, clearly, probably, definitely, surely,
    certainly, very, still, again, too, boxed, no, no more, more or less, no doubt, without doubt,
    without a doubt, nothing beats"""
)
_VOCABULARY = (_DENIES_NEXT, _DENIES, _CONTRAST, _ALTERNATIVE, _REASON, _COPULA, _EMPTY)
_ANY_PHRASE = _any_of({p for words in _VOCABULARY for p in words if " " in p}, between=r"\s+")

_EDGE = r"[\w\u200b-\u200d\u2060\ufeff]"  # a name touches no letter, nor what cannot be seen


class LabelReader:
    """Reads the one label that a completion gives as its answer, whatever its form.

    Args:
        names: what a text may call it, in lower case -> the label that is meant. A name that is
            none of `labels`, such as a longer one that holds a label, stands for itself.
        labels: the answers there are.
        parts: label -> labels that are part of it, and so are named when it is described.

    >>> read = LabelReader({"corn": "corn", "maize": "corn", "soy": "soy"}, ("corn", "soy"))
    >>> read("I would plant Maize, since soy yields less.")
    'corn'
    >>> read("<answer>Corn or soy</answer>"), read("not corn"), read("<think>corn")
    (None, None, None)
    """

    def __init__(
        self,
        names: Mapping[str, str],
        labels: Collection[str],
        parts: Mapping[str, Collection[str]] = MappingProxyType({}),
    ):
        self.names, self.labels, self.parts = names, labels, parts
        any_name = _any_of(names, between=r"[\s-]+")
        name = rf"(?<!{_EDGE})(?:{any_name})(?!{_EDGE})"
        self._name = re.compile(name)
        self._token = re.compile(
            rf"(?P<name>{name})|(?P<tag></?(?:think|answer)>)"
            rf"|(?P<no>\bno\s+(?={name}))|(?P<or>[/|]\s*(?={name}))"
            rf"|(?P<word>\b(?:{_ANY_PHRASE}|[^\W_]+(?:'\w+)?)\b)"
            r"|(?P<stop>[.!?](?!\w)|[;\n])|(?P<comma>,)|(?P<open>[(\[])|(?P<close>[)\]])"
            r"|(?P<colon>[:=–—]|(?<=\s)-(?=\s))"
        )

    def __call__(self, completion: Any) -> str | None:
        """The label, or `None`. `completion` is a string or a list of messages."""
        text = completion_text(completion).lower().replace("’", "'")
        reading = _Reading()
        for kind, word in self._tokens(self._answer_part(text)):
            if word == "<think>":
                break
            reading.take(kind, word)
        return self._decided(reading.end())

    def _tokens(self, text: str) -> Iterator[tuple[str, str]]:
        for match in self._token.finditer(text):
            kind, word = match.lastgroup, match[0]
            if kind in ("name", "word"):
                word = " ".join((word.replace("-", " ") if kind == "name" else word).split())
            yield kind, self.names[word] if kind == "name" else word

    def _answer_part(self, text: str) -> str:
        """What is read of a text: from its first answer tag on, else what follows the thought."""
        thought, _, rest = text.rpartition("</think>")
        if "<think>" in rest:  # cut off while thinking
            return self._tagged(rest.rpartition("<think>")[2], "")
        if self._name.search(rest):
            return self._tagged(rest, rest)
        return self._tagged(thought, "")

    def _tagged(self, text: str, otherwise: str) -> str:
        """The text from the first closed answer tag with a name in it, if there is one.

        With what stands before it, if that is no thought: "It is not <answer>".
        """
        end = text.rfind("</answer>")
        start = text.find("<answer>", 0, max(end, 0))
        while start >= 0:
            following = text.find("<answer>", start + 1, end)
            stop = following if following >= 0 else end
            if self._name.search(text[start:stop].partition("</answer>")[0]):
                before = text[:start].rpartition("<think>")[2]
                words = [word for kind, word in self._tokens(before) if kind == "word"]
                return text[start:] if any(map(_is_content, words)) else before + text[start:]
            start = following
        return otherwise

    def _decided(self, named: Sequence[tuple[str, bool]] | None) -> str | None:
        """The label that is named alone, or with parts of it that describe it."""
        names = {name for name, _ in named or ()}
        for label in names & set(self.labels):
            others = [(name, alone) for name, alone in named if name != label]
            parts = self.parts.get(label, ())
            if all(name in parts and not alone for name, alone in others):
                return label
        return None


def label_in_form(text: str, labels: Collection[str], tags: Sequence[str] = ()) -> bool:
    """Whether a text is one label in the form asked for, and nothing else.

    Args:
        text: the completion's text.
        labels: the answers there are.
        tags: two blocks, of which the second holds the label; none: the label alone, perhaps with
            a full stop.

    >>> label_in_form("Corn.", ["corn"]), label_in_form("Corn.", ["corn"], ("think", "answer"))
    (True, False)
    """
    if not tags:
        return text.strip().removesuffix(".").lower() in labels
    blocks = tag_blocks(text, tags)
    return blocks is not None and blocks[1].strip().lower() in labels


def _is_content(word: str) -> bool:
    return not any(word in words for words in _VOCABULARY) and not word.endswith("n't")


@dataclass
class _Name:
    """One name in the text."""

    name: str
    denied: bool
    stated: bool  # "it is a ..."
    another: bool  # "or a ...", "maybe a ..."


class _Reading:
    """Goes through the words of a text and keeps the names that count as its answer.

    A text falls into sentences, and these into clauses. A clause is part of the *answer*, of a
    *reason* in the answer's sentence, or of a *remark* in a sentence after an answer that stands
    alone.
    """

    def __init__(self):
        self.named: list[tuple[str, bool]] = []  # those that count; is the clause the name alone?
        self.spoilt = False  # alternatives, or taken back
        self.offered = False  # one of those that count is put as another answer
        self.place = "answer"
        self.alone = True  # all clauses of the answer so far say nothing besides
        self.shut = False  # a name was denied, and no other is put against it
        self.contrast = False  # one is about to be: "but ...", "it is ..."
        self.marked = False  # a colon or a bracket opened the reason, and no word
        self.bracket = False  # a bracket did, and ends it
        self.fresh = False  # the clause before this one named an answer
        self._begin_sentence()

    def take(self, kind: str, word: str) -> None:
        getattr(self, f"_{kind}")(word)

    def end(self) -> list[tuple[str, bool]] | None:
        """The names that count, with whether each is all that is said; `None` if it is spoilt."""
        self._stop()
        if self.spoilt:
            return None
        return [(name, alone or self.offered) for name, alone in self.named]

    def _begin_sentence(self):
        self.beside_or = self.live_in_sentence = self.another = self.explained = False
        self._begin_clause()

    def _begin_clause(self):
        self.names: list[_Name] = []
        self.content = self.refused = self.copula = False
        self.deny = None  # "name": what follows; "both": what stands before as well
        self.hit = False  # a name was denied by it
        self.listed: int | None = None  # from here on, names may be of a list: "corn, oat and soy"
        self.just_named = False
        self.empty = True
        self.joined = False  # by an "and" to a clause that says something

    def _live(self) -> bool:
        return bool(self.named) or any(not name.denied for name in self.names)

    # Tokens

    def _name(self, word: str) -> None:
        denied = bool(self.deny) or self.shut
        self.hit |= bool(self.deny)
        self.names.append(_Name(word, denied, self.copula, self.another))
        self.copula = self.empty = self.refused = self.contrast = False
        self.just_named = True

    def _no(self, word: str) -> None:
        self.deny, self.hit = "name", False
        self.empty = False

    def _or(self, word: str) -> None:
        self._alternative("or")

    def _word(self, word: str) -> None:
        if word in _CONTRAST and (self.shut or self.hit) and not self.explained:
            self.contrast = not self._live()
            self.shut, self.hit = False, False
            self.deny = None
        if word in _AS_WELL:
            for name in self.names:
                name.another = True
        if word == "nor" and self.just_named:
            self.names[-1].denied = True
        if word in _DENIES or word.endswith("n't"):
            self.deny, self.hit = "both", False
        elif word in _DENIES_NEXT:
            self.deny, self.hit = "name", False
        elif word in _ALTERNATIVE:
            self._alternative(word)
        elif word in _REASON:
            self.explained = True
            self._reason()
        elif word == "no":
            self.refused = True
        elif word in _COPULA:
            self.copula = True
        elif word in ("and", "plus") and self.listed is not None:
            self.listed = None  # so they are
        elif word in ("and", "plus", "but") and self.place != "answer":
            if word == "but" or not self.just_named:
                joined = self.content
                self._close_clause()
                self.joined = joined
        elif _is_content(word):
            self.content, self.refused, self.copula = True, False, False
            self.shut |= self.contrast
            self.contrast = False
        self.empty = self.just_named = False

    def _alternative(self, word: str) -> None:
        self.another = True
        if word in ("or", "either"):
            if self.place == "answer":
                self.beside_or = True
            elif self.empty and self.place == "remark":
                self.spoilt = True  # "Flush. Or so."
        if self._live():
            self.deny = None

    def _reason(self, marked: bool = False) -> None:
        if self.place == "answer" and self._live():
            self._close_clause()
            self.place, self.marked = "reason", marked
        elif self.place == "remark" or (self.place == "reason" and self.marked):
            self._close_clause()

    def _comma(self, word: str = "") -> None:
        if self.place != "answer" and self.just_named:
            self.listed = len(self.names) if self.listed is None else self.listed
        else:
            self._close_clause()

    def _colon(self, word: str) -> None:
        carried = None if self.names else self.deny  # "wrong: flush"
        self._reason(marked=True)
        self._close_clause()
        self.deny = carried

    def _open(self, word: str) -> None:
        if self.place == "answer" and self._live():
            self.bracket = True
        self._reason(marked=True)
        if self.place != "answer":
            self._comma()

    def _close(self, word: str) -> None:
        if self.bracket:
            self._close_clause()
            self.place, self.bracket, self.another = "answer", False, False

    def _stop(self, word: str = "") -> None:
        self._close_clause()
        if self.beside_or and self.live_in_sentence:
            self.spoilt = True
        if self.place != "remark":
            self.place = "remark" if self.named and self.alone else "answer"
        self.bracket = False
        self._begin_sentence()

    def _tag(self, word: str) -> None:
        if word == "<answer>" and self.place == "answer":
            return
        self._stop()
        if word == "<answer>":
            self.place = "answer"
        elif word == "</answer>" and self.named:
            self.place = "remark"

    # Clauses

    def _close_clause(self) -> None:
        """Decide which names of the clause that ends here count."""
        bare = not self.content
        for name in self.names[self.listed :] if self.listed is not None else ():
            name.denied, name.another = False, True  # "because it beats corn, oat"
        if (self.deny == "both" and not self.hit) or self.refused:
            self._take_back()
        counted = [name for name in self.names if not name.denied and self._counts(name, bare)]
        self.fresh = bool(counted) if not self.empty else self.fresh
        self.named += [(name.name, bare and not self.joined) for name in counted]
        self.offered |= any(name.another for name in counted)
        if self.place == "answer":
            self.live_in_sentence |= bool(counted)
            self.alone &= bare
        if any(name.denied for name in self.names) and not self.named:
            self.shut = True
        self._begin_clause()

    def _take_back(self) -> None:
        """What was named is denied: "wheat does not grow here", "Flush? No."."""
        if self.names:
            self.names[-1].denied = True
        elif self.fresh and not self.content:
            self.spoilt = True

    def _counts(self, name: _Name, bare: bool) -> bool:
        if self.place == "answer" or bare:
            return True
        return name.another or (self.place == "remark" and name.stated)
