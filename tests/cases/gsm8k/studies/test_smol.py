"""A real model on GSM8K before training: what is made of its completions."""

import pandas as pd
import pytest

from casebook import load_case, problem_sets, untrained
from casebook.cases.gsm8k.studies import smol
from casebook.records import studies
from casebook.settings import read_arms
from casebook.untrained import Part

GREEDY, SAMPLED = Part("chat", "test", 4), Part("chat", "validation", 2, 4, 0.7)
FORMED = "<reasoning>\n1\n</reasoning>\n<answer>\n{}\n</answer>"


@pytest.fixture(scope="module")
def completions():
    load = load_case("gsm8k").load
    right = {split: load(split, "smoke")["answer"][:] for split in ("test", "validation")}
    texts = {
        GREEDY: [
            FORMED.format(right["test"][0]),
            FORMED.format("-1"),
            f"The answer is {right['test'][2]}.",
            "<reasoning>\nI do not know",
        ],
        SAMPLED: [FORMED.format("-1"), *["-1"] * 3, *["no idea"] * 4],
    }
    rows = []
    for part, written in texts.items():
        for i, text in enumerate(written):
            at = (i // 4, "sample", i % 4) if part.samples else (i, "greedy", 0)
            rows.append([part.name, *at, text, 9, False])
    return pd.DataFrame(rows, columns=list(untrained.KEPT))


@pytest.fixture(scope="module")
def found(completions):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smol, "PROFILE", "smoke")
        return smol.found(completions, (GREEDY, SAMPLED))


def test_form_and_answers_are_apart(found):
    part = found[GREEDY.name]
    assert part["form and answers"] == {
        **{"both": 1, "form alone": 1, "answer alone": 1, "neither": 1},
    }
    values = {name: figure["value"] for name, figure in part["figures"].items()}
    assert (values["well_formed"], values["any tag"], values["all tags"]) == (0.5, 0.75, 0.5)
    assert (values["strict"], values["correct"], values["answered"]) == (0.25, 0.5, 0.75)
    by_form = part["answers by form"]
    assert {name: (f["value"], f["n"]) for name, f in by_form.items()} == {
        **{"with": (0.5, 2), "without": (0.5, 2)},
    }


def test_the_six_rewards_add_up(found):
    figures = found[GREEDY.name]["figures"]
    for form in smol.FORMS:
        parts = sum(figures[f"{form} {name}"]["value"] for name in smol.SIX)
        assert figures[form]["value"] == pytest.approx(parts, abs=1e-5)
    # 4.0, 2.0 and the one tag of the fourth
    assert figures["fixed"]["value"] == pytest.approx((4.0 + 2.0 + 0.0 + 0.125) / 4)


def test_silent_groups_and_the_rule_are_of_samples_only(found):
    assert "silent" not in found[GREEDY.name]
    part = found[SAMPLED.name]
    assert part["silent"]["fixed"]["4"]["value"] == 0.5
    assert part["silent"]["strict"]["4"]["value"] == 1.0
    assert part["figures"]["well_formed"]["value"] == 0.125
    assert part["can start"] is True


def test_the_training_starts_where_the_study_first_finds_that_one_can():
    """The parts stand in the order of their number of examples: the fewest that do."""
    found = studies.read("smol_gsm8k")["parts"]
    first = next(part for part in smol.PARTS if found[part.name].get("can start"))
    arm = read_arms("gsm8k")["with_examples"]["overrides"]
    assert (arm["variant"], arm["temperature"]) == (first.variant, first.temperature)


def test_the_committed_completions_give_the_committed_figures():
    if not problem_sets.available("gsm8k"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with gsm8k")
    assert smol.regraded() == studies.read("smol_gsm8k")["parts"]
