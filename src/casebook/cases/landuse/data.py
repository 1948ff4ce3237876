"""Land-use rows: the prompt about a parcel, and the accepted answers.

A landscape and its plan become a *table*, one row per parcel, with everything that a prompt, a
grade or a baseline needs. The table of the generated landscapes is in `data/landuse/pool.parquet`
(`write_pool` makes it); a user's own landscape is treated in the same way.

Splits are by landscape, because the prompts of adjacent parcels share most of their content.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from casebook import paths
from casebook.case import PROFILES, SPLITS, check_name
from casebook.cases.landuse.fields import CONNECTIVITY, CROPS, YIELDS
from casebook.cases.landuse.rewards import VARIANTS

if TYPE_CHECKING:
    from datasets import Dataset

    from casebook.cases.landuse.landscape import Landscape
    from casebook.cases.landuse.oracle import Plan

POOL = paths.DATA / "landuse" / "pool.parquet"
# Seeds of the generated 30 x 30 landscapes; no two splits share a landscape.
SEEDS = {"train": range(30), "validation": range(100, 102), "test": range(200, 203)}
SIDE = 30
GAP = 2e-3  # of the plans; half of it would take ten times as long on some
ROWS = {"train": 2400, "validation": 256, "test": 1000}
ROWS_SEED = 4
TOLERANCES = {"answer_0": 0.0, "answer": 0.02, "answer_5": 0.05}
CLOCKWISE = (  # from north, 45 degrees each
    *("north", "north-east", "east", "south-east"),
    *("south", "south-west", "west", "north-west"),
)
NEAREST = 8  # first-order neighbours in a compact prompt


def table(landscape: "Landscape", plan: "Plan") -> pd.DataFrame:
    """One row per parcel of a planned landscape, existing habitat included.

    Returns:
        `landscape` (name), `parcel`, the four yields (t/ha), `ecological_connectivity`,
        `area_ha`, `habitat` (existing), `plan_label`; `answer_0`, `answer` and `answer_5`, the
        labels that count at tolerances of 0, 2 and 5 %, sorted and joined by `|`; `values`, what
        each of the five labels is worth there (km, in the order of `LABELS`); `prices`, what an
        average harvest of each crop is worth (1: the mean of the four); `objective` of the plan
        (km); `near` and `far`, the positions of first- and second-order neighbours, with their
        parcels in `near_parcels` and `far_parcels`.
    """
    from casebook.cases.landuse.oracle import accepted

    shown = [*YIELDS, CONNECTIVITY, "area_ha", "habitat"]
    made = pd.DataFrame(landscape.parcels[shown]).assign(plan_label=plan.labels)
    made.insert(0, "landscape", landscape.name)
    made.insert(1, "parcel", np.arange(len(landscape)))
    for name, tolerance in TOLERANCES.items():
        made[name] = ["|".join(sorted(labels)) for labels in accepted(plan, tolerance)]
    made["values"] = list(np.asarray(plan.values, float).round(5))
    made["prices"] = [_prices(landscape, plan)] * len(made)
    made["objective"] = plan.objective
    for name, found in zip(("near", "far"), _surroundings(landscape), strict=True):
        made[name] = [[position for position, _ in parcels] for parcels in found]
        made[f"{name}_parcels"] = [[parcel for _, parcel in parcels] for parcels in found]
    return made


def _prices(landscape: "Landscape", plan: "Plan") -> list[float]:
    """Each crop's shadow price times its mean yield where it grows, over the mean of the four."""
    yields = np.where(landscape.yields > 0, landscape.yields, np.nan)
    grown = [np.nanmean(column) if (column > 0).any() else 0.0 for column in yields.T]
    worth = np.array([plan.shadow_prices.get(crop, 0.0) for crop in CROPS]) * grown
    mean = worth.mean()
    return (worth / mean if mean > 0 else np.ones(4)).round(4).tolist()


def _surroundings(landscape: "Landscape") -> tuple[list, list]:
    """For each parcel, its first- and second-order neighbours: lists of (position, parcel)."""
    centres = landscape.parcels.geometry.centroid.get_coordinates().to_numpy()
    around = landscape.neighbours
    near, far = [], []
    for parcel, touching in enumerate(around):
        # A compact prompt shows the first eight: where more touch, those with the nearest centres.
        away = np.hypot(*(centres[list(touching)] - centres[parcel]).T)
        nearest = {touching[k] for k in np.argsort(away, kind="stable")[:NEAREST]}
        first = [(_direction(centres[parcel], centres[other]), other) for other in touching]
        first.sort(key=lambda found: (found[1] not in nearest, CLOCKWISE.index(found[0])))
        near.append(first)
        second = sorted({o for t in touching for o in around[t]} - {parcel, *touching})
        codes = []
        for other in second:
            through = min(touching, key=lambda t: np.hypot(*(centres[t] - centres[other])))
            codes.append(
                f"{_direction(centres[parcel], centres[through])}>"
                f"{_direction(centres[through], centres[other])}"
            )
        far.append(list(zip(codes, second, strict=True)))
    return near, far


