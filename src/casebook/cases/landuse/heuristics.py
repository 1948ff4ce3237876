"""The source's seven heuristics and its reasoning flow, as rules that can be run.

The write-up reads its model's reasoning, lists seven recurring motifs with rough frequencies and
sketches a flow of seven steps. Neither was ever run as a rule, so nobody knows what a planner who
followed them would lose. Here each motif decides a parcel from what a prompt shows, and a tagger
finds the motifs in a reasoning text, with its precision and recall measured on texts that were
labelled by hand.

A parcel is a list of records, the centre first, as `data.records` makes them. Where the table
leaves a number or a word open, the reading chosen here is a parameter or is named in the docstring.
A heuristic whose condition does not hold still has to decide: it falls back to the first of the
seven, the crop with the most tonnes per hectare.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from types import MappingProxyType
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import CasebookError
from casebook.cases.landuse.fields import CONNECTIVITY, CROPS, HABITAT
from casebook.rewards import completion_text
from casebook.stats import mean_interval

Records = Sequence[Mapping[str, Any]]

COMPARABLE = 0.10  # two yields this close, as a share of the higher, are "comparable"
SHARP = 0.25  # a jump this far from the neighbours' mean is a "sharp discontinuity"
BELT = 0.5  # share of the neighbours that make a zero-yield belt (the source's)
HIGH = 0.65  # "high connectivity": the lower end of the source's 0.65 to 0.70
FIRM = 0.70  # the upper end
ALPHA, BETA = 1.0, 0.5  # the source's weights of yield and connectivity
OPPOSITE = {
    "north": "south",
    "northeast": "southwest",
    "east": "west",
    "southeast": "northwest",
}
OPPOSITE |= {there: here for here, there in OPPOSITE.items()}


@dataclass(frozen=True)
class Heuristic:
    """One of the source's seven motifs as a rule.

    Attributes:
        name: how tables call it.
        said: what it claims, in one sentence.
        frequency: the share of completions in which the source saw it (approximate, no sample
            size given).
        decide: `decide(records)` -> label.
        fires: `fires(records)` -> whether the motif's own condition holds.
    """

    name: str
    said: str
    frequency: float
    decide: Callable[[Records], str]
    fires: Callable[[Records], bool]


@dataclass(frozen=True)
class Flow:
    """A decision by the reasoning flow: the label and what each step found, in order."""

    label: str
    steps: tuple[str, ...]


def yields_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The crops that yield anything in one record -> t/ha, in the order of `CROPS`."""
    found = {crop: float(record.get(f"{crop}_yield") or 0) for crop in CROPS}
    return {crop: tonnes for crop, tonnes in found.items() if tonnes > 0}


def centre(records: Records) -> Mapping[str, Any]:
    """The record of the parcel to be decided.

    Raises:
        CasebookError: there is no record, or the first is not the centre.
    """
    if not records or records[0].get("position", "central") != "central":
        raise CasebookError("the first record must be the central parcel")
    return records[0]


def first_order(records: Records) -> list[Mapping[str, Any]]:
    """The records of the parcels that touch the centre."""
    return [record for record in records[1:] if ">" not in record["position"]]


def _direction(record: Mapping[str, Any]) -> str:
    return record["position"].replace("-", "")


def highest_yield(records: Records) -> str:
    """The crop with the most tonnes per hectare; habitat where nothing grows.

    >>> highest_yield([{"position": "central", "wheat_yield": 3.1, "oat_yield": 3.3}])
    'oat'
    """
    grown = yields_of(centre(records))
    return max(grown, key=grown.__getitem__) if grown else HABITAT


def highest_relative_yield(records: Records, means: Mapping[str, float]) -> str:
    """The crop whose yield is highest relative to its mean over the landscape.

    `means`: crop -> t/ha over the parcels where it grows.

    >>> parcel = [{"position": "central", "wheat_yield": 4.0, "corn_yield": 8.0}]
    >>> highest_relative_yield(parcel, {"wheat": 3.4, "corn": 8.5})
    'wheat'
    """
    grown = yields_of(centre(records))
    return max(grown, key=lambda crop: grown[crop] / means[crop]) if grown else HABITAT


# --- the seven ---


