"""Maps: the right colour on the right parcel, a legend of what is there, a true scale bar."""

import numpy as np
import pytest
import shapely
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex, to_rgb

from casebook import plots
from casebook.cases.landuse.landscape import generate
from casebook.cases.landuse.studies import maps

LAND = generate(6, 5, seed=2)


@pytest.fixture
def labels():
    chosen = np.array(["wheat", "oat", "corn"] * 10, dtype=object)
    chosen[LAND.habitat] = "habitat"
    return chosen


def painted(figure, ax=0):
    """Colour of every parcel, looked up at its centroid."""
    axes = figure.axes[ax]
    colours = []
    for x, y in shapely.get_coordinates(shapely.centroid(LAND.parcels.geometry.to_numpy())):
        for collection in axes.collections:
            if isinstance(collection, PathCollection):
                for path, colour in zip(
                    collection.get_paths(), collection.get_facecolors(), strict=True
                ):
                    if path.contains_point((x, y)):
                        colours.append(to_hex(colour).lower())
    return colours


def test_every_parcel_has_the_colour_of_its_label_and_old_habitat_its_own(labels):
    figure, ax = plots.figure("A plan", 5, 4)
    maps.plan_map(LAND, labels, "before", ax)
    expected = [
        (maps.EXISTING if already else maps.COLOURS[label]).lower()
        for label, already in zip(labels, LAND.habitat, strict=True)
    ]
    assert painted(figure) == expected
    hatched = [c for c in figure.axes[0].collections if c.get_hatch()]
    assert sum(len(c.get_paths()) for c in hatched) == LAND.habitat.sum()


def test_darker_is_more_and_unknown_is_white():
    values = np.arange(len(LAND), dtype=float)
    values[4] = np.nan
    figure = maps.value_map(LAND, values, "Values", "t/ha")
    colours = painted(figure)
    light = [sum(to_rgb(colour)) for colour in colours]
    assert colours[4] == "#ffffff"
    assert all(np.diff([v for i, v in enumerate(light) if i != 4]) <= 0)
    assert figure.axes[1].get_ylabel() == "t/ha"
    hatched = [c for c in figure.axes[0].collections if c.get_hatch()]
    assert sum(len(c.get_paths()) for c in hatched) == 1


@pytest.mark.parametrize(("cols", "km"), [(5, 1), (12, 2), (94, 10)])
def test_the_scale_bar_is_as_long_as_it_says(cols, km):
    land = generate(3, cols)
    figure = maps.value_map(land, np.ones(len(land)), "", "t")
    (bar,) = figure.axes[0].lines
    assert np.ptp(bar.get_xdata()) == pytest.approx(1000 * km)
    assert f"{km} km" in [text.get_text().strip() for text in figure.axes[0].texts]
