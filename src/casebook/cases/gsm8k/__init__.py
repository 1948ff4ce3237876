"""GSM8K: can a reward teach word problems, or only how to write the answer down?"""

from casebook.case import Case
from casebook.cases.gsm8k import data, rewards
from casebook.cases.gsm8k.rungs import RUNGS
from casebook.cases.rungs import with_rungs

CASE = Case(
    name="gsm8k",
    number=3,
    title="GSM8K word problems",
    question="Does a reward teach a language model to reason, or to write its answer down?",
    labels=(),
    load=data.load,
    grade=rewards.grade,
    rewards=rewards.REWARDS,
    demonstrations=data.demonstrations,
    skills=data.SKILLS,
    style=data.style,
    reference=data.reference,
    cluster=data.story,
    caution="The problems are generated from 24 stories. No test problem has a training "
    "problem's story\nwith its numbers, but nearly every one retells a training problem's story "
    "with other numbers\n(notebook 30). A right answer shows the same sums with new numbers, and "
    "not that a new story\ncan be read.",
)
CASE = with_rungs(CASE, RUNGS)
