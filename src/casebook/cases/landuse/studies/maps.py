"""Maps of a landscape: a plan, a value for every parcel, and what changes between two plans.

Land use is read off a map faster than off a table. One colour a label, the same in every figure
of the case: five of Okabe and Ito (2008), which stay apart for readers who see colours
differently, and differ in lightness, too. Land that is habitat already is the same green as new
habitat, darker and hatched: it was not decided.

The maps are drawn in the coordinates of the parcels, north up as far as their CRS has it, with a
scale bar in place of axes. Alternative text is given where a figure is shown (`plots.show`).
"""

from collections.abc import Collection, Sequence

import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.path import Path

from casebook import plots
from casebook.case import CasebookError, check_name
from casebook.cases.landuse.fields import HABITAT, LABELS
from casebook.cases.landuse.landscape import Landscape

COLOURS = {
    "wheat": "#F0E442",
    "oat": "#E69F00",
    "habitat": "#009E73",
    "corn": "#D55E00",
    "soy": "#56B4E9",
}
EXISTING = "#00553e"  # habitat already
UNCHANGED = "#ededed"
NOTHING = "#ffffff"
EDGE = "#ffffff"
MAP_WIDTH = 4.6  # inches of a single map, without its legend
VALUES = LinearSegmentedColormap.from_list(
    "values", ["#f7fbff", "#a9d0ea", plots.COLORS["policy"], "#06283d"]
)


def plan_map(
    landscape: Landscape, labels: Sequence[str], title: str, ax: Axes | None = None
) -> Figure:
    """What is planted where: one colour a label, existing habitat darker and hatched.

    Args:
        landscape: the parcels.
        labels: one of `LABELS` a parcel.
        title: the finding; written above the axes if `ax` is given.
        ax: axes of a figure of one's own, for maps side by side; such a map has no legend of
            its own (`legend(figure)` draws one for all of them).

    Raises:
        CasebookError: not as many labels as parcels, or an unknown one.

    >>> from casebook.cases.landuse.landscape import generate
    >>> landscape = generate(4, 5)
    >>> figure = plan_map(landscape, ["habitat"] * 20, "Habitat alone")
    """
    labels = _checked(landscape, labels)
    alone = ax is None
    ax = _axes(landscape, title, ax, right=1.15)
    colours = np.array([COLOURS[label] for label in labels], dtype=object)
    colours[landscape.habitat] = EXISTING
    _draw(ax, landscape, colours)
    if alone:  # only then is there room for a legend
        _legend_beside(ax, _entries(landscape, {labels[i] for i in landscape.decidable}))
    return ax.figure


def legend(drawn: Figure, landscape: Landscape) -> None:
    """One legend of all labels below the maps of a figure of one's own."""
    entries = _entries(landscape, LABELS)
    drawn.legend(handles=entries, loc="outside lower left", ncols=len(entries), fontsize=8)


