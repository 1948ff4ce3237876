"""The oracle: every hand, two independent evaluators, invariances, and bad input."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from casebook import CasebookError
from casebook.cases.poker.oracle import (
    CATEGORIES,
    FREQUENCIES,
    LABELS,
    RANKS,
    SUITS,
    all_hands,
    classify_hand,
    classify_hands,
    format_hand,
    labels_of,
    parse_hand,
    source_classify,
)

WHEEL_RANKS = (12, 0, 1, 2, 3)
CARDS = [rank + suit for rank in RANKS for suit in SUITS]
hands = st.lists(st.integers(0, 51), min_size=5, max_size=5, unique=True)


def by_the_book(cards) -> str:
    """The rules once more, in the plainest words, to compare with."""
    ranks = sorted(card // 4 for card in cards)
    counts = sorted(Counter(ranks).values())
    flush = len({card % 4 for card in cards}) == 1
    runs = [{12, 0, 1, 2, 3}] + [set(range(low, low + 5)) for low in range(9)]
    if set(ranks) in runs:
        royal = ranks == [8, 9, 10, 11, 12]
        return ("royal flush" if royal else "straight flush") if flush else "straight"
    if flush:
        return "flush"
    names = {
        (1, 4): "four of a kind",
        (2, 3): "full house",
        (1, 1, 3): "three of a kind",
        (1, 2, 2): "two pair",
        (1, 1, 1, 2): "one pair",
    }
    return names.get(tuple(counts), "high card")


def sample_of_hands(n, seed=0):
    """Up to `n` different hands, of every category, cards in random order."""
    rng = np.random.default_rng(seed)
    codes = classify_hands(all_hands())
    rows = np.concatenate(
        [rng.permutation(np.flatnonzero(codes == code))[: n // 10] for code in range(10)]
    )
    return rng.permuted(all_hands()[rows].astype(np.int64), axis=1)


def test_frequency_of_every_category():
    assert tuple(np.bincount(classify_hands(all_hands()))) == FREQUENCIES
    assert sum(FREQUENCIES) == 2_598_960


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("2C 3D 5H 9S KC", "high card"),
        ("2C 3D 4H 5S 7C", "high card"),
        ("KC AD 2H 3S 4C", "high card"),  # no straight runs around the ace
        ("2C 2D 5H 9S KC", "one pair"),
        ("2C 2D 5H 5S KC", "two pair"),
        ("2C 2D 2H 9S KC", "three of a kind"),
        ("AC 2D 3H 4S 5C", "straight"),
        ("TC JD QH KS AC", "straight"),
        ("2C 3C 5C 9C KC", "flush"),
        ("2H 2D 2C 9S 9H", "full house"),
        ("9C 9D 9H 9S 2C", "four of a kind"),
        ("AH 2H 3H 4H 5H", "straight flush"),
        ("9S TS JS QS KS", "straight flush"),
        ("TD JD QD KD AD", "royal flush"),
    ],
)
def test_hands_one_knows(text, category):
    assert CATEGORIES[classify_hand(text)] == category


@given(hands)
def test_agrees_with_the_rules(cards):
    assert CATEGORIES[classify_hands([cards])[0]] == by_the_book(cards)


@given(hands, st.permutations(range(5)))
def test_the_order_of_cards_does_not_matter(cards, order):
    assert classify_hands([cards])[0] == classify_hands([[cards[i] for i in order]])[0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_integers_in_any_layout(dtype, order):
    cards = sample_of_hands(50)
    expected = [CATEGORIES.index(by_the_book(hand)) for hand in cards.tolist()]
    assert classify_hands(np.asarray(cards, dtype=dtype, order=order)).tolist() == expected
    assert classify_hands(cards[:, ::-1].astype(dtype)).tolist() == expected


def test_the_array_given_is_left_alone():
    cards = np.asfortranarray(sample_of_hands(50))
    before = cards.copy()
    classify_hands(cards)
    source_classify(cards)
    np.testing.assert_array_equal(cards, before)


def test_rows_keep_their_place_across_blocks():
    cards = sample_of_hands(50)
    codes = classify_hands(np.tile(cards, (1000, 1))).reshape(1000, len(cards))
    assert codes[0].tolist() == [CATEGORIES.index(by_the_book(hand)) for hand in cards.tolist()]
    assert (codes == codes[0]).all()


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ([0, 1, 2, 3, 4], r"shape \(n, 5\), not \(5,\)"),
        ([[0, 1, 2, 3]], r"shape \(n, 5\), not \(1, 4\)"),
        ([], r"shape \(n, 5\)"),
        (None, r"shape \(n, 5\)"),
        ([[0, 1, 2, 3, 4], [0, 1]], "array of integers"),
        ([[0.0, 1.0, 2.0, 3.0, 4.0]], "not float64"),
        ([[True, False, True, True, True]], "not bool"),
        ([[0, 1, 2, 3, 10**30]], "integers"),
        ([[0, 1, 2, 3, 52]], "row 0: cards are numbers 0..51"),
        ([[0, 1, 2, 3, 4], [-1, 1, 2, 3, 4]], "row 1: cards are numbers 0..51"),
        ([[0, 1, 2, 3, 256 + 4]], "row 0: cards are numbers 0..51"),
        ([[0, 1, 2, 3, 2**62]], "row 0: cards are numbers 0..51"),
        ([[0, 1, 2, 3, 4], [0, 1, 2, 3, 3]], "row 1: the same card twice"),
    ],
)
@pytest.mark.parametrize("function", [classify_hands, labels_of, source_classify])
def test_bad_hands(function, cards, message):
    with pytest.raises(CasebookError, match=message):
        function(cards)


def test_a_bad_row_is_named_by_its_number_in_the_whole_array():
    cards = np.tile([0, 1, 2, 3, 4], (40_000, 1))
    cards[33_333, 2] = 0
    with pytest.raises(CasebookError, match="row 33333: the same card twice"):
        classify_hands(cards)
    cards[33_333, 2] = 99
    with pytest.raises(CasebookError, match="row 33333: cards are numbers"):
        classify_hands(cards)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 80), min_size=5, max_size=5))
def test_a_number_that_is_no_card_is_always_found(cards):
    assume(not all(0 <= card <= 51 for card in cards))
    with pytest.raises(CasebookError, match="numbers 0"):
        classify_hands([cards])


@given(st.lists(st.integers(0, 51), min_size=5, max_size=5))
def test_a_card_twice_is_always_found(cards):
    if len(set(cards)) == 5:
        assert 0 <= classify_hands([cards])[0] <= 9
    else:
        with pytest.raises(CasebookError, match="twice"):
            classify_hands([cards])


@given(hands)
def test_text_and_numbers_are_inverse(cards):
    assert parse_hand(format_hand(cards)).tolist() == cards


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found 0"),
        ("2H 2D 2C 9S", "found 4"),
        ("2H 2D 2C 9S 10H", "unknown card '10H'"),
        ("2H 2D 2C 9S 9X", "unknown card '9X'"),
        ("2H 2D 2C 9S " + "9" * 10**6, "unknown card '9999"),
        ("2H 2D 2C 9S 2H", "the same card twice"),
        (None, "not NoneType"),
        (["2H", "2D", "2C", "9S", "9H"], "not list"),
    ],
)
def test_bad_text(text, message):
    with pytest.raises(CasebookError, match=message):
        classify_hand(text)


def test_the_source_misses_the_wheel_and_nothing_else():
    cards = all_hands()
    right, source = labels_of(cards), source_classify(cards)
    wrong = right != source
    assert wrong.sum() == 1024
    assert set(right[wrong]) == {LABELS.index("straight")}
    assert Counter(LABELS[label] for label in source[wrong]) == {"high card": 1020, "flush": 4}
    assert (np.sort(cards[wrong] // 4, axis=1) == sorted(WHEEL_RANKS)).all()


def treys_categories(cards):
    treys = pytest.importorskip("treys")
    evaluator = treys.Evaluator()
    number = [treys.Card.new(card[0] + card[1].lower()) for card in CARDS]
    # treys counts rank classes from 0 or 1 = (royal/straight) flush to 9 = high card
    for hand in cards.tolist():
        score = evaluator.evaluate([number[card] for card in hand], [])
        yield 9 if score == 1 else 9 - evaluator.get_rank_class(score)


def phevaluator_categories(cards):
    phevaluator = pytest.importorskip("phevaluator")
    last_of = (1, 10, 166, 322, 1599, 1609, 2467, 3325, 6185, 7462)  # royal flush .. high card
    for hand in cards.tolist():
        score = phevaluator.evaluate_cards(*hand)  # card numbers are the same as ours
        yield 9 - int(np.searchsorted(last_of, score))


@pytest.mark.parametrize(
    ("evaluator", "number"),
    [
        (phevaluator_categories, 50_000),
        pytest.param(treys_categories, 2_000_000, marks=pytest.mark.heavy),
        pytest.param(phevaluator_categories, 20_000_000, marks=pytest.mark.heavy),  # every hand
    ],
)
def test_agrees_with_an_independent_evaluator(evaluator, number):
    cards = sample_of_hands(number)
    theirs = np.fromiter(evaluator(cards), np.int8, count=len(cards))
    np.testing.assert_array_equal(classify_hands(cards), theirs)
