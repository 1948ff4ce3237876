"""The exercises of the notebooks that belong to no case: how they are checked."""

from casebook.exercises.check import Attempt, exercise, expect_text

# 01, the algorithm


@exercise("01-a")
def _leave_one_out(leave_one_out: Attempt) -> None:
    """Each reward of a group against the mean of the others."""
    for rewards in (
        [1.0, 0.0, 0.0, 0.0],
        [1.0, 0.0],
        [1.4, 0.4, 1.0, 0.0],
        [0.5, 0.5, 0.5],
        [2.0, -1.0, 0.5, 0.25, 3.0],
    ):
        others = len(rewards) - 1
        leave_one_out.expect([r - (sum(rewards) - r) / others for r in rewards], rewards)


@exercise("01-b")
def _gradient(has_gradient: Attempt) -> None:
    """Where the clipped objective of one token changes with the ratio."""
    for ratio, advantage, low, high, expected, note in (
        (1.0, 1.0, 0.2, 0.2, True, "on-policy nothing is clipped"),
        (1.5, 1.0, 0.2, 0.2, False, "good, and likelier already"),
        (1.5, -1.0, 0.2, 0.2, True, "bad, and likelier than before"),
        (0.5, 1.0, 0.2, 0.2, True, "good, and rarer than before"),
        (0.5, -1.0, 0.2, 0.2, False, "bad, and rarer already"),
        (1.25, 0.3, 0.2, 0.28, True, "the upper end is 1.28"),
        (1.25, 0.3, 0.28, 0.2, False, "the upper end is 1.2"),
        (0.75, -2.0, 0.2, 0.28, False, "the lower end is 0.8"),
        (0.75, -2.0, 0.28, 0.2, True, "the lower end is 0.72"),
        (1.0, 0.0, 0.2, 0.2, False, "nothing to gain or to lose"),
        (1.5, 0.0, 0.2, 0.2, False, "nothing to gain or to lose"),
    ):
        has_gradient.expect(expected, ratio, advantage, low, high, note=note)


# 90, the claims


@exercise("90-a")
def _verdict(verdict: Attempt) -> None:
    """What the records of a comparison allow to say."""
    low, high = [0.30, 0.31, 0.29], [0.60, 0.62, 0.61]
    below, above = (0.28, 0.32), (0.58, 0.64)
    seen, not_seen, open_ = "mechanism seen", "mechanism not seen", "inconclusive"
    for before, after, pooled_before, pooled_after, rises, expected, note in (
        (low, high, below, above, True, seen, "all seeds rise, and the intervals are apart"),
        (high, low, above, below, False, seen, "all seeds fall, as they were to"),
        (high, low, above, below, True, not_seen, "all seeds fall, and were to rise"),
        (low, high, below, above, False, not_seen, "all seeds rise, and were to fall"),
        (low, [0.33, 0.34, 0.32], (0.27, 0.33), (0.3, 0.36), True, open_, "they overlap"),
        (low, [0.36, 0.37, 0.35], below, (0.32, 0.4), True, open_, "they touch"),
        (low[:2], high[:2], below, above, True, open_, "two seeds are too few"),
        ([0.3, 0.3, 0.7], high, (0.28, 0.5), above, True, open_, "one seed falls"),
        ([0.3, 0.3, 0.61], high, (0.28, 0.5), above, True, open_, "one seed does not move"),
    ):
        arguments = before, after, pooled_before, pooled_after, rises
        expect_text(verdict, expected, *arguments, note=note)