def value_map(
    landscape: Landscape,
    values: Sequence[float],
    title: str,
    label: str,
    ax: Axes | None = None,
    diverging: bool = False,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """A number for every parcel: a yield, connectivity, regret. Darker is more.

    Args:
        landscape: the parcels.
        values: one number a parcel; parcels with `nan` stay white and hatched.
        title: the finding; written above the axes if `ax` is given.
        label: what is shown, with its unit.
        ax: axes of a figure of one's own.
        diverging: white is 0, blue more, orange less.
        limits: the values at both ends of the scale; the data's by default.

    Raises:
        CasebookError: not as many numbers as parcels, an infinite one, or none at all.
    """
    values = np.asarray(values, dtype=float)
    if values.shape != (len(landscape),):
        raise CasebookError(f"a map of {len(landscape)} parcels, but values of {values.shape}")
    known = values[~np.isnan(values)]
    if not known.size or np.isinf(known).any():
        raise CasebookError("a map needs finite values, at least one")
    low, high = limits or (known.min(), known.max())
    if diverging and limits is None:
        high = np.abs(known).max()
        low = -high
    if high <= low:
        high = low + 1
    scale, colours = Normalize(low, high), plots.CHANGE if diverging else VALUES
    ax = _axes(landscape, title, ax, right=0.95)
    shown = np.array([NOTHING] * len(values), dtype=object)
    shown[~np.isnan(values)] = [to_hex(colour) for colour in colours(scale(known))]
    _draw(ax, landscape, shown, hatched=np.isnan(values), hatch_colour="#c9c9c9")
    _colour_bar(ax, scale, colours, label)
    return ax.figure


def change_map(
    landscape: Landscape,
    before: Sequence[str],
    after: Sequence[str],
    title: str,
    ax: Axes | None = None,
) -> Figure:
    """Where two plans differ: parcels that changed in their new colour, the rest in grey.

    Args:
        landscape: the parcels.
        before: one of `LABELS` a parcel.
        after: the same; its colours are shown.
        title: the finding; written above the axes if `ax` is given.
        ax: axes of a figure of one's own.

    Raises:
        CasebookError: not as many labels as parcels, or an unknown one.
    """
    before, after = _checked(landscape, before), _checked(landscape, after)
    changed = [a != b for a, b in zip(before, after, strict=True)]
    alone = ax is None
    ax = _axes(landscape, title, ax, right=1.45)
    colours = np.array(
        [COLOURS[label] if new else UNCHANGED for label, new in zip(after, changed, strict=True)],
        dtype=object,
    )
    colours[landscape.habitat] = EXISTING
    _draw(ax, landscape, colours)
    if alone:
        new = [label for label, differs in zip(after, changed, strict=True) if differs]
        entries = [Patch(facecolor=COLOURS[k], label=f"now {k}") for k in LABELS if k in new]
        entries += [Patch(facecolor=UNCHANGED, label="the same")]
        _legend_beside(ax, entries + _entries(landscape, ()))
    return ax.figure


def _checked(landscape: Landscape, labels: Sequence[str]) -> list[str]:
    labels = list(labels)
    if len(labels) != len(landscape):
        raise CasebookError(f"a map of {len(landscape)} parcels, but {len(labels)} labels")
    for label in labels:
        check_name("label", label, LABELS)
    return labels


def _axes(landscape: Landscape, title: str, ax: Axes | None, right: float) -> Axes:
    """Axes for a map without ticks; a new figure as high as the map needs, with `right` inches
    for what stands beside it."""
    west, south, east, north = landscape.parcels.total_bounds
    if ax is None:
        width = MAP_WIDTH + right
        height = np.clip(MAP_WIDTH * (north - south) / (east - west), 1.6, 7.0)
        ax = plots.figure(title, width, height + 0.65)[1]
    else:
        ax.set_title(title)
    pad = 0.01 * max(east - west, north - south)
    ax.set_xlim(west - pad, east + pad)
    ax.set_ylim(south - pad, north + pad)
    ax.set_aspect("equal")
    ax.set_axis_off()
    _scale_bar(ax, west, south - pad, east - west)
    return ax


def _draw(
    ax: Axes,
    landscape: Landscape,
    colours: np.ndarray,
    hatched: np.ndarray | None = None,
    hatch_colour: str = "#4f9c84",
) -> None:
    paths = [_path(shape) for shape in landscape.parcels.geometry]
    hatched = landscape.habitat if hatched is None else hatched
    # Thin borders; none on large maps, where they would be all there is.
    line = 0.4 if len(paths) <= 1500 else 0.0
    edges = EDGE if line else "face"
    for which, hatch in ((~hatched, None), (hatched, "////")):
        chosen = np.flatnonzero(which)
        drawn = PathCollection(
            [paths[i] for i in chosen],
            facecolors=list(colours[chosen]),
            edgecolors=edges,
            linewidths=line,
        )
        if hatch:
            drawn.set_hatch(hatch)
            drawn.set_hatchcolor(hatch_colour)
        ax.add_collection(drawn)


def _path(shape: shapely.Polygon) -> Path:
    """A polygon with its holes as one path: GeoPandas' own drawing costs ten times the time."""
    shape = shapely.geometry.polygon.orient(shape)
    rings = [shape.exterior, *shape.interiors]
    return Path.make_compound_path(*[Path(shapely.get_coordinates(r), closed=True) for r in rings])


def _scale_bar(ax: Axes, west: float, below: float, width: float) -> None:
    """A bar of 1, 2 or 5 x 10^k km, at most a quarter of the map, below its left corner."""
    km = width / 1000 / 4
    step = 10 ** np.floor(np.log10(km))
    length = max(factor for factor in (1, 2, 5) if factor * step <= km * 1.0001) * step
    axis = ax.get_xaxis_transform()
    ax.plot(
        [west, west + 1000 * length],
        [-0.02, -0.02],
        transform=axis,
        color="#333333",
        linewidth=2,
        solid_capstyle="butt",
        clip_on=False,
    )
    ax.text(
        west + 1000 * length,
        -0.02,
        f"  {length:g} km",
        transform=axis,
        va="center",
        fontsize=8,
        clip_on=False,
    )


def _entries(landscape: Landscape, decided: Collection[str]) -> list[Patch]:
    """The legend's entries for the `decided` labels, in order, and for habitat already."""
    entries = [
        Patch(facecolor=COLOURS[k], label="new habitat" if k == HABITAT else k)
        for k in LABELS
        if k in decided
    ]
    if landscape.habitat.any():
        existing = Patch(facecolor=EXISTING, hatch="////", label="habitat already")
        existing.set_edgecolor("#4f9c84")
        entries.append(existing)
    return entries


def _legend_beside(ax: Axes, entries: list[Patch]) -> None:
    ax.legend(
        handles=entries,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.3,
        handlelength=1.2,
        handleheight=1.2,
    )


def _colour_bar(ax: Axes, scale: Normalize, colours: Colormap, label: str) -> None:
    from matplotlib.cm import ScalarMappable

    bar = ax.figure.colorbar(
        ScalarMappable(scale, colours), ax=ax, shrink=0.7, aspect=22, pad=0.02, anchor=(0, 0.9)
    )
    bar.set_label(label)
    bar.outline.set_visible(False)
