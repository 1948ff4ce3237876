"""How often a reward turns two completions around, and what the record says of the rewards."""

import pytest

from casebook.cases.gsm8k.rewards import REWARDS
from casebook.cases.gsm8k.studies.ranking import PARTS, WAYS, wrong_pairs
from casebook.records import studies

FORM = "<reasoning>\n3*4=12\n</reasoning>\n<answer>\n{}\n</answer>"
WRITTEN = {
    "final line break": FORM.format("12") + "\n",
    "with .00": FORM.format("12.00"),
    "unit": FORM.format("12 in all"),
    "bare number": "12",
    "one too many": FORM.format("13"),
    "begins right": FORM.format("12 - 1 = 11"),
    "two answers": FORM.format("12") + "\n<answer>\n13\n</answer>",
}


@pytest.mark.parametrize(
    ("paid", "merit", "groups", "expected"),
    [
        ([1, 0], [1, 0], "aa", (1, 0.0, 0.0)),
        ([0, 1], [1, 0], "aa", (1, 1.0, 0.0)),
        ([1, 1], [1, 0], "aa", (1, 0.0, 1.0)),
        ([1, 0], [1, 1], "aa", (0, 0.0, 0.0)),  # nothing to tell apart
        ([0, 1], [1, 0], "ab", (0, 0.0, 0.0)),  # not in one group
        ([1, 1 + 1e-9, 2], [2, 1, 0], "aaa", (3, 2 / 3, 1 / 3)),
        ([], [], "", (0, 0.0, 0.0)),
    ],
)
def test_pairs_by_hand(paid, merit, groups, expected):
    found = wrong_pairs(paid, merit, list(groups))
    assert (found["pairs"], found["reversed"], found["level"]) == pytest.approx(expected)


@pytest.mark.parametrize("form", ["fixed", "as_published"])
@pytest.mark.parametrize("way", WRITTEN)
def test_rewards_pay_a_way_of_writing_as_the_record_says(way, form):
    kept = studies.read("rewards")[form]["mean"][way]
    for part in set(PARTS) - {"xml_count"}:  # which depends on the length of the solution
        if (form, part) != ("as_published", "soft_correctness"):  # on commas in the gold, too
            paid = REWARDS[part](form)([WRITTEN[way]], answer=["12"], gold=["12"])[0]
            assert paid == pytest.approx(kept[part], abs=0.02), part


def test_the_record_has_every_way_and_no_mended_part_orders_a_pair_wrongly():
    kept = studies.read("rewards")
    assert set(kept["ways"]) == set(WAYS)
    wrong = {part: kept["fixed"]["pairs"][part] for part in PARTS}
    assert all(pairs["reversed"] + pairs["level"] < 0.001 for pairs in wrong.values())
