"""Small questions about cards that lie inside the naming of a hand."""

import numpy as np

from casebook.cases.poker.oracle import RANKS, SUITS
from casebook.cases.rungs import Problem, Rung

DECK = [rank + suit for rank in RANKS for suit in SUITS]
ONLY = "Do not explain your answer."


def higher(rng: np.random.Generator, kind: int) -> Problem:
    """Two cards of different ranks: the first is the higher one, or (`kind` 1) the second."""
    ranks = sorted(rng.choice(13, 2, replace=False), reverse=True)
    high, low = (RANKS[rank] + SUITS[rng.integers(4)] for rank in ranks)
    shown = (low, high) if kind else (high, low)
    asked = f"Which card is higher? Answer with exactly one of:\n{', '.join(shown)}.\n{ONLY}"
    text = f"Compare these 2 poker cards.\n\nCards: {' '.join(shown)}\nQuestion: {asked}"
    return Problem(tuple(map(int, ranks)), text, high, shown)


def _hand(cards: np.ndarray, question: str, answer: str, choices: tuple[str, ...]) -> Problem:
    hand = " ".join(cards)
    text = f"Look at this 5-card poker hand.\n\nHand: {hand}\nQuestion: {question}\n{ONLY}"
    return Problem(tuple(sorted(map(str, cards))), text, answer, choices)


def hearts(rng: np.random.Generator, kind: int) -> Problem:
    """A hand with `kind` hearts, 0 to 5."""
    own = rng.choice([card for card in DECK if card[1] == "H"], kind, replace=False)
    others = rng.choice([card for card in DECK if card[1] != "H"], 5 - kind, replace=False)
    asked = "How many cards are hearts? Answer with the number alone."
    cards = rng.permutation(np.concatenate([own, others]))
    return _hand(cards, asked, str(kind), tuple("012345"))


def pair(rng: np.random.Generator, kind: int) -> Problem:
    """A hand with one pair, or (`kind` 1) with five different ranks."""
    ranks = list(rng.choice(list(RANKS), 5 - (kind == 0), replace=False))
    cards = [rank + SUITS[rng.integers(4)] for rank in ranks]
    if kind == 0:
        suit = rng.choice([s for s in SUITS if s != cards[0][1]])
        cards.append(f"{ranks[0]}{suit}")
    asked = "Do two cards have the same rank? Answer with exactly one of:\nyes, no."
    return _hand(rng.permutation(cards), asked, ("yes", "no")[kind], ("yes", "no"))


RUNGS = {
    "higher": Rung(higher, 2, 4, f"[{RANKS}][{SUITS}]"),
    "hearts": Rung(hearts, 6, 6, "[0-5]"),
    "pair": Rung(pair, 2, 4, "yes|no"),
}
