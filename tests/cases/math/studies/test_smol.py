"""A real model on MATH before training: what is made of its completions."""

import pandas as pd
import pytest

from casebook import load_case, problem_sets, untrained
from casebook.cases.math.studies import smol
from casebook.records import studies
from casebook.untrained import Part

PART = Part("reason", "test", 2, 2)


def test_ends_boxes_and_answers_are_apart(monkeypatch):
    monkeypatch.setattr(smol, "PROFILE", "smoke")
    right = load_case("math").load("test", "smoke")["answer"][:2]
    written = [
        (f"<think>1</think> \\boxed{{{right[0]}}}", 100, False),
        (f"So \\boxed{{{right[0]}}}, as was asked for.", 300, False),
        ("and so on", 512, True),
        ("I do not know.", 5, False),
    ]
    rows = [
        [PART.name, i // 2, "sample", i % 2, text, tokens, cut]
        for i, (text, tokens, cut) in enumerate(written)
    ]
    found = smol.found(pd.DataFrame(rows, columns=list(untrained.KEPT)), [PART])[PART.name]
    values = {name: figure["value"] for name, figure in found["figures"].items()}
    assert (values["strict"], values["boxed"], values["correct"]) == (0.25, 0.5, 0.5)
    assert values["truncated"] == 0.25
    ended = {tokens: figure["value"] for tokens, figure in found["ended"].items()}
    assert ended == {"128": 0.5, "256": 0.5, "512": 0.75}
    silent = {name: sizes["2"]["value"] for name, sizes in found["silent"].items()}
    assert silent == {"strict": 0.5, "boxed": 1.0, "correct": 1.0}
    assert sum(figure["n"] for figure in found["by level"].values()) == 2


def test_the_committed_completions_give_the_committed_figures():
    if not problem_sets.available("math500"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with math/math500.jsonl")
    assert smol.regraded() == studies.read("smol_math")["parts"]