def _direction(start: np.ndarray, end: np.ndarray) -> str:
    """The nearest of the eight compass directions from one centroid to another."""
    angle = math.atan2(end[1] - start[1], end[0] - start[0])  # counter-clockwise from east
    return CLOCKWISE[(2 - round(angle / (math.pi / 4))) % 8]


@lru_cache(maxsize=4)
def pool(split: str) -> pd.DataFrame:
    """The table of a split's generated landscapes, as `table` makes it, one below the other."""
    check_name("split", split, SPLITS)
    whole = pd.read_parquet(POOL, filters=[("split", "==", split)])
    return whole.drop(columns="split").reset_index(drop=True)


def write_pool() -> None:
    """Generate and plan the landscapes of all splits, and write their table (about 5 minutes)."""
    from casebook.cases.landuse.landscape import generate
    from casebook.cases.landuse.oracle import solve

    tables = []
    for split, seeds in SEEDS.items():
        for seed in seeds:
            landscape = generate(SIDE, SIDE, seed)
            plan = solve(landscape, gap=GAP, time_limit=120)
            tables.append(table(landscape, plan).assign(split=split))
            print(f"{split} {seed}: gap {plan.gap:.2%}, {plan.seconds:.1f} s", flush=True)
    pd.concat(tables, ignore_index=True).to_parquet(POOL, compression="zstd", index=False)


def load(split: str, profile: str = "nano", seed: int = 0, variant: str | None = None) -> "Dataset":
    """The rows of a split: `prompt`, `answer`, and the columns of `rows`.

    Args:
        split: `train` (2,400 parcels), `validation` (256) or `test` (1,000).
        profile: decides the form of the prompt: digits (`smoke`, `nano`), the write-up's list of
            records as text (`smol`), or as messages (`t4`, with first-order neighbours, `a100`).
        seed: which parcels of the split, and in which order.
        variant: see `rows`.
    """
    parcels = pool(split)
    rng = np.random.default_rng([ROWS_SEED, seed, SPLITS.index(split)])
    decidable = np.flatnonzero(~parcels["habitat"].to_numpy())
    chosen = rng.choice(decidable, ROWS[split], replace=False)
    return rows(parcels, profile, variant, chosen)


def block(row: Mapping[str, Any]) -> tuple[str, int, int]:
    """The landscape and the block of 6 x 6 parcels in which a row lies: they share soil, weather
    and habitat, so blocks are what an interval resamples."""
    row_of, column = divmod(row["parcel"], SIDE)
    return row["landscape"], row_of // 6, column // 6


def rows(
    parcels: pd.DataFrame,
    profile: str = "nano",
    variant: str | None = None,
    chosen: Sequence[int] | None = None,
) -> "Dataset":
    """The rows of a table: one for each decidable parcel, or for the `chosen` rows of the table.

    Args:
        parcels: from `table` or `pool`.
        profile: decides the form of the prompt, as in `load`.
        variant: what the prompt says. `reason` (the default) shows the parcel and its neighbours;
            `prices` also what a harvest of each crop is worth at the shadow prices; `alone` the
            parcel without its neighbours; `shuffled` with its neighbours in each other's places;
            `rotated` with the map turned by a quarter; `label` asks for the label alone; `source`
            is the write-up's own prompt as text, with the markers of DeepSeek's chat format.
        chosen: positions in `parcels`.

    Returns:
        `prompt`, `answer` (labels that count at 2 %), `answer_0`, `answer_5`, `plan_label`,
        `landscape`, `parcel`, `values`, `objective`.
    """
    from datasets import Dataset

    make_prompt = prompt_maker(profile, variant)
    if chosen is None:
        chosen = np.flatnonzero(~parcels["habitat"].to_numpy())
    surveys = surveys_of(parcels)
    kept = ("answer", "answer_0", "answer_5", "plan_label", "landscape", "parcel", "objective")
    columns = {name: parcels[name].iloc[chosen].tolist() for name in kept}
    columns["values"] = [list(map(float, v)) for v in parcels["values"].iloc[chosen]]
    prompts = [make_prompt(surveys, int(i)) for i in chosen]
    return Dataset.from_dict({"prompt": prompts} | columns)


