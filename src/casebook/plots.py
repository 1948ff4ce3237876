"""The figures of the course: one style, fixed colours, titles that state the finding.

Importing this module switches matplotlib to `casebook.mplstyle`. Every function takes measured
numbers and a title, which is the finding, and returns a figure; `show` puts it into a notebook,
with its alternative text, and into a file.

Grey is the base model, blue the trained policy, a dashed black line the oracle; each reward part
has a colour of its own. The colours are those of Okabe and Ito (2008), which stay apart for
readers who see colours differently.
"""

import base64
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image

from casebook import paths
from casebook.case import CasebookError

style.use("casebook.casebook")

COLORS: Mapping[str, str] = {
    "base": "#8a8a8a",
    "policy": "#0072B2",
    "oracle": "#000000",
    "baseline": "#c4c4c4",
    "planted": "#E69F00",
    "greedy": "#0072B2",
    "sampled": "#56B4E9",
    "lenient": "#CC79A7",
    "well formed": "#009E73",
    # reward parts
    "correct": "#D55E00",
    "class_weighted": "#D55E00",
    "tag_format": "#009E73",
    "answer_grammar": "#CC79A7",
    "repetition": "#E69F00",
}
# For reward parts without a colour of their own.
SPARE = ("#56B4E9", "#7a5195", "#a05d00", "#3b7d4f", "#aa4499", "#999933")
BEHIND_TEXT = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
WINDOW = 7  # logged steps that a dashboard's thick lines average
BLUES = LinearSegmentedColormap.from_list("", ["#ffffff", COLORS["policy"]])
CHANGE = LinearSegmentedColormap.from_list("", [COLORS["correct"], "#ffffff", COLORS["policy"]])


def figure(
    title: str, width: float = 6.4, height: float = 3.6, rows: int = 1, columns: int = 1
) -> tuple[Figure, Axes]:
    """An empty figure and its axes (an array for several), to draw on.

    Made without pyplot: no figure stays open, and none is shown twice.

    >>> drawn, axes = figure("Rewards rise")
    >>> line = axes.plot([0, 1])
    """
    drawn = Figure(figsize=(width, height))
    # Over the whole width, not over the axes: a finding takes more room than a name.
    drawn.suptitle(textwrap.fill(title, int(11 * width)), x=0.012, ha="left")
    return drawn, drawn.subplots(rows, columns)


def show(drawn: Figure, name: str, alt: str) -> None:
    """Show a figure in the notebook with its alternative text, and write `name`.png.

    The file goes to `paths.figures_dir()`; of those in `figures/` git keeps the ones that README
    and docs show (`.gitignore`).

    Args:
        name: of the file, without ending: the notebook's, two underscores, the picture's.
        alt: one sentence for those who cannot see the picture: what it shows, not its title.

    Raises:
        CasebookError: no alternative text.
    """
    if not alt.strip():
        raise CasebookError(f"the figure {name!r} needs a sentence of alternative text")
    raw, small = io.BytesIO(), io.BytesIO()
    drawn.savefig(raw, format="png", metadata={"Software": None})  # not the version that drew it
    few = {"method": Image.Quantize.MAXCOVERAGE, "kmeans": 1, "dither": Image.Dither.NONE}
    image = Image.open(raw).convert("RGB").quantize(32, **few)  # no two lines become one colour
    image.save(small, format="png", optimize=True)
    png, folder = small.getvalue(), paths.figures_dir()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.png").write_bytes(png)

    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is not None:  # to a script the file is all
        shown = {"image/png": base64.b64encode(png).decode(), "text/plain": alt}
        display(shown, metadata={"image/png": {"alt": alt}}, raw=True)


# Training


