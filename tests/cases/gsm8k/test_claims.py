"""The figures that the claims' notes quote, computed again."""

from fractions import Fraction
from math import sqrt

import pytest

from casebook.cases.gsm8k.rewards import REWARDS
from casebook.cases.gsm8k.studies import baselines, errors
from casebook.records import load_claims, studies

CLAIMS = {row["id"]: row for row in load_claims("gsm8k")}
BEFORE, AFTER = baselines.counts(0), baselines.counts(1)
HALF, WHOLE = baselines.HALF, baselines.TEST_ROWS
VIGGO = "0.10x + 20(x + 1) = 80, so 20.10x = 60 and x = 3."
GOLD_WITH_COMMA_OR_SIGN = 16  # of the test problems; see the last test


def quotes(claim, *figures):
    return all(figure in CLAIMS[claim]["note"] for figure in figures)


def z(first, second, n):
    pooled = (first + second) / (2 * n)
    return (second - first) / n / sqrt(2 * pooled * (1 - pooled) / n)


def paid(part, text, gold="27"):
    return REWARDS[part](form="as_published")([text], answer=[gold], gold=[gold])[0] > 0


def block(answer):
    return f"<reasoning>\n1\n</reasoning>\n<answer>\n{answer}\n</answer>"


def test_gains_and_their_noise():
    assert round(100 * (0.785 - 0.287), 1) == 49.8
    assert round(100 * (0.789 - 0.701), 1) == 8.8
    hard, soft = "hard correctness", "soft correctness"
    assert round(z(BEFORE[hard], AFTER[hard], HALF), 1) == 18.1
    assert quotes("hard-gain", "49.8 points", "659", "z = 18.1")
    assert AFTER[soft] - BEFORE[soft] == 58
    assert round(z(BEFORE[soft], AFTER[soft], HALF), 1) == 3.7
    assert f"{8.8 / 49.8:.0%}" == "18%"
    assert quotes("soft-gain", "58 of 659", "8.8 points", "z = 3.7", "18 %", "49.8")
    assert quotes("soft-faster", "49.8", "8.8")
    assert quotes("metric-decides", "28.7 %", "70.1 %", "49.8", "8.8")


def test_more_blocks_than_right_answers():
    tags = "soft format"
    assert AFTER[tags] - BEFORE[tags] == 63
    most = [count["soft correctness"] / count[tags] for count in (BEFORE, AFTER)]
    plain = [count["hard correctness"] / count["integer"] for count in (BEFORE, AFTER)]
    assert [f"{share:.0%}" for share in most] == ["79%", "80%"]
    assert [f"{share:.0%}" for share in plain] == ["88%", "84%"]
    assert quotes("reasoning-gain", "63 more", "58 more", "79 %", "80 %", "88 %", "84 %")


def test_room():
    share = {name: f"{row[0] / row[2]:.0%}" for name, row in baselines.TABLE.items()}
    assert [share[m] for m in baselines.TABLE] == ["29%", "70%", "33%", "88%", "84%"]
    dressed = 1 - BEFORE["hard correctness"] / BEFORE["soft correctness"]
    assert f"{dressed:.0%}" == "59%"
    assert quotes("room-to-improve", "29 %", "33 %", "84 %", "88 %", "59 %")


def test_the_half():
    first = {name: row[0] for name, row in baselines.TABLE.items()}
    second = {name: row[1] for name, row in baselines.TABLE.items()}
    assert baselines.possible_sizes(first, [659, 660]) == [659]
    assert 659 in baselines.possible_sizes(second, [659, 660])
    assert quotes("half-test", "659", "660")


def test_what_halves_say():
    spread = 0.701 * 0.299
    among = sqrt(spread / HALF * (WHOLE - HALF) / (WHOLE - 1))
    assert [round(100 * sd, 1) for sd in (among, sqrt(spread / HALF))] == [1.3, 1.8]
    assert [round(196 * sqrt(spread / n), 1) for n in (HALF, WHOLE)] == [3.5, 2.5]
    assert quotes("around-70", "1.3", "1.8", "±3.5", "±2.5", "1,319")
    trained = among * sqrt(0.785 * 0.215 / spread)
    assert round(196 * sqrt(2) * trained) == 3
    assert quotes("step-350-worse", "about 3 points")


def test_soft_correctness_is_another_measure_not_a_softer_one():
    for gold in ("1,600", "-3"):
        assert paid("correctness", block(gold), gold)
        assert not paid("soft_correctness", block(gold), gold)
    for answer, gold in (("96%", "96"), ("72 units", "72"), ("$27", "27"), ("27 - 3 = 24", "27")):
        assert paid("soft_correctness", block(answer), gold)
    assert paid("soft_correctness", block("none"), "0")
    assert quotes("soft-examples", "27 - 3 = 24", "'0'")