class Surveys:
    """A table made ready for prompts: plain lists, and each crop's deciles in its landscape."""

    def __init__(self, parcels: pd.DataFrame):
        self.yields = parcels[list(YIELDS)].to_numpy(float)
        self.connectivity = parcels[CONNECTIVITY].to_numpy(float)
        self.habitat = parcels["habitat"].to_numpy(bool)
        self.plan_label = parcels["plan_label"].tolist()
        self.prices = parcels["prices"].tolist()
        self.parcel = parcels["parcel"].to_numpy(int)
        self.deciles = np.zeros(self.yields.shape, int)
        names = parcels["landscape"].to_numpy()
        start = np.zeros(len(names), int)
        for name in dict.fromkeys(names):
            members = np.flatnonzero(names == name)
            start[members] = members[0]
            self.deciles[members] = _deciles(self.yields[members])
        self.near, self.far = (
            [
                [(position, int(start[i] + other)) for position, other in zip(*found, strict=True)]
                for i, found in enumerate(
                    zip(parcels[kind], parcels[f"{kind}_parcels"], strict=True)
                )
            ]
            for kind in ("near", "far")
        )


_SURVEYS: deque[tuple[pd.DataFrame, Surveys]] = deque(maxlen=4)  # of the tables used last


def surveys_of(parcels: pd.DataFrame) -> Surveys:
    """The `Surveys` of a table; made once for as long as it is among the last few asked for."""
    found = next((surveys for table, surveys in _SURVEYS if table is parcels), None)
    if found is None:
        found = Surveys(parcels)
        _SURVEYS.append((parcels, found))
    return found


def _deciles(yields: np.ndarray) -> np.ndarray:
    """For each crop, in which tenth of its yields a parcel lies, 0 to 9; -1: it does not grow."""
    found = np.full(yields.shape, -1)
    for crop, column in enumerate(yields.T):
        grown = column > 0
        if grown.any():
            edges = np.quantile(column[grown], np.arange(1, 10) / 10)
            found[grown, crop] = np.searchsorted(edges, column[grown], side="right")
    return found


def surroundings(
    surveys: Surveys, i: int, order: int = 2, variant: str | None = None
) -> list[tuple[str, int]]:
    """The (position, row) pairs that a prompt shows besides the parcel, clockwise from north.

    At `order` 1 at most eight. The variants are those of `rows`; a shuffle is the parcel's own,
    the same at every call.
    """
    if variant == "alone":
        return []
    near = surveys.near[i][:NEAREST] if order == 1 else surveys.near[i]
    found = near + (surveys.far[i] if order == 2 else [])
    if variant == "shuffled":
        rng = np.random.default_rng([ROWS_SEED, int(surveys.parcel[i])])
        others = [found[j][1] for j in rng.permutation(len(found))]
        return [(position, other) for (position, _), other in zip(found, others, strict=True)]
    if variant == "rotated":
        turned = [(_turned(position), other) for position, other in found]
        return sorted(turned, key=lambda pair: _order(pair[0]))
    return found


def _turned(position: str) -> str:
    """The position after a quarter turn to the right: north becomes east."""
    return ">".join(CLOCKWISE[(CLOCKWISE.index(part) + 2) % 8] for part in position.split(">"))


def _order(position: str) -> tuple[int, ...]:
    parts = position.split(">")
    return (len(parts), *map(CLOCKWISE.index, parts))


def records(
    parcels: "pd.DataFrame | Surveys", i: int, order: int = 2, variant: str | None = None
) -> list[dict[str, Any]]:
    """What the write-up's prompt lists: one dict for parcel `i` of a table, and one a neighbour.

    The parcel comes first, as `central`. At `order` 1 follow the neighbours that touch it (eight at
    most), at 2 their neighbours as well; for `variant` see `rows`. A second-order neighbour is
    named by the direction to the nearest first-order one, `>`, and the direction from there; the
    source's code joins both by the hyphen that also stands inside `north-east`, which cannot be
    read back.
    """
    surveys = parcels if isinstance(parcels, Surveys) else surveys_of(parcels)
    return [
        {"position": position}
        | {name: float(y) for name, y in zip(YIELDS, surveys.yields[row], strict=True)}
        | {CONNECTIVITY: float(surveys.connectivity[row])}
        for position, row in [("central", i), *surroundings(surveys, i, order, variant)]
    ]


def prompt_maker(profile: str, variant: str | None = None):
    """The function (surveys, row) -> prompt that belongs to a profile and variant (see `rows`)."""
    check_name("profile", profile, PROFILES)
    variant = variant or "reason"
    check_name("variant", variant, VARIANTS)
    if PROFILES[profile].embedded:
        return lambda surveys, i: nano_prompt(surveys, i, variant)
    order = 2 if profile.startswith("a100") else 1

    def text(surveys: Surveys, i: int) -> str:
        prices = surveys.prices[i] if variant == "prices" else None
        return source_prompt(records(surveys, i, order, variant), prices, variant != "label")

    if variant == "source":
        return lambda surveys, i: f"<｜User｜>{text(surveys, i)}<｜Assistant｜>"
    if PROFILES[profile].chat:
        return lambda surveys, i: [{"role": "user", "content": text(surveys, i)}]
    return text