def dashboard(
    metrics: pd.DataFrame,
    title: str,
    validation: pd.DataFrame | None = None,
    findings: Sequence[Any] | None = None,
    completions: pd.DataFrame | None = None,
) -> Figure:
    """A training in four panels: rewards, silent groups, length, KL and entropy.

    Thin lines are the logged steps, thick ones their moving average, dots the few steps whose
    completions were kept. A panel whose columns are missing says so. Where the loss has no KL term
    (beta = 0), the distance from the base measured on validation prompts is shown instead.

    Args:
        metrics: one row per logged step, in TRL's metric names; all but `step` may be missing.
        validation: one row per evaluation: `step` and perhaps `kl_from_base`.
        findings: what `casebook.doctor` found, written below the panels.
        completions: of the run: the groups in which all or none are strict, and the lengths of
            strict completions and of the others, are drawn from them.

    Raises:
        CasebookError: no rows, or no column `step`.
    """
    if "step" not in metrics or metrics.empty:
        raise CasebookError("a dashboard needs metrics with at least one row and a column 'step'")
    if completions is not None and len(completions):
        metrics = metrics.merge(_graded_steps(completions), how="left", on="step")
    drawn, axes = figure(title, 9.6, 6.0, 2, 2)
    _rewards_panel(axes[0, 0], metrics)
    _groups_panel(axes[0, 1], metrics)
    _length_panel(axes[1, 0], metrics)
    _kl_panel(axes[1, 1], metrics, validation)
    ends = metrics["step"].min() - 1, metrics["step"].max() + 1
    for ax in axes.flat:
        ax.set(xlim=ends, xlabel="optimiser step" if ax in axes[1] else "")
    if findings is not None:
        lines = [textwrap.fill(f"! {f.message} {f.evidence} {f.advice}", 125) for f in findings]
        said = "\n".join(lines) or "The doctor found no fault."
        color = "#b3471d" if lines else "#333333"
        drawn.supxlabel(said, x=0.012, ha="left", fontsize=8, color=color)
    return drawn


def learning_curve(runs: Sequence[pd.DataFrame], columns: Mapping[str, str], title: str) -> Figure:
    """Held-out shares over training: a thin line for each seed, a thick one for their mean.

    Args:
        runs: one frame per seed, with `step` and `columns`.
        columns: column -> its name in the figure, which also decides its colour.
    """
    drawn, ax = figure(title)
    ends = []
    for column, label in columns.items():
        color = COLORS.get(label, SPARE[len(ends) % len(SPARE)])
        curves = [run.dropna(subset=[column]).set_index("step")[column] for run in runs]
        if len(curves) > 1:
            for curve in curves:
                ax.plot(curve.index, curve, color=color, linewidth=0.8, alpha=0.5)
        mean = pd.concat(curves, axis=1, join="inner").mean(axis=1)
        dashes = {"well formed": "--", "lenient": "-."}.get(label, "-")  # apart in grey, too
        ax.plot(mean.index, mean, color=color, linestyle=dashes, marker="o", markersize=3.5)
        ends.append((float(mean.iloc[-1]), label, color))
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("optimiser step")
    ax.set_ylabel("share of held-out prompts")
    label_ends(ax, ends)
    return drawn


# Accuracy


def accuracy_bars(
    figures: Mapping[str, Mapping[str, float] | float],
    title: str,
    roles: Mapping[str, str] | None = None,
    xlabel: str = "accuracy, with 95 % interval",
) -> Figure:
    """One bar per method, with interval and number; a plain number is drawn without interval.

    Args:
        figures: name -> figure (`value`, `low`, `high`), or a number known exactly.
        roles: name -> key of `COLORS`; `baseline` for names left out. The role `oracle` is drawn as
            a dashed line.
        xlabel: the quantity that the bars show.
    """
    roles = roles or {}
    drawn, ax = figure(title, height=0.8 + 0.27 * max(len(figures), 4))
    names = [name for name in figures if roles.get(name) != "oracle"]
    for position, name in enumerate(names):
        entry = figures[name]
        measured = isinstance(entry, Mapping)
        value = entry["value"] if measured else float(entry)
        high = entry["high"] if measured else value
        ax.barh(position, value, 0.7, color=COLORS[roles.get(name, "baseline")])
        if measured:
            _whisker(ax, entry, position)
        ax.text(high + 0.012, position, f"{value:.1%}", va="center", bbox=BEHIND_TEXT)
    for name in figures:
        if roles.get(name) == "oracle":
            ax.axvline(float(figures[name]), color=COLORS["oracle"], linestyle="--", linewidth=1)
            ax.text(float(figures[name]) - 0.01, len(names) + 0.3, name, ha="right", va="bottom")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.1 + (0.5 if len(names) < len(figures) else 0), -0.6)
    _share_axis(ax, xlabel, 1.09)
    return drawn


def per_class(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]], title: str
) -> Figure:
    """Recall by label with intervals, of the base model (label -> figure) and after GRPO."""
    drawn, ax = figure(title, height=0.8 + 0.3 * max(len(before), 4))
    for position, label in enumerate(before):
        if label in after:
            ends = before[label]["value"], after[label]["value"]
            ax.plot(ends, (position, position), color="#d0d0d0", linewidth=3, zorder=1)
        for figures, role in ((before, "base"), (after, "policy")):
            if label in figures:
                _whisker(ax, figures[label], position, COLORS[role])
                ax.plot(figures[label]["value"], position, "o", color=COLORS[role], markersize=6)
    for figures, role, name in ((before, "base", "base"), (after, "policy", "after GRPO")):
        first = next(iter(figures.values()))["value"]
        ax.text(first, -0.55, name, color=COLORS[role], ha="center", fontweight="bold")
    ax.set_yticks(range(len(before)), list(before))
    ax.set_ylim(len(before) - 0.4, -1.0)
    _share_axis(ax, "recall, with 95 % interval", 1.02)
    return drawn


