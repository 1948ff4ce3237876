"""What the cases' corpora have in common."""

import numpy as np
import pytest

from casebook import corpus
from casebook.case import CasebookError, UnknownName

SKILLS = {"reason": {"careful": (0.4, ""), "guess": (0.6, "")}, "label": {"blurt": (1.0, "")}}


def test_what_is_left_out_has_to_be_there_and_to_leave_something():
    corpus.check_without(SKILLS, ["guess"])
    with pytest.raises(UnknownName, match="known are careful, guess, blurt"):
        corpus.check_without(SKILLS, ["gess"])
    with pytest.raises(CasebookError, match="no skill is left for the prompt 'label'"):
        corpus.check_without(SKILLS, ["blurt"])


def test_skills_are_drawn_by_their_shares():
    rng = np.random.default_rng(0)
    shares = corpus.left({"careful": 0.2, "guess": 0.3, "blurt": 0.5}, ["blurt"])
    drawn = [corpus.draw(shares, rng) for _ in range(4000)]
    assert drawn.count("careful") / 4000 == pytest.approx(0.4, abs=0.03)
    assert set(drawn) == {"careful", "guess"}
