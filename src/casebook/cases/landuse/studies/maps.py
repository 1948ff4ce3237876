"""Maps of a landscape: a plan, or a value for every parcel.

One colour a label, the same in every figure of the case: hues of Okabe and Ito (2008), which stay
apart for readers who see colours differently, at lightnesses that stay apart in grey. Habitat is
hatched. Land that is habitat already is darker than new habitat: it was not decided.
"""

from collections.abc import Sequence

import numpy as np
import shapely
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PathCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.path import Path

from casebook import plots
from casebook.cases.landuse.fields import HABITAT, LABELS
from casebook.cases.landuse.landscape import Landscape

COLOURS = {
    "wheat": "#F0E442",
    "oat": "#CB8A00",
    "habitat": "#009E73",
    "corn": "#B04A00",
    "soy": "#7FCBF5",
}
EXISTING = "#00553e"  # habitat already
NOTHING = "#ffffff"
HATCHES = {COLOURS["habitat"]: ("....", "#b9ead9"), EXISTING: ("////", "#4f9c84")}
HATCHES[NOTHING] = ("////", "#c9c9c9")
MAP_WIDTH = 4.6  # inches of a single map, without its legend
VALUES = LinearSegmentedColormap.from_list(
    "values", ["#f7fbff", "#a9d0ea", plots.COLORS["policy"], "#06283d"]
)


def plan_map(landscape: Landscape, labels: Sequence[str], title: str, ax: Axes) -> None:
    """What is planted where: one colour a label, existing habitat darker, habitat hatched.

    `legend(figure, landscape)` draws one legend for all maps of a figure.
    """
    ax.set_title(title)
    colours = np.array([COLOURS[label] for label in labels], dtype=object)
    colours[landscape.habitat] = EXISTING
    _draw(ax, landscape, colours)


def legend(drawn: Figure, landscape: Landscape) -> None:
    """One legend of all labels below the maps of a figure."""
    names = {COLOURS[k]: "new habitat" if k == HABITAT else k for k in LABELS}
    if landscape.habitat.any():
        names[EXISTING] = "habitat already"
    entries = []
    for colour, name in names.items():
        hatch, line = HATCHES.get(colour, (None, colour))
        entries.append(Patch(facecolor=colour, hatch=hatch, edgecolor=line, label=name))
    drawn.legend(handles=entries, loc="outside lower left", ncols=len(entries), fontsize=8)


def value_map(
    landscape: Landscape, values: Sequence[float], title: str, label: str, ax: Axes | None = None
) -> Figure:
    """A number for every parcel: a yield, connectivity, regret. Darker is more, and parcels with
    `nan` stay white and hatched.

    `label` says what is shown, with its unit. Without `ax` the map is a figure of its own.
    """
    values = np.asarray(values, dtype=float)
    known = ~np.isnan(values)
    low, high = values[known].min(), values[known].max()
    scale = Normalize(low, high if high > low else low + 1)
    if ax is None:
        west, south, east, north = landscape.parcels.total_bounds
        height = np.clip(MAP_WIDTH * (north - south) / (east - west), 1.6, 7.0)
        ax = plots.figure(title, MAP_WIDTH + 0.95, height + 0.65)[1]
    else:
        ax.set_title(title)
    shown = np.array([NOTHING] * len(values), dtype=object)
    shown[known] = [to_hex(colour) for colour in VALUES(scale(values[known]))]
    _draw(ax, landscape, shown)
    bar = ax.figure.colorbar(
        ScalarMappable(scale, VALUES), ax=ax, shrink=0.7, aspect=22, pad=0.02, anchor=(0, 0.9)
    )
    bar.set_label(label)
    bar.outline.set_visible(False)
    return ax.figure


def _draw(ax: Axes, landscape: Landscape, colours: np.ndarray) -> None:
    """The parcels with thin borders, a scale bar, and no ticks."""
    west, south, east, north = landscape.parcels.total_bounds
    pad = 0.01 * max(east - west, north - south)
    ax.set_xlim(west - pad, east + pad)
    ax.set_ylim(south - pad, north + pad)
    ax.set_aspect("equal")
    ax.set_axis_off()
    _scale_bar(ax, west, east - west)
    paths = [_path(shape) for shape in landscape.parcels.geometry]
    line = 0.4 if len(paths) <= 1500 else 0.0  # on large maps they would be all there is
    hatches = [HATCHES.get(colour) for colour in colours]
    for hatch in dict.fromkeys(hatches):
        chosen = [i for i, own in enumerate(hatches) if own == hatch]
        drawn = PathCollection(
            [paths[i] for i in chosen],
            facecolors=list(colours[chosen]),
            edgecolors="#ffffff" if line else "face",
            linewidths=line,
        )
        if hatch:
            drawn.set_hatch(hatch[0])
            drawn.set_hatchcolor(hatch[1])
        ax.add_collection(drawn)


def _path(shape: shapely.Polygon) -> Path:
    """A polygon with its holes as one path: GeoPandas' own drawing costs ten times the time."""
    shape = shapely.geometry.polygon.orient(shape)
    rings = [shape.exterior, *shape.interiors]
    return Path.make_compound_path(*[Path(shapely.get_coordinates(r), closed=True) for r in rings])


def _scale_bar(ax: Axes, west: float, width: float) -> None:
    """A bar of 1, 2 or 5 x 10^k km, at most a quarter of the map, below its left corner."""
    km = width / 1000 / 4
    step = 10 ** np.floor(np.log10(km))
    length = max(factor for factor in (1, 2, 5) if factor * step <= km * 1.0001) * step
    ends, below = [west, west + 1000 * length], ax.get_xaxis_transform()
    bar = {"color": "#333333", "linewidth": 2, "solid_capstyle": "butt"}
    ax.plot(ends, [-0.02, -0.02], transform=below, clip_on=False, **bar)
    ax.text(ends[1], -0.02, f"  {length:g} km", transform=below, va="center", fontsize=8)
