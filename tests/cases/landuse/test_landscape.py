"""Landscapes: the frozen generator, neighbours and borders, and files that planners bring."""

import subprocess
import sys
from pathlib import Path

import geopandas as gpd
import nbformat
import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook.case import CasebookError
from casebook.cases.landuse.landscape import (
    BARREN,
    CONNECTIVITY,
    CROPS,
    YIELDS,
    Landscape,
    generate,
    read_landscape,
)

ROOT = Path(__file__).parents[3]
DATA = ROOT / "data" / "landuse"
UTM = "EPSG:32614"


# The generator


def test_regular_landscapes_are_frozen():
    # Training data are made from these numbers: a change here asks for a new pool and new models.
    parcels = generate(30, 30, seed=0).parcels
    columns = [*YIELDS, CONNECTIVITY]
    assert parcels[columns].loc[450].tolist() == [3.18, 4.65, 11.32, 2.92, 0.22]
    assert parcels[columns].loc[899].tolist() == [2.85, 3.62, 8.66, 2.96, 0.12]
    sums = parcels[columns].sum().to_list()
    assert sums == pytest.approx([2543.32, 2493.63, 4533.94, 1445.86, 403.09], abs=0.05)
    other = generate(30, 30, seed=7).parcels[columns].sum().to_list()
    assert other == pytest.approx([2426.9, 2396.41, 5836.11, 1773.89, 451.52], abs=0.05)


@pytest.mark.parametrize("irregular", [False, True])
def test_a_quarter_is_habitat_and_harvests_are_those_of_real_fields(irregular):
    made = [generate(20, 20, seed=seed, irregular=irregular) for seed in range(4)]
    for landscape in made:
        assert landscape.habitat.mean() == pytest.approx(BARREN, abs=0.01)
        assert not landscape.yields[landscape.habitat].any()
        assert landscape.yields[~landscape.habitat].any(axis=1).all()
        assert ((landscape.connectivity >= 0.1) & (landscape.connectivity <= 0.9)).all()
        assert np.array_equal(landscape.yields, np.round(landscape.yields, 2))
    harvest = np.concatenate([landscape.yields[landscape.decidable] for landscape in made])
    means = [harvest[harvest[:, k] > 0, k].mean() for k in range(4)]
    assert dict(zip(CROPS, means, strict=True)) == pytest.approx(
        {"wheat": 3.4, "oat": 3.3, "corn": 8.5, "soy": 2.7}, rel=0.12
    )


# Neighbours and borders


def test_a_regular_grid_has_eight_neighbours_and_four_borders():
    landscape = generate(4, 5)
    # Parcel 7 is the third of the second row.
    assert landscape.neighbours[7] == (1, 2, 3, 6, 8, 11, 12, 13)
    assert landscape.neighbours[0] == (1, 5, 6)
    pairs, length = landscape.borders
    assert {tuple(pair) for pair in pairs if 7 in pair} == {(2, 7), (6, 7), (7, 8), (7, 12)}
    assert len(pairs) == 4 * 4 + 3 * 5
    assert length == pytest.approx(0.805)


@settings(max_examples=12, deadline=None)
@given(rows=st.integers(2, 9), cols=st.integers(2, 9), seed=st.integers(0, 10_000))
def test_irregular_parcels_tile_the_rectangle(rows, cols, seed):
    landscape = generate(rows, cols, seed, irregular=True)
    shapes = landscape.parcels.geometry.to_numpy()
    assert len(landscape) == rows * cols
    assert shapely.coverage_is_valid(shapes)
    assert (shapely.get_type_id(shapes) == shapely.GeometryType.POLYGON).all()
    assert landscape.area.sum() == pytest.approx(rows * cols * 64.8025, rel=1e-9)
    pairs, length = landscape.borders
    assert (length > 0).all()
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    for i, near in enumerate(landscape.neighbours):
        assert i not in near
        assert all(i in landscape.neighbours[j] for j in near)
    assert all(j in landscape.neighbours[i] for i, j in pairs)
    # Every metre of a boundary is shared with one neighbour or is the rectangle's.
    outline = 2 * (rows + cols) * 0.805
    assert shapely.length(shapes).sum() / 1000 == pytest.approx(2 * length.sum() + outline)


# A planner's own file


