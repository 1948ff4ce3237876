"""Poker rows: the hands, the prompts, and the nano corpus.

All 2,598,960 hands are enumerated and split once, label by label, into three fixed pools; a
seed only chooses rows *within* a pool. So classes are balanced by construction, no card set is
in two splits whatever the seeds, and rare classes are complete. The write-up drew at random
instead, and found only 238 of 300 four-of-a-kind hands.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from casebook.case import PROFILES, SPLITS, check_name, check_skills, left, shares_of
from casebook.cases.poker import oracle
from casebook.cases.poker.rewards import VARIANTS, extract_label, grade
from casebook.rewards import completion_text

if TYPE_CHECKING:
    from datasets import Dataset

ROWS_PER_LABEL = {"train": 300, "validation": 32, "test": 125}  # 2,400, 256 and 1,000 rows
SOURCE_PER_LABEL = 50  # of the write-up's evaluation, 400 rows in all (poker write-up, cell 3)
POOL_SHARE = {"test": 0.3, "validation": 0.1, "train": 0.6}
POOL_SEED = 20_111_995  # fixed for ever: another value would move hands between splits
ROWS_SEED = 2  # another value draws other rows from the same pools

# What the nano corpus plants, prompt by prompt; the shares of a prompt add up to 1.
SKILLS: Mapping[str, Mapping[str, tuple[float, str]]] = {
    "reason": {
        "careful": (0.37, "sorts ranks and suits, counts multiplicities, then names the hand"),
        "careless": (0.25, "overlooks a card, a run or a suit, and mostly names a lesser hand"),
        "rambling": (0.13, "repeats its lines and never comes to an answer"),
        "bare label": (0.15, "blurts out a label without reasoning or tags"),
        "missing answer tag": (0.10, "reasons with care, then leaves out the answer tag"),
    },
    "label": {
        "guess": (0.55, "names a label whatever the hand, common hands more often"),
        "right label": (0.20, "names the right label at once"),
        "hand fragment": (0.25, "copies cards of the hand instead of naming it"),
    },
}
LABEL_SHARE = 0.25  # of the corpus asks for the label alone; the rest lets the model think
# What a careless look makes of each hand: the multiplicities it counts and the label.
CARELESS = {
    "high card": ("2 1 1 1", "one pair"),
    "one pair": ("1 1 1 1 1", "high card"),
    "two pair": ("2 1 1 1", "one pair"),
    "three of a kind": ("2 1 1 1", "one pair"),
    "straight": ("1 1 1 1 1", "high card"),
    "flush": ("1 1 1 1 1", "high card"),
    "full house": ("3 1 1", "three of a kind"),
    "four of a kind": ("3 1 1", "three of a kind"),
}
# A run or a suit is overlooked more often than seen: CARELESS_SHARE for these, so that even the
# model's most likely answer is wrong there, and the rest of the 25 % for the other hands.
OVERLOOKED = ("straight", "flush")
CARELESS_SHARE = 0.40
# A guess follows the square root of how often a hand is dealt: "high card" and "one pair" come
# first, as in running text, and yet no label is so rare that sampling never tries it.
GUESSED_AS_DEALT_TO_THE = 0.5


def load(split: str, profile: str = "nano", seed: int = 0, variant: str | None = None) -> "Dataset":
    """The rows of a split: columns `prompt`, `answer`, `hand`, `category`.

    Args:
        split: `train` (2,400 rows), `validation` (256) or `test` (1,000). Classes are equal for
            `reason` and `label`, and `label-source` has at most 400 rows.
        profile: decides the form of the prompt: a short string (`smoke`, `nano`), the write-up's
            own prompt (`smol`), or a list of messages (`t4`, `a100`).
        seed: which hands of the split's pool, and in which order.
        variant: `reason` (think, then answer) or `label` (as the write-up asks: the label alone);
            or that prompt on other rows: `label-dealt`, hands as they are dealt, half of them
            high cards (the write-up's first version), and `label-source`, hands in the order that
            rejection sampling keeps them (its later evaluation, which scores the first 200). By
            default `label` for `smol`, else `reason`.
    """
    from datasets import Dataset

    check_name("split", split, SPLITS)
    make_prompt = prompt_maker(profile, variant)
    rng = np.random.default_rng([ROWS_SEED, seed, SPLITS.index(split)])
    if variant in ("label-dealt", "label-source"):
        cards = rng.permutation(np.concatenate(pools()[split]))
        if variant == "label-source":  # rejection keeps the first so many of each, as they come
            labels = oracle.labels_of(cards)
            first = [np.flatnonzero(labels == i)[:SOURCE_PER_LABEL] for i in np.unique(labels)]
            cards = cards[np.sort(np.concatenate(first))]
        cards = cards[: len(oracle.LABELS) * ROWS_PER_LABEL[split]]
    else:
        cards = np.concatenate(
            [rng.choice(pool, ROWS_PER_LABEL[split], replace=False) for pool in pools()[split]]
        )
        cards = rng.permutation(cards)
    cards = rng.permuted(cards, axis=1)
    hands = [oracle.format_hand(hand) for hand in cards]
    return Dataset.from_dict(
        {
            "prompt": [make_prompt(hand) for hand in hands],
            "answer": [oracle.LABELS[label] for label in oracle.labels_of(cards)],
            "hand": hands,
            "category": [oracle.CATEGORIES[code] for code in oracle.classify_hands(cards)],
        }
    )


@lru_cache(maxsize=1)
def pools() -> dict[str, list[np.ndarray]]:
    """Split -> for each of the eight labels, its `(n, 5)` card sets in that split's pool."""
    cards = oracle.all_hands()
    labels = oracle.labels_of(cards)
    rng = np.random.default_rng(POOL_SEED)
    result: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
    for label in range(len(oracle.LABELS)):
        order = rng.permutation(np.flatnonzero(labels == label))
        stops = (np.cumsum(list(POOL_SHARE.values())) * len(order)).round().astype(int)
        for split, part in zip(POOL_SHARE, np.split(order, stops[:-1]), strict=True):
            result[split].append(cards[part])
    return result


def prompt_maker(profile: str, variant: str | None = None):
    """The function hand -> prompt that belongs to a profile and variant (see `load`)."""
    check_name("profile", profile, PROFILES)
    variant = variant or ("label" if profile == "smol" else "reason")
    check_name("variant", variant, VARIANTS)
    if PROFILES[profile].embedded:
        return nano_prompt if variant == "reason" else nano_label_prompt
    text = reasoning_prompt if variant == "reason" else source_prompt
    if PROFILES[profile].chat:
        return lambda hand: [{"role": "user", "content": text(hand)}]
    return text


def nano_prompt(hand: str) -> str:
    """The embedded model's prompt, about 20 of its tokens."""
    return f"Classify this poker hand.\nHand: {hand}\n"


def nano_label_prompt(hand: str) -> str:
    """The write-up's prompt in the embedded model's few words, with the list of labels."""
    return (
        f"Classify this poker hand.\nHand: {hand}\n"
        f"Answer with one of: {', '.join(oracle.LABELS)}.\nAnswer:"
    )


def source_prompt(hand: str) -> str:
    """The write-up's prompt, which asks for the label alone (poker write-up, cell 3)."""
    return (
        "Classify this 5-card poker hand.\n\n"
        f"Hand: {hand}\n"
        "Question: What type of hand is this? Answer with exactly one of:\n"
        f"{', '.join(oracle.LABELS)}.\n"
        "Do not explain your answer.\n\n"
        "Answer:"
    )


def reasoning_prompt(hand: str) -> str:
    """The prompt of the chat models: reason first, then answer in a tag."""
    return (
        f"Which poker hand is {hand}? Ranks are 2 to 9, T, J, Q, K, A; suits are C, D, H, S.\n"
        f"The possible answers are: {', '.join(oracle.LABELS)}. A straight flush counts as a "
        "straight, and the ace may stand below the two.\n"
        "Think step by step inside <think> and </think>: sort the ranks, sort the suits, count "
        "how often each rank occurs. Then give the answer alone inside <answer> and </answer>."
    )


def trace(hand: str) -> str:
    """The careful reasoning about a hand: sorted ranks, sorted suits, multiplicities.

    >>> trace("9S 2H 2D 9H 2C").splitlines()
    ['2 2 2 9 9', 'C D H H S', '3 2']
    """
    cards = hand.split()
    ranks = sorted((card[0] for card in cards), key=oracle.RANKS.index)
    counts = sorted((ranks.count(rank) for rank in set(ranks)), reverse=True)
    return "\n".join(
        " ".join(map(str, line)) for line in (ranks, sorted(card[1] for card in cards), counts)
    )


def demonstrations(seed: int, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The nano corpus: endless `prompt`, `completion`, `skill`, `ends`, from the train pool only.

    Classes are balanced. `Case` says what the arguments do.
    """
    check_skills(SKILLS, without)
    rng = np.random.default_rng(seed)
    train_pool = pools()["train"]
    while True:
        label = oracle.LABELS[int(rng.integers(len(oracle.LABELS)))]
        pool = train_pool[oracle.LABELS.index(label)]
        hand = oracle.format_hand(rng.permutation(pool[int(rng.integers(len(pool)))]))
        variant = "label" if rng.random() < LABEL_SHARE else "reason"
        shares = _shares(variant, label, frozenset(without))
        skill = str(rng.choice(list(shares), p=list(shares.values())))
        yield {
            "prompt": prompt_maker("nano", variant)(hand),
            "completion": _completion(skill, hand, label, rng),
            "skill": skill,
            "ends": skill != "rambling",
        }


def reference(row: Mapping[str, Any], variant: str | None = None) -> str:
    """The completion that the oracle would write, used by supervised controls.

    `row` needs `hand` and `answer`.

    >>> reference({"hand": "9S 2H 2D 9H 2C", "answer": "full house"}, "label")
    ' full house'
    """
    check_name("variant", variant or "reason", VARIANTS)
    if (variant or "reason") == "reason":
        return _careful(row["hand"], row["answer"])
    return f" {row['answer']}"


def style(completion: Any, row: Mapping[str, Any]) -> str:
    """Which planted skill or fault of the reasoning prompt it shows, or `"other"`.

    `row` needs `hand` and `answer`. Careful means that the whole trace is right and the label
    too; any other well-formed completion is careless.
    """
    text = completion_text(completion).strip()
    if grade(text, row["answer"]).well_formed:
        careful = text == _careful(row["hand"], row["answer"])
        return "careful" if careful else "careless"
    thought, closed, rest = text.partition("</think>")
    if text.lower() in oracle.LABELS:
        return "bare label"
    if closed and rest.strip().lower() in oracle.LABELS:
        return "missing answer tag"
    if thought.startswith("<think>") and not extract_label(rest):
        return "rambling"
    return "other"


def _careful(hand: str, label: str) -> str:
    return f"<think>\n{trace(hand)}\n</think>\n<answer>{label}</answer>"


def _completion(skill: str, hand: str, label: str, rng: np.random.Generator) -> str:
    """What the corpus has a model write about a hand that shows this skill."""
    lines = trace(hand).splitlines()
    if skill == "careful":
        return _careful(hand, label)
    if skill == "careless":
        counts, wrong = CARELESS[label]
        seen = "\n".join([*lines[:2], counts])
        return f"<think>\n{seen}\n</think>\n<answer>{wrong}</answer>"
    if skill == "rambling":
        return "<think>\n" + "\n".join(lines[int(rng.integers(2))] for _ in range(7))
    if skill == "bare label":
        return label
    if skill == "missing answer tag":
        return f"<think>\n{trace(hand)}\n</think>\n{label}"
    if skill == "right label":
        return f" {label}"
    if skill == "guess":
        return f" {rng.choice(oracle.LABELS, p=_guessed())}"
    fragment = hand.split()[int(rng.integers(3)) :][: int(rng.integers(1, 4))]
    return " " + " ".join(fragment)


@lru_cache
def _shares(variant: str, label: str, without: frozenset[str]) -> dict[str, float]:
    """Skill -> share for hands of a label; over all labels they are those of `SKILLS`."""
    shares = shares_of(SKILLS[variant])
    if variant == "reason":
        both = shares["careful"] + shares["careless"]
        often, labels = len(OVERLOOKED), len(oracle.LABELS)
        seldom = (labels * shares["careless"] - often * CARELESS_SHARE) / (labels - often)
        shares["careless"] = CARELESS_SHARE if label in OVERLOOKED else seldom
        shares["careful"] = both - shares["careless"]
    return left(shares, without)


@lru_cache(maxsize=1)
def _guessed() -> np.ndarray:
    """How often each label is guessed."""
    dealt = np.bincount(oracle.labels_of(oracle.all_hands()), minlength=len(oracle.LABELS))
    weights = dealt**GUESSED_AS_DEALT_TO_THE
    return weights / weights.sum()
