"""Which of the write-up's heuristics a reasoning text shows, and how far that can be trusted.

The write-up says neither who counted its seven motifs nor by what rule. Here a tagger finds them by
words, and its precision and recall are measured on texts that were labelled by hand.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from casebook import paths
from casebook.cases.landuse.heuristics import HEURISTICS
from casebook.rewards import completion_text
from casebook.stats import mean_interval

MOTIFS = tuple(HEURISTICS)
LONGEST = 20_000  # characters that are read: more than the write-up's 4,096 tokens

_CROP = r"\b(?:wheat|oats?|corn|maize|soy(?:a|beans?)?)\b"
_TWO = rf"{_CROP}.{{0,60}}{_CROP}"
_NEAR = r"\b(?:neighbou?r\w*|surround\w*|around|nearby|adjacent|adjoining|next door)\b"
_LINKS = r"\b(?:connect\w*|link\w*|join\w*|corridors?)\b"
_YIELD = r"\byield\w*|\btonnes?\b|\bt ?/ ?ha\b|\bt ha\b|\bharvest|\bproduc\w+|\bper hectare\b"
_MOST = (
    r"\b(?:highest|greatest|largest|biggest|strongest|best|top|most|maxim\w*|rank\w*|leads?"
    r"|ahead|wins?|beats?|dwarfs?|exceeds?|outperforms?|more than|higher|out-?yields?)\b"
)
_ALIKE = (
    r"\b(?:close|similar|comparable|tied?|ties|equal|alike|identical|the same|toss-up|level"
    r"|neck and neck|little (?:between|difference|to choose)|within \d+ ?%"
    r"|almost as (?:much|good|well))\b"
)
_NOTHING = (
    r"\bzero\b|\b0[- ]yield|\bno (?:crops?|yields?)\b|\byields? (?:of )?0\b|\bnothing\b|\bbarren"
    r"|\bunproductive|\b(?:cannot|can't|do not|don't) grow|\bhabitat\b"
)
_MANY = (
    r"\b(?:half|most|majority|all|many|several|belt|surrounded)\b|\d ?%|\b[1-8] ?/ ?[1-8]\b"
    r"|\b(?:two|three|four|five|six|seven|eight|[2-8])(?: \w+){0,2}"
    r" (?:of|neigh\w*|cells|polygons|parcels)\b"
)
_SCORE = (
    r"\bscores?(?:\b|_)(?! (?:well|high|low|best|poor|bad|better|worse))|\bscoring\b|[αβ]"
    r"|\bweighted (?:sum|average|total|combination)|\bweights?\b.{0,20}\d|\balpha\b|\bbeta\b"
    rf"|\bs ?[(_] ?{_CROP}"
)
_NO = "^(?!.*(?:{}))"  # the passage does not have it
_OWN = _NO.format(rf"\bmean\b|\baverage|{_NEAR}|{_SCORE}")  # neither neighbours nor a score

# Motif -> the ways to put it into words. A way is a tuple of patterns that all have to occur in
# one passage: a sentence, or, for the motifs in `_ACROSS`, also a sentence with the next.
_ACROSS = ("yield_max", "tie_breaker", "corridor")
_WAYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "yield_max": (
        (rf"\btop {_CROP} in tonnes",),
        (_MOST, _YIELD + r"|\d", rf"{_CROP}|\bcrops?\b", _OWN),
        (rf"{_CROP}.{{0,30}}\b(?:on top|ahead|dwarfs)\b", _OWN),
        (r"\b(?:highest|high|top)[- ]yield", _OWN),
        (
            rf"{_CROP}.{{0,30}}\d\.\d.{{0,40}}{_CROP}.{{0,30}}\d",
            r"\bignore|\bdrop|\bdiscard|=>",
            _OWN,
        ),
    ),
    "tie_breaker": (
        (_ALIKE, _LINKS, rf"{_TWO}|\bcrops\b|\byields\b|\bboth\b|\beither\b"),
        (r"\btie-? ?break\w*", _LINKS),
    ),
    "zero_belt": (
        (r"\bzero[- ](?:yield )?belt\b|\bbelt of\b",),
        (_NOTHING, _MANY, _NEAR),
    ),
    "neighbour_mean": (
        (rf"\bnear mean {_CROP}",),
        (
            rf"{_NEAR}|\blocal\b|\bnext to\b|\b(?:1|one)-hop\b",
            r"\b(?:means?|averag\w+|avg|median|max(?:imum)?|typical\w*)\b",
            rf"{_CROP}|\bcrops?\b|{_YIELD}",
        ),
        (r"\b(?:sharp|abrupt|sudden|steep)\w*.{0,30}\b(?:jump|break|change|contrast|step)",),
        (r"\bdiscontinuit|\bcoheren(?:t|ce)\b|\brotation",),
        (_NEAR, r"\b(?:in line|fits?|fits? in|match\w*|consistent) with\b|\bmatch"),
    ),
    "global_baseline": (
        (r"\b(?:supply|supplies|quotas?|demand|food|baseline)\b",),
        (r"\bproduction (?:floor|target|level|need|goal|requirement|minim)|\bfloors?\b",),
        (
            r"\b(?:global\w*|landscape(?:-wide|-level)?|overall|total|region\w*|nation\w*)\b",
            r"\b(?:production|output|tonnage|harvest|targets?|require\w*|enough|deliver\w*)\b",
        ),
    ),
    "score": (
        (_SCORE,),
        (r"\b(?:half|0\.5).{0,20}\bconnectivity|\bconnectivity.{0,20}(?:\*|x|times) ?0?\.5",),
        (r"\byields? ?(?:\+|plus) .{0,30}\bconnectivity|\bcombin\w* yields? and connectivity",),
    ),
    "corridor": (
        (r"\b(?:no|a|the) corridor\b|^corridor ,|\bcorridor (?:extension|logic|rule|check)",),
        (r"\bbridg(?:e|es|ed|ing)\b|\bstepping[- ]stone|\b(?:clos|fill)\w* .{0,20}\bgap\b",),
        (
            r"\b(?:opposite|both sides|either side|between)\b"
            r"|\bnorth\b.{0,90}\bsouth\b|\bsouth\b.{0,90}\bnorth\b"
            r"|\beast\b.{0,90}\bwest\b|\bwest\b.{0,90}\beast\b",
            r"\bhabitat\b",
            rf"{_LINKS}|\bgap\b",
        ),
        (
            r"\bcorridors?\b|\b(?:join|connect|link)\w* .{0,30}\b(?:two|both|patches|north)\b",
            r"\bhabitats?\b|\bpatches\b",
            _NO.format(r"\bhalf\b|\bmost\b|\bmajority\b|\bzero\b"),
        ),
    ),
}
_COMPILED = {
    motif: [tuple(re.compile(pattern) for pattern in way) for way in ways]
    for motif, ways in _WAYS.items()
}
_END = re.compile(r"\n|[.!?](?=\s|$)")  # of a sentence; the point in 0.74 ends none


def _sentences(text: Any) -> list[str]:
    """The sentences of a text in lower case, with plain dashes and single blanks."""
    plain = unicodedata.normalize("NFKC", completion_text(text)[:LONGEST]).lower()
    plain = re.sub(r"[\u2010-\u2015\u2212]", "-", plain).replace("\u2019", "'")
    plain = re.sub("[\u21d2\u2192]|->", "=>", plain)
    found = (" ".join(part.split()) for part in _END.split(plain))
    return [sentence for sentence in found if sentence]


def tags(text: Any) -> frozenset[str]:
    """Which of `MOTIFS` a reasoning text shows, by rules on its words.

    A motif counts as shown where its rule is applied or considered, also when the outcome is no:
    "no corridor here" shows `corridor`. Any input is taken (a string or a list of messages;
    anything else is empty), the first 20,000 characters are read, and time is linear in them.

    >>> sorted(tags("Corn has the highest yield. No corridor here."))
    ['corridor', 'yield_max']
    """
    alone = _sentences(text)
    across = [" ".join(pair) for pair in pairwise(alone)]
    return frozenset(
        motif
        for motif, ways in _COMPILED.items()
        if any(
            all(pattern.search(passage) for pattern in way)
            for passage in (alone + across if motif in _ACROSS else alone)
            for way in ways
        )
    )


def read_labelled() -> pd.DataFrame:
    """The texts labelled by hand (`data/landuse/motifs.csv`): `id`, `origin`, `text`, `motifs`.

    `origin` is `nano` or `prose`; `motifs` is a frozenset of `MOTIFS`.
    """
    table = pd.read_csv(paths.DATA / "landuse" / "motifs.csv", keep_default_na=False)
    table["motifs"] = [frozenset(filter(None, cell.split("|"))) for cell in table["motifs"]]
    return table


def precision_recall(
    tagger: Callable[[Any], frozenset[str]] = tags, labelled: pd.DataFrame | None = None
) -> pd.DataFrame:
    """How far a tagger can be trusted on texts labelled by hand, by default `read_labelled()`.

    They were written and labelled without sight of the rules, which were mended once after they
    had been measured: `yield_max` had read single sentences only (precision 0.87, recall 0.71), so
    its figures flatter it a little now; those of the other motifs are as first measured.

    Returns:
        One row a motif: `precision` and `recall` with the ends of their 95 % intervals (NaN where
        nothing was tagged or labelled), `tagged`, `labelled`, and `n`, all texts.
    """
    labelled = read_labelled() if labelled is None else labelled
    found = [tagger(text) for text in labelled["text"]]
    rows = {}
    for motif in MOTIFS:
        said = np.array([motif in motifs for motifs in found])
        true = np.array([motif in motifs for motifs in labelled["motifs"]])
        rows[motif] = {"tagged": said.sum(), "labelled": true.sum(), "n": len(labelled)}
        for name, hits in (("precision", true[said]), ("recall", said[true])):
            figure = mean_interval(hits) if len(hits) else dict.fromkeys(("value", "low", "high"))
            ends = {f"{name}_low": figure["low"], f"{name}_high": figure["high"]}
            rows[motif] |= {name: figure["value"]} | ends
    return pd.DataFrame(rows).T.astype(float).astype({"tagged": int, "labelled": int, "n": int})
