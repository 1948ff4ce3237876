"""What the cases' corpora for the embedded models have in common.

A case names what it plants (`SKILLS`: variant of the prompt -> skill -> its share and a sentence)
and writes the demonstrations; here stands how a share is drawn and how a skill is left out.
"""

from collections.abc import Collection, Mapping

import numpy as np

from casebook.case import CasebookError, check_name

Skills = Mapping[str, Mapping[str, tuple[float, str]]]


def check_without(skills: Skills, without: Collection[str]) -> None:
    """Check which skills a corpus is to leave out.

    Raises:
        UnknownName: `without` names no skill.
        CasebookError: `without` names all skills of a prompt.
    """
    for name in without:
        check_name("skill", name, [name for planted in skills.values() for name in planted])
    for variant, planted in skills.items():
        if set(planted) <= set(without):
            raise CasebookError(f"no skill is left for the prompt {variant!r}")


def shares_of(planted: Mapping[str, tuple[float, str]]) -> dict[str, float]:
    """Skill -> share, without the sentences.

    >>> shares_of({"careful": (0.4, "counts"), "guess": (0.6, "guesses")})
    {'careful': 0.4, 'guess': 0.6}
    """
    return {name: share for name, (share, _) in planted.items()}


def left(shares: Mapping[str, float], without: Collection[str]) -> dict[str, float]:
    """The shares of the skills that are not left out; they share what those had.

    >>> left({"careful": 0.4, "guess": 0.4, "rambling": 0.2}, ["rambling"])
    {'careful': 0.5, 'guess': 0.5}
    """
    kept = {name: share for name, share in shares.items() if name not in without}
    return {name: share / sum(kept.values()) for name, share in kept.items()}


def draw(shares: Mapping[str, float], rng: np.random.Generator) -> str:
    """One skill, as often as its share says."""
    return str(rng.choice(list(shares), p=list(shares.values())))