def confusion_matrix(table: pd.DataFrame, title: str) -> Figure:
    """Which answer was read for which label, in percent of the label's completions.

    `table` has counts, label by answer.
    """
    shares = table.div(table.sum(axis=1).clip(lower=1), axis=0).to_numpy(dtype=float)
    rows, columns = shares.shape
    drawn, ax = figure(title, 6.4, 1.5 + 0.36 * rows)
    ax.imshow(shares, vmin=0, vmax=1, aspect="auto", cmap=BLUES)
    for (row, column), share in np.ndenumerate(shares):
        if share >= 0.005:
            color = "#ffffff" if share > 0.6 else "#222222"
            ax.text(column, row, f"{100 * share:.0f}", ha="center", va="center", color=color)
    ax.set_xticks(
        range(columns), list(table.columns), rotation=35, ha="right", rotation_mode="anchor"
    )
    ax.set_yticks(range(rows), list(table.index))
    ax.set_xlabel("answer read, % of row")
    ax.set_ylabel("right label")
    ax.grid(False)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return drawn


def grouped_bars(table: pd.DataFrame, title: str, xlabel: str) -> Figure:
    """Shares side by side: one group per row, one bar per column.

    Args:
        table: shares; the columns are keys of `COLORS`.
        xlabel: what the shares are of.
    """
    rows, columns = table.shape
    drawn, ax = figure(title, height=1.0 + (0.1 + 0.15 * columns) * rows)
    thickness = 0.78 / columns
    for k, role in enumerate(table.columns):
        positions = np.arange(rows) + (k - (columns - 1) / 2) * thickness
        ax.barh(positions, table[role], 0.9 * thickness, color=COLORS[role])
        for position, share in zip(positions, table[role], strict=True):
            first = position == positions[0]  # the first group names the colours
            said = f"{100 * share:.1f}".removesuffix(".0") + "%"
            look = {"fontsize": 7, "color": "#222222", "bbox": BEHIND_TEXT, "va": "center"}
            if first:
                said += f" {role}"
                look |= {"fontsize": 8, "fontweight": "bold", "color": COLORS[role]}
            ax.annotate(said, (share, position), (3, 0), textcoords="offset points", **look)
    ax.set_yticks(range(rows), list(table.index))
    ax.set_ylim(rows - 0.4, -0.6)
    _share_axis(ax, xlabel, 1.12 * max(table.to_numpy().max(), 0.1))
    return drawn


# Panels of the dashboard


def _graded_steps(completions: pd.DataFrame) -> pd.DataFrame:
    """By step: the shares of prompts of whose completions all or none are strict, and the mean
    tokens of those that are strict and of the others."""
    rates = completions.groupby(["step", "prompt"])["strict"].mean()
    shares = {"all strict": rates == 1, "none strict": rates == 0}
    found = {name: share.groupby("step").mean() for name, share in shares.items()}
    lengths = completions.groupby(["step", "strict"])["tokens"].mean().unstack()
    for strict, name in ((True, "strict"), (False, "others")):
        if strict in lengths:
            found[f"tokens, {name}"] = lengths[strict]
    return pd.DataFrame(found).reset_index()


def _rewards_panel(ax: Axes, metrics: pd.DataFrame) -> None:
    ax.set_title("Reward parts (mean)")
    names = [c.split("/")[1] for c in metrics if re.fullmatch("rewards/.*/mean", c)]
    spare = cycle(SPARE)
    curves = [(f"rewards/{n}/mean", n, COLORS.get(n) or next(spare)) for n in names]
    if "reward" in metrics and len(names) != 1:
        curves.append(("reward", "weighted sum", COLORS["policy"]))
    _curves(ax, metrics, curves, "rewards")


def _groups_panel(ax: Axes, metrics: pd.DataFrame) -> None:
    ax.set_title("Silent groups; completions cut at the limit")
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    shares = [("frac_reward_zero_std", "silent", COLORS["policy"])]
    for name, role in (("all strict", "well formed"), ("none strict", "correct")):
        shares.append((name, name, COLORS[role]))
    shares += [("completions/clipped_ratio", "cut", COLORS["planted"])]
    ax.set_ylim(0, 1.02)
    _curves(ax, metrics, shares, "groups")