def comparable_crops(records: Records, within: float = COMPARABLE) -> list[str]:
    """The crops whose yield lies within a share `within` of the highest, the highest first.

    Tonnes decide, as in the source: corn weighs more than twice any other grain, so where corn
    grows well nothing is comparable to it.
    """
    grown = yields_of(centre(records))
    best = max(grown.values(), default=0.0)
    close = [crop for crop in grown if grown[crop] >= (1 - within) * best]
    return sorted(close, key=lambda crop: -grown[crop])


def tie_breaker(records: Records, within: float = COMPARABLE) -> str:
    """Of crops with comparable yields, the one whose neighbours are best connected.

    A crop's neighbours are those where it yields the most of the crops compared; the crop is
    chosen only if their mean connectivity is not below the centre's.
    """
    close = comparable_crops(records, within)
    if len(close) < 2:
        return highest_yield(records)
    links: dict[str, list[float]] = {crop: [] for crop in close}
    for record in first_order(records):
        grown = {crop: t for crop, t in yields_of(record).items() if crop in links}
        if grown:
            links[max(grown, key=grown.__getitem__)].append(float(record[CONNECTIVITY]))
    means = {crop: sum(values) / len(values) for crop, values in links.items() if values}
    kept = {c: mean for c, mean in means.items() if mean >= float(records[0][CONNECTIVITY])}
    return max(kept, key=kept.__getitem__) if kept else close[0]


def zero_belt(records: Records, share: float = BELT, literal: bool = False) -> bool:
    """Whether at least `share` of the touching parcels yield nothing.

    The source also asks that the centre itself yields nothing (`literal`). Such a parcel is
    habitat already and is never up for decision, so the literal rule can never fire; the rule
    that `HEURISTICS` holds leaves that half out.
    """
    if literal and yields_of(centre(records)):
        return False
    near = first_order(records)
    return bool(near) and sum(not yields_of(record) for record in near) >= share * len(near)


def coherent_crops(records: Records, sharp: float = SHARP) -> list[str]:
    """The centre's crops whose yield lies within a share `sharp` of the neighbours' mean.

    The mean is over the touching parcels where anything grows: habitat has no crop to rotate.
    """
    near = [grown for grown in map(yields_of, first_order(records)) if grown]
    coherent = []
    for crop, tonnes in yields_of(centre(records)).items():
        mean = sum(grown.get(crop, 0.0) for grown in near) / max(len(near), 1)
        if abs(tonnes - mean) <= sharp * mean:
            coherent.append(crop)
    return coherent


def neighbour_mean(records: Records, sharp: float = SHARP) -> str:
    """The highest yield among the crops that make no sharp jump to the neighbours' mean."""
    grown = yields_of(centre(records))
    coherent = coherent_crops(records, sharp)
    return max(coherent, key=grown.__getitem__) if coherent else highest_yield(records)


def score(records: Records, alpha: float = ALPHA, beta: float = BETA) -> str:
    """The label with the highest `alpha * yield + beta * connectivity`, as published.

    Every crop gets the same connectivity, that of the parcel, and habitat yields nothing: with
    `alpha > 0` the second term moves no decision, and habitat can never win over a crop.
    """
    grown = yields_of(centre(records))
    linked = beta * float(records[0][CONNECTIVITY])
    scores = {crop: alpha * tonnes + linked for crop, tonnes in grown.items()}
    scores[HABITAT] = linked
    return max(scores, key=scores.__getitem__)


def corridor(records: Records, high: float = HIGH) -> bool:
    """Whether a touching parcel is habitat and one on the opposite side has connectivity of at
    least `high`."""
    centre(records)
    near = first_order(records)
    habitat = {_direction(record) for record in near if not yields_of(record)}
    linked = {_direction(record) for record in near if float(record[CONNECTIVITY]) >= high}
    return any(OPPOSITE.get(side) in linked for side in habitat)


def _habitat_if(holds: Callable[[Records], bool]) -> Callable[[Records], str]:
    return lambda records: HABITAT if holds(records) else highest_yield(records)


def _grows(records: Records) -> bool:
    return bool(yields_of(centre(records)))


def _jumps(records: Records) -> bool:
    return 0 < len(coherent_crops(records)) < len(yields_of(centre(records)))