def nano_prompt(surveys: Surveys, i: int, variant: str = "reason") -> str:
    """The embedded model's prompt: a line per record, a token per decile, at most 70 tokens.

    After the position come the yields of wheat, oat, corn and soy, each as the tenth of that
    crop's yields in this landscape (0 to 9, `-` where it does not grow), then the connectivity in
    tenths. A neighbour that is habitat already is the word and its connectivity.
    """
    lines = []
    if variant == "prices":
        lines.append("prices " + " ".join(str(tenth(p / 2)) for p in surveys.prices[i]))
    shown = [("parcel", i), *surroundings(surveys, i, 1, variant)]
    lines += [f"{position.replace('-', '')} {_digits(surveys, row)}" for position, row in shown]
    return "\n".join(lines) + ("\nlabel:" if variant == "label" else "\n")


def _digits(surveys: Surveys, row: int) -> str:
    links = tenth(surveys.connectivity[row])
    if surveys.habitat[row]:
        return f"habitat {links}"
    return " ".join("-" if d < 0 else str(d) for d in surveys.deciles[row]) + f" {links}"


def tenth(share: float) -> int:
    """Which tenth of 0 to 1 a share falls into, 0 to 9."""
    return int(min(max(share * 10, 0), 9))


def source_prompt(
    shown: Sequence[Mapping[str, Any]], prices: Sequence[float] | None = None, think: bool = True
) -> str:
    """The write-up's prompt (preamble, format rules, task, list of records) in our words.

    `shown` comes from `records`; `prices`, what an average harvest of each crop is worth, if that
    is to be told; without `think` the label alone is asked for.
    """
    paragraphs = [
        "You are an expert in spatial optimisation and land-use planning.",
        "Decide the land use of one parcel, the one at position `central`. Its neighbours are "
        "listed with their direction from it; `north>east` is the parcel east of the northern "
        "neighbour. Yields are in tonnes a hectare; `ecological_connectivity`, from 0 to 1, says "
        "how much the parcel matters for the movement of species. A parcel on which nothing "
        "yields is habitat already.",
        "All parcels of the landscape together should keep up the supply of every crop, and "
        "habitat should connect as well as it can across the whole landscape.",
        "The possible answers are: wheat, oat, habitat, corn, soy.",
    ]
    if prices is not None:
        told = ", ".join(f"{crop} {price:.2f}" for crop, price in zip(CROPS, prices, strict=True))
        paragraphs.append(
            f"What an average harvest is worth, 1 being the mean of the crops: {told}."
        )
    paragraphs.append("\n".join(str(dict(record)) for record in shown))
    if think:
        paragraphs.append(
            "Think step by step inside <think> and </think>, then give the answer alone, one "
            "word, inside <answer> and </answer>. Write nothing else."
        )
    else:
        paragraphs.append("Answer with the land use alone, one word.")
    return "\n\n".join(paragraphs)


def features(
    parcels: pd.DataFrame, prices: bool = False, deciles: bool = False, variant: str | None = None
) -> pd.DataFrame:
    """The features of a tree: one row for each decidable parcel of a table, in its order.

    The eight neighbours are by direction, NaN where there is none; `variant` may have them
    `shuffled` or `rotated`. With `prices` the crops' shadow prices are told, too, as in the prompt,
    and with `deciles` yields as in the compact prompt instead of t/ha.
    """
    surveys = surveys_of(parcels)
    yields = np.where(surveys.deciles < 0, np.nan, surveys.deciles) if deciles else surveys.yields
    links = np.floor(surveys.connectivity * 10) if deciles else surveys.connectivity
    fields = [*YIELDS, CONNECTIVITY]
    numbers = np.column_stack([yields, links])
    none = np.full(len(fields), np.nan)
    made = []
    for i in np.flatnonzero(~surveys.habitat):
        row = dict(zip(fields, numbers[i], strict=True))
        if prices:
            row |= {f"{c}_price": p for c, p in zip(CROPS, surveys.prices[i], strict=True)}
        shown = surroundings(surveys, i, 1, variant)
        first = dict(reversed(shown))
        for position in CLOCKWISE:
            there = numbers[first[position]] if position in first else none
            row |= zip((f"{position} {name}" for name in fields), there, strict=True)
        row["habitat neighbours"] = sum(surveys.habitat[o] for _, o in shown)
        made.append(row)
    return pd.DataFrame(made)