def _length_panel(ax: Axes, metrics: pd.DataFrame) -> None:
    ax.set_title("Completion length (mean tokens)")
    curves = [("completions/mean_length", "all", COLORS["policy"])]
    curves += [("tokens, strict", "strict", COLORS["well formed"])]
    curves += [("tokens, others", "others", COLORS["planted"])]
    _curves(ax, metrics, curves, "lengths", bottom=0)


def _kl_panel(ax: Axes, metrics: pd.DataFrame, validation: pd.DataFrame | None) -> None:
    ax.set_title("KL from the base and entropy (nats a token)")
    gap = ("sampler_gap", "sampler's gap", COLORS["planted"])  # where rounded weights sample
    curves, ends = [("entropy", "entropy", COLORS["well formed"]), gap], []
    if "kl" in metrics and metrics["kl"].notna().any():
        curves.append(("kl", "KL", COLORS["policy"]))
    elif validation is not None and "kl_from_base" in validation:
        measured = validation.dropna(subset=["kl_from_base"])
        ax.plot(measured["step"], measured["kl_from_base"], "o-", color=COLORS["policy"], ms=3.5)
        ends = [(float(v), "KL, held out", COLORS["policy"]) for v in measured["kl_from_base"][-1:]]
    else:
        ax.text(0.98, 0.9, "KL not measured", transform=ax.transAxes, ha="right", color="#777777")
    _curves(ax, metrics, curves, "entropy", ends)
    ax.set_ylim(min(0, ax.get_ylim()[0]), None)


def _curves(
    ax: Axes,
    metrics: pd.DataFrame,
    curves: Sequence[tuple[str, str, str]],
    what: str,
    ends: Sequence[tuple[float, str, str]] = (),
    bottom: float | None = None,
) -> None:
    """Draw (column, label, colour) as thin raw and thick averaged lines, or dots where few."""
    ends, drawn = list(ends), bool(ends)
    dashes = cycle(("--", "-.", ":"))  # apart in grey, too
    for column, label, color in curves:
        if column not in metrics or metrics[column].isna().all():
            continue
        drawn = True
        values = metrics.set_index("step")[column].dropna().astype(float)
        seldom = len(values) == 1 or len(values) < len(metrics) / 2  # where completions were kept
        smooth = values.rolling(1 if seldom else WINDOW, center=True, min_periods=1).mean()
        ax.plot(values, color=color, linewidth=0.7, alpha=0.4)
        look = "-" if color == COLORS["policy"] else next(dashes)
        ax.plot(smooth, "o" if seldom else look, color=color, markersize=4)
        ends.append((float(smooth.iloc[-1]), label, color))
    if not drawn:
        ax.text(0.5, 0.5, f"no {what} logged", transform=ax.transAxes, ha="center", color="#777777")
        ax.set_yticks([])
    ax.set_ylim(bottom=bottom)  # before the labels, which are moved apart on this scale
    label_ends(ax, ends)


# Parts


def label_ends(ax: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write (height, text, colour) to the right of the axes, moved apart where they collide.

    A thin line leads from where a curve ends to its label.
    """
    bottom, top = ax.get_ylim()
    height = ax.get_position().height * ax.figure.get_figheight() * 72
    gap = 11 / max(height, 1) * (top - bottom)
    ordered = sorted(ends)
    places = np.array([end for end, *_ in ordered])
    for _ in range(50):  # each push parts two neighbours by as much as they lack
        for i in range(1, len(places)):
            push = max(0.0, gap - (places[i] - places[i - 1])) / 2
            places[i - 1 : i + 1] += -push, push
    places += max(0.0, bottom - min(places, default=bottom))
    places -= max(0.0, max(places, default=top) - top)
    line = {"arrowstyle": "-", "linewidth": 0.6, "shrinkB": 0, "relpos": (0, 0.5)}
    look = {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
    look |= {"fontsize": 8, "annotation_clip": False}
    for place, (end, text, color) in zip(places, ordered, strict=True):
        look |= {"color": color, "arrowprops": line | {"color": color}}
        ax.annotate(text, (1, end), (12, (place - end) / gap * 11), **look)


def _whisker(ax: Axes, entry: Mapping[str, float], position: float, color: str = "#222222") -> None:
    value = entry["value"]
    below, above = max(value - entry["low"], 0), max(entry["high"] - value, 0)
    ax.errorbar(value, position, xerr=[[below], [above]], fmt="none", ecolor=color, elinewidth=1.1)


def _share_axis(ax: Axes, xlabel: str, right: float) -> None:
    """Horizontal bars of shares: the scale below, no lines but the bars themselves."""
    ax.set_xlim(0, right)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlabel(xlabel)
    ax.grid(False)
    ax.grid(True, axis="x")
    ax.spines["left"].set_visible(False)
