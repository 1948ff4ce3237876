"""Signs of gibberish: what each sees, and what each misses."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from casebook.cases.math.studies.gibberish import (
    HEALTHY,
    SIGNS,
    broken_latex,
    healthy_range,
    latex_fault,
    ngrams,
    of_run,
    one_text,
    pieces,
    recorded,
    repetition,
    surprise,
    unseen,
)
from casebook.records import studies
from casebook.training import Run

CORPUS = ["the sum of 3 and 4 is 7", "so x = 5 and the answer is 12"]
SALAD = "answer of is the 7 sum so x and ="
KNOWN = {n: ngrams(CORPUS, n) for n in (1, 2)}

texts = st.text() | st.text(alphabet="\\fracsqrtboxed{}$[] 12\n")


# Signs in texts


@given(texts)
def test_every_sign_of_a_text_is_a_share(text):
    for known in KNOWN.values():
        assert 0 <= unseen([text], known)[0] <= 1
    assert 0 <= repetition([text])[0] <= 1
    assert broken_latex([text])[0] in (0.0, 1.0)
    assert one_text([text]) == 1.0


def test_a_new_number_is_known_and_salad_is_not():
    assert pieces("<think>\n3x=15") == ["<think>", "0", "x", "=", "0"]
    assert unseen(["the sum of 30 and 41 is 71"], KNOWN[2]).tolist() == [0.0]
    assert unseen([SALAD], KNOWN[1]) == 0.0 < unseen([SALAD], KNOWN[2])


def test_a_loop_without_blanks_is_a_loop():
    assert repetition(["=5" * 20])[0] > 0.9
    assert repetition(["a b c d e"]).tolist() == [0.0]


@pytest.mark.parametrize(
    "text",
    [
        "no formula at all",
        r"$x^2$ and $$\frac{a}{b}$$",
        r"\frac12 \frac 1 2 \frac{1}2",
        r"\sqrt{2} \sqrt2 \sqrt[3]{5} \sqrt\frac{1}{2}",
        r"\boxed{\frac{\sqrt{3}}{2}} \boxed 5 \boxed{}",
        r"costs \$5, \{1, 2\}",
        r"\left( \frac{1}{2} \right]",
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
    ],
)
def test_latex_without_fault(text):
    assert latex_fault(text) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (r"\boxed{5", "braces"),
        ("}{", "braces"),
        (r"$5\$", "dollars"),
        (r"\left( x )", "brackets"),
        (r"\begin{a} x", "environments"),
        (r"\frac{1}", r"\frac lacks"),
        (r"\sqrt[3]", r"\sqrt lacks"),
        (r"{\boxed}", r"\boxed lacks"),
    ],
)
def test_faults_of_latex_are_named(text, fault):
    assert fault in latex_fault(text)


@pytest.mark.parametrize("hostile", ["\\frac" * 200_000, "{" * 1_000_000, "\\sqrt[" * 200_000])
def test_hostile_text_has_a_fault_and_no_consequence(hostile):
    assert latex_fault(hostile) is not None


# The sign that needs a model


class Fixed:
    """A model that gives every next token the same log-probabilities; token = character."""

    device = torch.device("cpu")

    def __init__(self, probabilities):
        self.logits = torch.tensor(probabilities).log()

    def __call__(self, input_ids, attention_mask):
        return SimpleNamespace(logits=self.logits.expand(*input_ids.shape, -1))


class Letters:
    """a, b and the end; everything else is unknown."""

    eos_token_id, unk_token_id = 2, 3

    def __call__(self, text):
        return SimpleNamespace(input_ids=["ab".find(c) if c in "ab" else 3 for c in text])


def test_surprise_is_the_mean_over_tokens_with_the_end():
    model = Fixed([0.5, 0.25, 0.125, 0.125])
    found = surprise(model, Letters(), ["a", "a"], ["ab", "ab"], [False, True])
    assert found == pytest.approx([math.log(2) * 1.5, math.log(2) * 2])

    found = surprise(model, Letters(), ["a"] * 2, ["a?b?", "??"], [False, False])  # ?: unknown
    assert found[0] == pytest.approx(math.log(2) * 1.5)
    assert np.isnan(found[1])


@given(st.lists(st.floats(0.05, 1), min_size=6, max_size=6))
def test_surprise_is_entropy_plus_kl(weights):
    policy, base = (np.array(w) / sum(w) for w in (weights[:3], weights[3:]))
    scored = surprise(
        Fixed([*base * (1 - 1e-9), 1e-9]), Letters(), ["a"] * 3, ["a", "b", ""], [0, 0, 1]
    )
    entropy, kl = -(policy * np.log(policy)).sum(), (policy * np.log(policy / base)).sum()
    assert policy @ scored == pytest.approx(entropy + kl, abs=1e-5)


# Over a run


def completions(step, texts):
    return pd.DataFrame(
        {
            "step": step,
            "prompt": [f"{i}?" for i in range(len(texts))],
            "completion": texts,
            "extracted": [None if text == SALAD else "7" for text in texts],
            "truncated": False,
            "strict": [text != SALAD for text in texts],
        }
    )


@pytest.fixture
def run(tmp_path):
    """Three logged steps, two evaluations, and completions of the first and last step."""
    lines = [
        {"kind": "train", "step": 1, "entropy": 0.2, "completions/mean_length": 9.0},
        {"kind": "train", "step": 2, "entropy": 0.3, "completions/mean_length": 9.5},
        {"kind": "validation", "step": 0, "sampled_accuracy": 0.5, "kl_from_base": 0.0},
        {"kind": "train", "step": 3, "entropy": 1.9, "completions/mean_length": 30.0},
        {"kind": "validation", "step": 3, "sampled_accuracy": 0.1, "kl_from_base": 2.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "completions").mkdir()
    for step, text in ((1, CORPUS[0]), (3, SALAD)):
        path = tmp_path / "completions" / f"train_{step:05d}.parquet"
        completions(step, [text] * 2).to_parquet(path)
    return Run(tmp_path)


def test_the_signs_of_a_run_stand_by_step(run):
    signs = of_run(run, KNOWN)
    assert list(signs.columns) == [*SIGNS, "accuracy"]
    assert signs["entropy"].dropna().to_dict() == {1: 0.2, 2: 0.3, 3: 1.9}
    assert signs["accuracy"].dropna().to_dict() == {0: 0.5, 3: 0.1}
    assert signs["no answer"].dropna().to_dict() == {1: 0.0, 3: 1.0}
    assert signs["unknown pairs"][1] == 0.0 < signs["unknown pairs"][3]
    assert signs["surprise of base"].isna().all()  # there was no base
    assert signs["gradient norm"].isna().all()  # it was not logged


# What is healthy


@pytest.mark.parametrize(
    ("way", "expected"), [(1, (-math.inf, 3.5)), (-1, (0.5, math.inf)), (0, (0.5, 3.5))]
)
def test_the_healthy_range_is_open_where_nobody_looks(way, expected):
    curves = [pd.Series([1.0, np.nan]), pd.Series([3.0])]
    assert healthy_range(curves, way) == expected


def test_the_record_has_the_signs_of_the_runs_that_are_read():
    signs = recorded(studies.read("gibberish"))
    assert {HEALTHY, "hot"} <= set(signs)
    for frame in signs["hot"].values():
        assert list(frame.columns) == [*SIGNS, "accuracy"]
        assert frame["accuracy"].max() - frame["accuracy"].dropna().iloc[-1] > 0.2  # it fell