def hexagons(rows=4, cols=5, radius=500.0, at=(600_000, 5_530_000)):
    """Fields that no generator of ours made: hexagons, with other columns in another order."""
    turn = np.radians(np.arange(30, 390, 60))
    ring = radius * np.stack([np.cos(turn), np.sin(turn)], 1)
    shapes = []
    for row in range(rows):
        for col in range(cols):
            x = np.sqrt(3) * radius * (col + 0.5 * (row % 2))
            shapes.append(shapely.Polygon(ring + np.array(at) + (x, 1.5 * radius * row)))
    n = np.arange(len(shapes))
    fields = gpd.GeoDataFrame(
        {
            "owner": [f"farm {k % 4}" for k in n],
            "corn_yield": 8.0 + 0.1 * n,
            CONNECTIVITY: np.linspace(0, 1, len(n)),
            "soil": "loam",
            "wheat_yield": 3.0 + 0.01 * n,
            "soy_yield": 2,  # whole numbers
            "oat_yield": 3.3,
        },
        geometry=shapely.set_precision(np.array(shapes), 0.01),
        crs=UTM,
    )
    fields.loc[fields.index.isin([3, 4, 9]), list(YIELDS)] = 0
    return fields


@pytest.fixture
def save(tmp_path):
    def saved(fields, name="fields.gpkg", **options):
        path = tmp_path / name
        fields.to_file(path, **options)
        return path

    return saved


def refused(path, match, **options):
    with pytest.raises(CasebookError, match=match) as caught:
        read_landscape(path, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_geopackage_in_utm_is_read_as_it_is(save):
    fields = hexagons()
    landscape = read_landscape(save(fields))
    assert landscape.name == "fields.gpkg"
    assert landscape.parcels.crs == UTM
    assert np.array_equal(landscape.yields, fields[list(YIELDS)].to_numpy(float))
    assert landscape.parcels["owner"].tolist() == fields["owner"].tolist()
    assert np.flatnonzero(landscape.habitat).tolist() == [3, 4, 9]
    assert landscape.area == pytest.approx(1.5 * np.sqrt(3) * 25, rel=1e-3)
    assert landscape.neighbours[6] == (1, 2, 5, 7, 11, 12)
    assert landscape.borders[1] == pytest.approx(0.5, rel=1e-3)


def test_a_geojson_of_the_same_fields_is_projected_and_has_the_same_neighbours(save):
    fields = hexagons()
    straight = read_landscape(save(fields))
    landscape = read_landscape(save(fields.to_crs("EPSG:4326"), "fields.geojson"))
    assert landscape.parcels.crs.is_projected
    assert landscape.neighbours == straight.neighbours
    assert np.array_equal(landscape.borders[0], straight.borders[0])
    assert landscape.borders[1] == pytest.approx(straight.borders[1], rel=5e-3)
    assert landscape.area == pytest.approx(straight.area, rel=5e-3)


@pytest.mark.parametrize("crs", ["EPSG:3857", "EPSG:2263"])  # Web Mercator; New York in feet
def test_areas_are_true_hectares_whatever_the_projection(save, crs):
    at = (600_000, 4_510_000)  # New York, zone 18
    fields = hexagons(at=at).set_crs("EPSG:32618", allow_override=True)
    landscape = read_landscape(save(fields.to_crs(crs)))
    assert landscape.area == pytest.approx(1.5 * np.sqrt(3) * 25, rel=2e-3)
    assert landscape.borders[1] == pytest.approx(0.5, rel=5e-3)


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_sloppy_digitising_is_mended(tmp_path_factory, seed):
    # Every corner of every parcel is off by up to 30 cm, each in its own way.
    rng = np.random.default_rng(seed)
    sloppy = hexagons()

    def shake(corners):
        moved = corners[:-1] + rng.uniform(-0.3, 0.3, corners[:-1].shape)
        return np.vstack([moved, moved[:1]])

    sloppy.geometry = [shapely.transform(shape, shake) for shape in sloppy.geometry]
    path = tmp_path_factory.mktemp("sloppy") / "fields.gpkg"
    sloppy.to_file(path)
    landscape, exact = read_landscape(path), Landscape(hexagons())
    assert landscape.neighbours == exact.neighbours
    assert np.array_equal(landscape.borders[0], exact.borders[0])
    assert landscape.borders[1] == pytest.approx(exact.borders[1], rel=0.01)


def test_narrow_roads_are_bridged_if_one_asks(save):
    fields = hexagons()
    fields.geometry = fields.buffer(-4, join_style="mitre")
    path = save(fields)
    refused(path, "no other parcel touches it; .* raise tolerance .*TOLERANCE.*ISLANDS")
    landscape = read_landscape(path, tolerance=10)
    assert np.array_equal(landscape.borders[0], Landscape(hexagons()).borders[0])


# Files that cannot be read


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        ("wheat_yield", -0.5, r"parcel 6 \(counted from 0\): wheat_yield is not from 0 to 50"),
        ("wheat_yield", np.nan, "parcel 6 .*not from 0 to 50"),
        ("wheat_yield", 3400.0, "parcel 6 .*not from 0 to 50 .*not kg/ha"),
        (CONNECTIVITY, 1.01, "parcel 6 .*ecological_connectivity is not from 0 to 1"),
    ],
)
def test_an_impossible_number_names_the_parcel(save, column, value, match):
    fields = hexagons()
    fields.loc[6, column] = value
    refused(save(fields), match)


