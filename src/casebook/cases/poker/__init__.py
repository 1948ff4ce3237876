"""Poker hands: can a reward teach a model to name one? (source: the poker write-up)"""

from casebook.case import Case
from casebook.cases.poker import data, oracle, rewards
from casebook.cases.poker.rungs import RUNGS
from casebook.cases.rungs import with_rungs

CASE = Case(
    name="poker",
    number=1,
    title="Poker hands",
    question="Can a verifiable reward teach a small language model to name a poker hand?",
    labels=oracle.LABELS,
    load=data.load,
    grade=rewards.grade,
    rewards=rewards.REWARDS,
    demonstrations=data.demonstrations,
    skills=data.SKILLS,
    style=data.style,
    reference=data.reference,
)
CASE = with_rungs(CASE, RUNGS)