def test_whole_numbers_that_are_not_paid_and_one_that_is():
    assert not any(paid("integer", block(answer)) for answer in ("-3", "1,600"))
    assert paid("integer", block("²"))
    with pytest.raises(ValueError, match="invalid literal"):
        int("²")
    assert f"{AFTER['integer'] / HALF:.0%}" == "94%"
    wrong = AFTER["integer"] - AFTER["hard correctness"]
    assert (wrong, AFTER["integer"]) == (101, 618)
    assert f"{wrong / AFTER['integer']:.0%}" == "16%"
    assert quotes("hard-implies-integer", "94 %", "16 %", "16 of 1,319")
    assert quotes("integers-at-the-end", "94 %", "101 of 618")


def test_without_a_last_line_end_every_character_is_charged():
    texts = [block("4" * n) + end for end in ("", "\n") for n in (2, 103, 303)]
    earned = [f"{pay:.3f}" for pay in REWARDS["xml_count"](form="as_published")(texts)]
    assert earned == ["0.453", "0.352", "0.152", *["0.500"] * 3]
    assert quotes("xml-count-penalty", "2, 103 and 303", *earned[:3])


def test_formats():
    assert CLAIMS["soft-format-anywhere"]["verdict"] == "confirmed"
    assert BEFORE["soft format"] - BEFORE["strict format"] == 28
    assert quotes("soft-format-anywhere", "28 more of 659")


def test_steps_epochs_groups_and_hours():
    assert 350 * 8 * 2 / 8 == 700
    assert f"{700 / 7473:.1%}" == "9.4%"
    assert quotes("under-ten-percent", "700 of 7,473", "9.4 %")
    assert [f"{1 - (1 - 0.287) ** g:.0%}" for g in (6, 8)] == ["87%", "93%"]
    assert quotes("larger-groups-hit", "28.7 %", "87 %", "93 %")
    assert round(2 * 3600 / 250) == 29
    assert quotes("gpu-time", "29 seconds", "16 completions")


def test_examples():
    assert round(z(round(0.823 * WHOLE), round(0.845 * WHOLE), WHOLE), 1) == 1.5
    assert quotes("five-shot-drop", "z = 1.5")
    assert quotes("shots-84", "8-shot")


def test_the_last_snippet():
    assert [e.holds for e in errors.equations(VIGGO, Fraction(3))] == [False, False]
    assert round(60 / 20.1) == 3 != 60 / 20.1
    text = block("3")
    parts = ("integer", "strict_format", "soft_format", "xml_count")
    earned = [REWARDS[p](form="as_published")([text + "\n"], answer=["2"])[0] for p in parts]
    assert sum(earned) == 2.0
    assert quotes("viggo", "60 / 20.1", "a line end after it", "2 of 4")


def test_what_the_record_of_the_exploration_says():
    found = studies.read("exploration")
    splits, difficulty = found["splits"], found["difficulty"]
    area = [f"{splits[name]['value']:.2f}" for name in ("vectors", "control")]
    assert area == ["0.51", "0.63"]
    assert splits["vectors"]["low"] < 0.5
    assert quotes("split-random", "0.51", "0.63")
    topics = found["topics"]
    assert len(topics) == 12
    (age,) = (topic for topic in topics if "age" in topic["name"].split(", "))
    assert (age["rows"], f"{age['family']:.0%}", f"{age['purity']:.0%}") == (292, "35%", "96%")
    assert max(t["family"] for t in topics if t is not age) < age["family"]
    assert quotes("age-cluster", "292 of 8,792", "35 %", "96 %", "twelve")
    shares = [f"{difficulty[name]['value']:.0%}" for name in ("vectors", "neighbours", "length")]
    assert shares == ["7%", "3%", "21%"]
    assert difficulty["vectors"]["low"] > 0
    assert quotes("similarity-not-difficulty", "7 %", "3 %", "21 %")


def test_what_the_record_of_the_sentence_encoder_says():
    coded = studies.read("embedding")["encoder"]
    area = [f"{coded['splits'][name]['value']:.2f}" for name in ("vectors", "control")]
    assert area == ["0.52", "0.75"]
    assert quotes("split-random", *area)
    ages = coded["ages"]
    assert (ages["rows"], f"{ages['share']:.0%}") == (268, "90%")
    assert quotes("age-cluster", "268 problems", "90 %")
    shares = [f"{coded['difficulty'][name]['value']:.0%}" for name in ("vectors", "neighbours")]
    assert shares == ["27%", "6%"]
    assert quotes("similarity-not-difficulty", "27 %", "6 %")


def test_ceilings_and_odd_golds_of_the_real_problems():
    kept = studies.read("baseline")
    golds, most = kept["golds"], kept["most"]
    assert golds["with a comma"] + golds["negative"] == GOLD_WITH_COMMA_OR_SIGN
    assert {
        way: [f"{pay[m]:.3f}" for m in ("hard correctness", "soft correctness", "integer")]
        for way, pay in most.items()
    } == {
        "as the data has it": ["1.000", "0.988", "0.494"],
        "in digits": ["0.989", "0.988", "0.499"],
    }
    assert quotes("maxima", "0.988", "0.494", "0.989", "0.499")
    assert quotes("soft-is-softer", "1,319", "16 have", "0.988")
