"""Land use: how much of an optimal plan can a model recover, parcel by parcel?"""

from casebook.case import Case
from casebook.cases.landuse import corpus, data, heuristics, rewards
from casebook.cases.landuse.rungs import RUNGS
from casebook.cases.rungs import with_rungs

CASE = Case(
    name="landuse",
    number=2,
    title="Land use",
    question="How much of an optimal land-use plan can a small language model recover, parcel by "
    "parcel?",
    labels=rewards.LABELS,
    load=data.load,
    grade=rewards.grade,
    rewards=rewards.REWARDS,
    demonstrations=corpus.demonstrations,
    skills=corpus.SKILLS,
    style=corpus.style,
    reference=corpus.reference,
    cluster=data.block,
    rules=heuristics.shares_right,
)
CASE = with_rungs(CASE, RUNGS)