_SEVEN = (
    Heuristic(
        "yield_max",
        "Plant the crop with the most tonnes per hectare on this parcel.",
        0.85,
        highest_yield,
        _grows,
    ),
    Heuristic(
        "tie_breaker",
        "Where two crops yield about the same, plant the one whose neighbours are well connected.",
        0.60,
        tie_breaker,
        lambda records: len(comparable_crops(records)) > 1,
    ),
    Heuristic(
        "zero_belt",
        "Where at least half of the touching parcels yield nothing, make this one habitat.",
        0.25,
        _habitat_if(zero_belt),
        zero_belt,
    ),
    Heuristic(
        "neighbour_mean",
        "Drop crops whose yield jumps sharply from the neighbours' mean.",
        0.20,
        neighbour_mean,
        _jumps,
    ),
    Heuristic(
        "global_baseline",
        "Supply comes first: keep the high-yield crop where habitat suggests itself.",
        0.15,
        highest_yield,
        lambda records: zero_belt(records) or corridor(records),
    ),
    Heuristic(
        "score",
        "Plant what has the highest yield plus half the connectivity.",
        0.10,
        score,
        _grows,
    ),
    Heuristic(
        "corridor",
        "Where one side is habitat and the opposite side well connected, bridge the gap.",
        0.08,
        _habitat_if(corridor),
        corridor,
    ),
)
HEURISTICS: Mapping[str, Heuristic] = MappingProxyType({each.name: each for each in _SEVEN})


def flow(records: Records, high: float = HIGH, firm: float = FIRM, share: float = BELT) -> Flow:
    """The source's seven-step reasoning flow as one rule.

    The text leaves open what the fourth step's threshold does. The reading here: a parcel whose
    connectivity is at least `firm` becomes habitat, between `high` and `firm` comparable crops are
    decided by their links, below `high` the crop stands. The fifth step applies the zero-yield
    belt and the corridor.
    """
    here = centre(records)
    grown = yields_of(here)
    linked = float(here[CONNECTIVITY])
    label = score(records)
    steps = [
        f"read {len(first_order(records))} neighbours, connectivity {linked:.2f}",
        f"grows: {', '.join(grown) or 'nothing'}",
        f"highest yield: {label}",
    ]
    if grown and linked >= firm:
        label = HABITAT
        steps.append(f"connectivity at least {firm:.2f}: habitat")
    elif grown and linked >= high:
        label = tie_breaker(records)
        steps.append(f"connectivity at least {high:.2f}, links compared: {label}")
    else:
        steps.append(f"connectivity below {high:.2f}: {label} stands")
    belt, bridge = zero_belt(records, share), corridor(records, high)
    if belt or bridge:
        label = HABITAT
    steps.append(f"{'zero-yield belt' if belt else 'corridor' if bridge else 'no special case'}")
    steps.append(f"{label}, by the steps above")
    steps.append(f"answer: {label}")
    return Flow(label, tuple(steps))


# --- motifs in a reasoning text ---

MOTIFS = tuple(HEURISTICS)
LONGEST = 20_000  # characters that are read: more than the source's 4,096 tokens

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


# --- the order of a reasoning text ---

_CLOSED = re.compile(r"</think>\s*<answer>")
_STEPS: Mapping[str, tuple[str, ...]] = {
    "parse": (rf"{_CROP}.{{0,20}}\d", rf"{_CROP}.{{0,60}}{_CROP}|\bcentral\b|{_NEAR}"),
    "prune": (
        r"\bzero\b|\b0(?:\.0+)?\b|\b(?:cannot|does not|do not) grow"
        r"|\b(?:ignore|discard|drop|exclude)",
    ),
    "highest yield": (r"\b(?:highest|best|top|most|max\w*|leads?|wins?)\b", rf"{_CROP}|{_YIELD}"),
    "connectivity": (r"\bconnectivity\b|\blinks?\b|\bconnected\b",),
    "edge case": (
        r"\bcorridor|\bbelt\b|\bbridg|\brotation|\bdiscontinu|\bgap\b|\bhalf (?:of )?the neigh",
    ),
    "explain": (
        r"\bbecause\b|\btherefore\b|\bso\b|\bhence\b|\bthus\b|\bsince\b|=>|\bfinal\w*\b|\bdeci\w+|\bchoose\b",
        rf"{_CROP}|\bhabitat\b|\bit\b",
    ),
}
_STEP_PATTERNS = {step: [re.compile(part) for part in parts] for step, parts in _STEPS.items()}


