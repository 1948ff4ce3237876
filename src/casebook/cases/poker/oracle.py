"""The poker oracle: which of ten categories a five-card hand belongs to.

A card is a number 0..51, `4 * rank + suit`. Each card carries a small weight; the sum of a
hand's five weights is the index of its category in a table. So nothing is sorted or compared,
and the order of the cards does not matter:

    category(hand) = TABLE[sum of RANK_WEIGHTS over the hand]   unless all suits agree.

The number of hands in each category is elementary combinatorics, for instance
13 * C(4,3) * 12 * C(4,2) = 3,744 full houses; `FREQUENCIES` lists all ten as the reference
tables do (Wikipedia, "Poker probability"; Epstein, *The Theory of Gambling and Statistical
Logic*). An exhaustive test enumerates all C(52,5) = 2,598,960 hands and compares.

The ace is high or low: A-2-3-4-5, the *wheel*, is a straight.
"""

from functools import lru_cache
from itertools import chain, combinations, combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike

from casebook.case import CasebookError

RANKS = "23456789TJQKA"
SUITS = "CDHS"
CATEGORIES = (
    "high card",
    "one pair",
    "two pair",
    "three of a kind",
    "straight",
    "flush",
    "full house",
    "four of a kind",
    "straight flush",
    "royal flush",
)
FREQUENCIES = (1_302_540, 1_098_240, 123_552, 54_912, 10_200, 5_108, 3_744, 624, 36, 4)

# The poker write-up has eight labels and calls a straight flush, royal or not, a straight.
LABELS = CATEGORIES[:8]
SOURCE_LABEL_OF = (0, 1, 2, 3, 4, 5, 6, 7, LABELS.index("straight"), LABELS.index("straight"))

_BLOCK = 1 << 12  # rows at a time, so that what a block needs stays in the second-level cache
_DECK = np.uint64((1 << 52) - 1)


def classify_hands(cards: ArrayLike) -> np.ndarray:
    """The category code of each hand, an index into `CATEGORIES`.

    Args:
        cards: `(n, 5)` integers 0..51, `4 * rank + suit` with rank 0 = deuce .. 12 = ace and
            suits in the order of `SUITS`. The order of the cards in a hand does not matter.

    Returns:
        `(n,)` int8 codes 0..9.

    Raises:
        CasebookError: not an `(n, 5)` array of integers, a number outside 0..51, or the same
            card twice in a hand; the message names the first such row.

    >>> wheel, full_house = [48, 0, 5, 10, 15], [2, 1, 0, 31, 30]
    >>> [CATEGORIES[code] for code in classify_hands([wheel, full_house])]
    ['straight', 'full house']
    """
    cards = _as_hands(cards)
    weights, table, flush_offset = _tables()
    codes = np.empty(len(cards), np.int8)
    for start in range(0, len(cards), _BLOCK):
        block = np.ascontiguousarray(cards[start : start + _BLOCK].T)
        _check_cards(block, start)
        key = _sum_of_five(weights.take(block, mode="clip"))
        suits = flush_offset.take(key & _SUIT_MASK, mode="clip")
        codes[start : start + _BLOCK] = table.take((key >> _RANK_SHIFT) + suits, mode="clip")
    return codes


def classify_hand(text: str) -> int:
    """The category code of one hand written as text.

    >>> CATEGORIES[classify_hand("2H 2D 2C 9S 9H")]
    'full house'
    """
    return int(classify_hands(parse_hand(text)[None])[0])


def labels_of(cards: ArrayLike) -> np.ndarray:
    """The write-up's label of each hand, as an index into `LABELS` (`(n, 5)` -> `(n,)` int8).

    >>> LABELS[labels_of([parse_hand("TH JH QH KH AH")])[0]]
    'straight'
    """
    return np.array(SOURCE_LABEL_OF, np.int8)[classify_hands(cards)]


