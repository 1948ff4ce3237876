"""Pictures: drawn from what there is, shown with alternative text, the same bytes every time."""

import base64

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from casebook import CasebookError, plots
from casebook.stats import mean_interval

LABELS = ("high card", "one pair", "flush")
STEPS = np.arange(1, 21)
METRICS = pd.DataFrame(
    {
        "step": STEPS,
        "reward": STEPS / 20,
        "rewards/class_weighted/mean": STEPS / 30,
        "rewards/my_own/mean": STEPS / 40,
        "frac_reward_zero_std": 0.5,
        "completions/mean_length": 40.0,
        "completions/clipped_ratio": 0.1,
        "entropy": 0.3,
        "kl": 0.01,
    }
)
VALIDATION = pd.DataFrame({"step": [0, 10, 20], "kl_from_base": [0.0, 0.1, 0.2]})
FIGURE = mean_interval([1, 1, 0, 1])


def words(drawn):
    """All that is written in the panels of a figure."""
    return " | ".join(
        text.get_text() for ax in drawn.axes for text in (*ax.texts, ax.title, ax.xaxis.label)
    )


@pytest.fixture
def figures_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("CASEBOOK_FIGURES_DIR", str(tmp_path / "figures"))
    return tmp_path / "figures"


# Showing


def test_a_notebook_gets_the_picture_with_its_alternative_text(figures_dir, monkeypatch):
    import IPython
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: object())
    monkeypatch.setattr(IPython.display, "display", lambda *a, **k: shown.append((a, k)))
    plots.show(plots.figure("A finding")[0], "x", "An empty picture.")
    (data,), options = shown[0]
    assert base64.b64decode(data["image/png"]) == (figures_dir / "x.png").read_bytes()
    assert data["text/plain"] == "An empty picture."
    assert options["metadata"] == {"image/png": {"alt": "An empty picture."}}
    assert len(shown) == 1


def test_a_picture_without_alternative_text_is_refused(figures_dir):
    with pytest.raises(CasebookError, match="alternative text"):
        plots.show(plots.figure("x")[0], "x", " ")
    assert not figures_dir.exists()


# The dashboard


def test_the_dashboard_draws_every_panel():
    drawn = plots.dashboard(METRICS, "Reward rises")
    text = words(drawn)
    assert drawn.get_suptitle() == "Reward rises"
    for label in ("class_weighted", "my_own", "weighted sum", "KL", "entropy"):
        assert label in text
    assert "not measured" not in text
    assert " logged" not in text


def test_the_dashboard_tells_strict_groups_from_those_with_none_where_completions_are_there():
    rows = [(1, "a", True), (1, "a", True), (1, "b", False), (1, "b", False), (2, "a", True)]
    completions = pd.DataFrame(rows, columns=["step", "prompt", "strict"]).assign(tokens=9)
    text = words(plots.dashboard(METRICS, "x", completions=completions))
    assert "all strict" in text
    assert "none strict" in text


@pytest.mark.parametrize("column", [c for c in METRICS if c != "step"])
def test_the_dashboard_does_without_any_one_column(column):
    for metrics in (METRICS.drop(columns=column), METRICS.assign(**{column: np.nan})):
        plots.dashboard(metrics, "x").canvas.draw()


def test_kl_comes_from_the_loss_or_from_held_out_prompts_or_is_said_to_be_missing():
    without = METRICS.drop(columns="kl")
    assert "KL not measured" in words(plots.dashboard(without, "x"))
    assert "KL not measured" in words(plots.dashboard(without, "x", VALIDATION[["step"]]))
    text = words(plots.dashboard(without, "x", VALIDATION))
    assert "KL, held out" in text
    assert "not measured" not in text
    assert "held out" not in words(plots.dashboard(METRICS, "x", VALIDATION))


# The others


def test_learning_curves_are_drawn():
    runs = [pd.DataFrame({"step": [0, 10], "greedy_accuracy": [a, b]}) for a, b in ((0, 1), (1, 1))]
    drawn = plots.learning_curve(runs, {"greedy_accuracy": "greedy"}, "x")
    assert isinstance(drawn, Figure)
    assert drawn.axes[0].lines[-1].get_ydata().tolist() == [0.5, 1.0]