def test_what_is_no_map_of_these_columns_is_refused(save, tmp_path):
    refused(tmp_path / "none.gpkg", "cannot be read as a map")
    (tmp_path / "notes.txt").write_text("this is no map")
    refused(tmp_path / "notes.txt", "cannot be read as a map")
    fields = hexagons().drop(columns=["soy_yield", CONNECTIVITY])
    refused(save(fields), "missing columns: soy_yield, ecological_connectivity; there are: owner")


def bow_tie(shape):
    west, south, east, north = shape.bounds
    return shapely.Polygon([(west, south), (east, north), (east, south), (west, north)])


def two_parts(shape):
    return shapely.MultiPolygon([shape, shapely.transform(shape, lambda corners: corners + 9000)])


@pytest.mark.parametrize("spoil", [lambda shape: None, shapely.centroid, bow_tie, two_parts])
def test_a_spoilt_shape_names_the_parcel(save, spoil):
    fields = hexagons()
    shapes = fields.geometry.tolist()
    shapes[8] = spoil(shapes[8])
    path = save(fields.set_geometry(shapes, crs=UTM), "fields.geojson")
    refused(path, "parcel 8 .*not one valid polygon")


def test_overlaps_name_the_pair_and_the_area(save):
    fields = hexagons()
    shapes = fields.geometry.tolist()
    shapes[6] = shapes[6].buffer(20, join_style="mitre")
    path = save(fields.set_geometry(shapes, crs=UTM).to_crs("EPSG:4326"), "a.geojson")
    refused(path, r"parcels \d+ and \d+ .*overlap by (0\.9|1)\S* ha")


def test_islands_are_named_or_kept(save):
    fields = hexagons()
    shapes = fields.geometry.tolist()
    shapes[0] = shapely.transform(shapes[0], lambda corners: corners - 5000)
    path = save(fields.set_geometry(shapes, crs=UTM))
    refused(path, r"parcel 0 \(counted from 0\): no other parcel touches it")
    landscape = read_landscape(path, islands="keep")
    assert landscape.neighbours[0] == ()
    assert 0 not in landscape.borders[0]


@pytest.mark.parametrize(
    ("name", "rows", "cols", "irregular"),
    [("grid.gpkg", 20, 20, False), ("voronoi.gpkg", 15, 20, True)],
)
def test_samples_are_what_the_generator_makes(name, rows, cols, irregular):
    assert (DATA / name).stat().st_size <= 200_000
    sample, made = read_landscape(DATA / name), generate(rows, cols, 0, irregular)
    assert np.array_equal(sample.yields, made.yields)
    assert np.array_equal(sample.connectivity, made.connectivity)
    assert sample.neighbours == made.neighbours
    assert sample.area == pytest.approx(made.area)


# Through the notebooks that take a file


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["20_landuse_oracle", "24_landuse_analysis"])
def test_a_notebook_shows_a_planners_own_fields(name, save, tmp_path, monkeypatch):
    fields, rng = hexagons(6, 7, 400.0), np.random.default_rng(7)
    spans = {CONNECTIVITY: (0.1, 0.9), "corn_yield": (6, 11), "wheat_yield": (2, 5)}
    for column, span in (spans | {"oat_yield": (2, 4), "soy_yield": (0, 0)}).items():
        fields[column] = rng.uniform(*span, len(fields)).round(2)
    fields.loc[[10, 17, 18], list(YIELDS)] = 0.0  # a lake
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CASEBOOK_FIGURES_DIR", str(tmp_path / "figures"))
    copy = tmp_path / f"{name}.ipynb"
    command = [sys.executable, "-m", "papermill", str(ROOT / f"notebooks/{name}.ipynb"), str(copy)]
    told = ["-p", "PROFILE", "smoke", "-p", "LANDSCAPE", str(save(fields))]
    command += [*told, "--no-progress-bar"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert nbformat.read(copy, as_version=4).cells
    assert list((tmp_path / "figures").glob("*.png"))


@pytest.mark.parametrize("arguments", [(0, 5), (5, 2.5), (True, 5), (5, 5, -1), ("5", 5)])
def test_a_size_that_is_none_is_one_sentence(arguments):
    with pytest.raises(CasebookError, match="is a whole number from"):
        generate(*arguments)