def source_classify(cards: ArrayLike) -> np.ndarray:
    """The label that the poker write-up's own oracle gives: right except for the wheel.

    Re-implemented from its description: sorted ranks must rise by one for a straight, with the
    ace above the king only; a hand that is straight and flush is a straight. So A-2-3-4-5 is
    read as a high card, and as a flush where the suits agree. It sorts and compares, so it is
    an independent check of every other hand.

    >>> LABELS[source_classify([parse_hand("AC 2C 3D 4H 5S")])[0]]
    'high card'
    """
    cards = _as_hands(cards)
    _check_cards(cards.T, 0)
    ranks, suits = np.sort(cards // 4, axis=1), cards % 4
    gaps = np.diff(ranks, axis=1)
    straight = (gaps == 1).all(axis=1)
    flush = (suits == suits[:, :1]).all(axis=1)
    equal_neighbours = (gaps == 0).sum(axis=1)
    three = (ranks[:, 2:] == ranks[:, :-2]).any(axis=1)
    four = (ranks[:, 3:] == ranks[:, :-3]).any(axis=1)
    answers = {
        "straight": straight,
        "flush": flush,
        "four of a kind": four,
        "full house": equal_neighbours == 3,
        "three of a kind": three,
        "two pair": equal_neighbours == 2,
        "one pair": equal_neighbours == 1,
    }
    indices = [LABELS.index(label) for label in answers]
    return np.select(list(answers.values()), indices, default=0).astype(np.int8)


@lru_cache(maxsize=1)
def all_hands() -> np.ndarray:
    """Every hand once: a read-only `(2598960, 5)` int8 array, cards rising within a hand."""
    flat = chain.from_iterable(combinations(range(52), 5))
    hands = np.fromiter(flat, np.int8, count=5 * sum(FREQUENCIES)).reshape(-1, 5)
    hands.flags.writeable = False  # it is shared by all callers
    return hands


def parse_hand(text: str) -> np.ndarray:
    """The five card numbers of a hand written as text, in the order of the text.

    Raises:
        CasebookError: not text, not five cards, an unknown card, or a card named twice.

    >>> parse_hand("2H 2D 2C 9S 9H").tolist()
    [2, 1, 0, 31, 30]
    """
    if not isinstance(text, str):
        raise CasebookError(f"a hand is text like '2H 2D 2C 9S 9H', not {type(text).__name__}")
    words = text.split()
    if len(words) != 5:
        raise CasebookError(f"a hand has five cards, like '2H 2D 2C 9S 9H'; found {len(words)}")
    for word in words:
        if word not in _CARD_NUMBERS:
            raise CasebookError(
                f"unknown card {word[:20]!r}: a card is a rank of {RANKS} and a suit of {SUITS}"
            )
    cards = np.array([_CARD_NUMBERS[word] for word in words])
    _check_cards(cards[:, None], 0)
    return cards


def format_hand(cards: ArrayLike) -> str:
    """Five card numbers as text, in the order given.

    >>> format_hand([2, 1, 0, 31, 30])
    '2H 2D 2C 9S 9H'
    """
    hand = _as_hands([cards])
    _check_cards(hand.T, 0)
    return " ".join(RANKS[card // 4] + SUITS[card % 4] for card in hand[0])


_CARD_NUMBERS = {r + s: 4 * i + j for i, r in enumerate(RANKS) for j, s in enumerate(SUITS)}

# A card's weight holds its suit's weight in the low bits and its rank's above. Sums of five
# suit weights equal 5 * w only if all five suits are the one that weighs w.
_SUIT_WEIGHTS = (0, 1, 6, 7)
_SUIT_BITS = 6

# Found by random search: modulo 2**18, no two sets of five ranks that differ in category have
# the same sum. Those that share a category may collide, hence a table of 256 KiB that fits the
# second-level cache; weights whose sums are all different need 30 times that.
_RANK_WEIGHTS = (
    *(0, 222986, 57169, 232921, 8283, 81846, 50174),
    *(165559, 85959, 8112, 198918, 73640, 181671),
)
_RANK_BITS = 18

_SUIT_MASK = np.uint32((1 << _SUIT_BITS) - 1)
_RANK_SHIFT = np.uint32(32 - _RANK_BITS)  # rank sums wrap around where uint32 does


@lru_cache(maxsize=1)
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weight of each card; category of each rank sum, plain and flush; offset of each suit sum.

    Hands of one suit find their category in the table's second half.
    """
    size = 1 << _RANK_BITS
    rank_part = np.array(_RANK_WEIGHTS, np.uint32) << _RANK_SHIFT
    weights = (rank_part[:, None] + np.array(_SUIT_WEIGHTS, np.uint32)).ravel()
    table = np.full(2 * size, -1, np.int8)
    for ranks in combinations_with_replacement(range(13), 5):
        slot = sum(_RANK_WEIGHTS[rank] for rank in ranks) % size
        for flush in (False, True):
            category = _category(ranks, flush)
            if category is not None:
                assert table[slot + flush * size] in (-1, category), "rank weights collide"
                table[slot + flush * size] = category
    flush_offset = np.zeros(1 << _SUIT_BITS, np.uint32)
    flush_offset[5 * np.array(_SUIT_WEIGHTS)] = size
    return weights, table, flush_offset


def _category(ranks: tuple[int, ...], flush: bool) -> int | None:
    """The rules themselves, for five rising ranks; `None` where no such hand exists."""
    counts = sorted((ranks.count(rank) for rank in set(ranks)), reverse=True)
    if counts[0] == 5 or (flush and len(counts) < 5):
        return None
    straight = ranks == (0, 1, 2, 3, 12) or (len(counts) == 5 and ranks[4] - ranks[0] == 4)
    if straight and flush:
        return CATEGORIES.index("royal flush" if ranks[0] == 8 else "straight flush")
    if straight or flush:
        return CATEGORIES.index("straight" if straight else "flush")
    return {
        (1, 1, 1, 1, 1): CATEGORIES.index("high card"),
        (2, 1, 1, 1): CATEGORIES.index("one pair"),
        (2, 2, 1): CATEGORIES.index("two pair"),
        (3, 1, 1): CATEGORIES.index("three of a kind"),
        (3, 2): CATEGORIES.index("full house"),
        (4, 1): CATEGORIES.index("four of a kind"),
    }[tuple(counts)]


def _as_hands(cards: ArrayLike) -> np.ndarray:
    """`cards` as an `(n, 5)` integer array."""
    try:
        array = np.asarray(cards)
    except (ValueError, TypeError):  # rows of different lengths
        raise CasebookError("hands must be an (n, 5) array of integers 0..51") from None
    if array.ndim != 2 or array.shape[1] != 5:
        raise CasebookError(f"hands must have shape (n, 5), not {array.shape}")
    if array.dtype.kind not in "iu":
        if array.size:
            raise CasebookError(f"cards must be integers 0..51, not {array.dtype}")
        array = array.astype(np.int8)
    return array


def _check_cards(columns: np.ndarray, first_row: int) -> None:
    """Raise a `CasebookError` for the first hand with a number outside 0..51 or a card twice.

    `columns` has shape `(5, n)`, one hand a column; `first_row` is the number of the first one.
    """
    # Five powers of two add up to a number with five bits only if no two are equal. A number
    # outside 0..51 leaves no bit below 2**52: as unsigned, a negative one is huge, and a shift
    # by 64 or more gives 0.
    powers = np.left_shift(np.uint64(1), columns, dtype=np.uint64, casting="unsafe")
    bits = np.bitwise_count(_sum_of_five(powers) & _DECK)
    if len(bits) == 0 or bits.min() == 5:
        return
    column = int((bits < 5).argmax())
    hand = columns[:, column].tolist()
    fault = "the same card twice" if set(hand) <= set(range(52)) else "cards are numbers 0..51"
    raise CasebookError(f"row {first_row + column}: {fault}, got {hand}")


def _sum_of_five(columns: np.ndarray) -> np.ndarray:
    """`columns.sum(axis=0)`, three times as fast; the first row is used up."""
    total = columns[0]
    for row in columns[1:]:
        total += row
    return total
