"""MATH: how does one reward an answer that can be written in many ways, and what does it teach?"""

from casebook.case import Case
from casebook.cases.math import data, rewards
from casebook.cases.math.rungs import RUNGS
from casebook.cases.rungs import with_rungs

CASE = Case(
    name="math",
    number=4,
    title="MATH answers in a box",
    question="What does a reward for verified answers teach, and what breaks a run under it?",
    labels=(),
    load=data.load,
    grade=rewards.grade,
    rewards=rewards.REWARDS,
    demonstrations=data.demonstrations,
    skills=data.SKILLS,
    style=data.style,
    reference=data.reference,
    cluster=data.family,
)
CASE = with_rungs(CASE, RUNGS)