def conformance(text: Any) -> dict[str, bool]:
    """Which steps of the source's reasoning flow a completion takes, in the flow's order.

    A step counts if a sentence shows it and it belongs to the longest chain of steps whose
    sentences do not go backwards; `close` is `</think>` followed by `<answer>`. Like `tags`, it
    takes any input and reads 20,000 characters.

    >>> conformance("Wheat 3.1, oat 2.9, corn 0: drop corn. Wheat is highest.")["prune"]
    True
    """
    whole = completion_text(text)[:LONGEST]
    sentences = _sentences(whole)
    at = {
        step: [i for i, s in enumerate(sentences) if all(part.search(s) for part in parts)]
        for step, parts in _STEP_PATTERNS.items()
    }
    shown = [step for step in at if at[step]]
    chain = next(
        (c for n in range(len(shown), 0, -1) for c in combinations(shown, n) if _in_order(c, at)),
        (),
    )
    return {step: step in chain for step in at} | {"close": bool(_CLOSED.search(whole))}


def _in_order(chain: Sequence[str], at: Mapping[str, Sequence[int]]) -> bool:
    """Whether sentences can be picked for the steps of a chain that do not go backwards."""
    reached = 0
    for step in chain:
        later = [i for i in at[step] if i >= reached]
        if not later:
            return False
        reached = later[0]
    return True


# --- how good the tagger is ---


def read_labelled() -> pd.DataFrame:
    """The texts labelled by hand (`data/landuse/motifs.csv`): `id`, `origin`, `text`, `motifs`.

    `origin` is `nano` or `prose`; `motifs` is a frozenset of `MOTIFS`.

    Raises:
        CasebookError: the file is missing, or labels a motif that does not exist.
    """
    path = paths.DATA / "landuse" / "motifs.csv"
    if not path.exists():
        raise CasebookError(f"the hand-labelled texts are missing: {path}")
    table = pd.read_csv(path, keep_default_na=False)
    table["motifs"] = [frozenset(filter(None, cell.split("|"))) for cell in table["motifs"]]
    unknown = frozenset().union(*table["motifs"]) - set(MOTIFS)
    if unknown:
        raise CasebookError(f"{path} labels unknown motifs: {', '.join(sorted(unknown))}")
    return table


def precision_recall(
    tagger: Callable[[Any], frozenset[str]] = tags, labelled: pd.DataFrame | None = None
) -> pd.DataFrame:
    """How far a tagger can be trusted, motif by motif, on texts labelled by hand.

    `labelled` is a table like `read_labelled()`, which is the default. Those texts were written
    and labelled without sight of the rules. The rules were measured on them once and mended once:
    `yield_max` had read single sentences only (precision 0.87, recall 0.71 at that time), so its
    figures flatter it a little now; those of the other motifs are as first measured.

    Returns:
        One row a motif: `precision` and `recall` with the ends of their 95 % intervals (Wilson
        1927; NaN where nothing was tagged or nothing labelled), `tagged` and `labelled`, the
        texts each is a share of, and `n`, all texts.
    """
    labelled = read_labelled() if labelled is None else labelled
    found = [tagger(text) for text in labelled["text"]]
    rows = {}
    for motif in MOTIFS:
        said = [motif in motifs for motifs in found]
        true = [motif in motifs for motifs in labelled["motifs"]]
        of_tagged = [t for t, s in zip(true, said, strict=True) if s]
        of_labelled = [s for t, s in zip(true, said, strict=True) if t]
        rows[motif] = {
            **_share("precision", of_tagged),
            **_share("recall", of_labelled),
            "tagged": len(of_tagged),
            "labelled": len(of_labelled),
            "n": len(labelled),
        }
    return pd.DataFrame(rows).T.astype({"tagged": int, "labelled": int, "n": int})


def _share(name: str, hits: list[bool]) -> dict[str, float]:
    figure = mean_interval(hits) if hits else {}
    value, low, high = (figure.get(part, float("nan")) for part in ("value", "low", "high"))
    return {name: value, f"{name}_low": low, f"{name}_high": high}
