"""Landscapes: parcels with yields, a connectivity value and neighbours.

The write-up's landscape is a file of 8,724 Canadian polygons that was never published. Its columns
are known from the author's public code, so a user's own file with these columns can be read, and
a generator makes landscapes of the same form.

Parcels that touch, even in a corner, are neighbours, and a prompt shows them. Only parcels with a
common border connect habitat, and the objective counts those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import geopandas as gpd
import numpy as np
import pandas as pd
import shapely
from pyproj import CRS, Proj
from scipy.spatial import KDTree

from casebook.case import CasebookError, check_name
from casebook.cases.landuse.fields import CONNECTIVITY, CROPS, HABITAT, LABELS, YIELDS  # noqa: F401

LAMBERT = "EPSG:3347"  # Statistics Canada Lambert, in metres
SIDE = 805.0  # metres: a quarter section of the Prairie survey, 64.8 ha
CORNER = (5_720_000.0, 1_580_000.0)  # north-west corner of made landscapes: southern Manitoba
JITTER = 0.38  # how far the points of irregular parcels stray from the cell centres, in sides

# Crop -> mean and standard deviation in t/ha, and how far it follows soil, heat and moisture.
# Levels lie between the averages of the Prairies and of Ontario (Statistics Canada, 32-10-0359).
GROWTH = {
    "wheat": (3.4, 0.7, (0.60, -0.25, 0.20)),
    "oat": (3.3, 0.7, (0.35, -0.45, 0.45)),
    "corn": (8.5, 1.8, (0.55, 0.60, 0.30)),
    "soy": (2.7, 0.5, (0.40, 0.65, 0.15)),
}
BARREN = 0.25  # share of the land that yields nothing: habitat already
TOO_COLD = {"corn": 0.12, "soy": 0.12}  # share of the land where the summer is too short

_NEEDED = (*YIELDS, CONNECTIVITY)
IMPOSSIBLE = 50  # t/ha: no such field; 3,400 "t/ha" are kg/ha
SLIVER = 0.005  # share of the smaller parcel that digitising may let overlap


@dataclass(frozen=True)
class Landscape:
    """Parcels on a map.

    Attributes:
        parcels: one row per parcel, numbered from 0: `wheat_yield`, `oat_yield`, `corn_yield`,
            `soy_yield` (t/ha), `ecological_connectivity` (0 to 1), `area_ha`, `habitat` (whether
            no crop yields anything there: habitat already), `geometry` in a projected CRS.
        name: where it came from: the generator's arguments, or a file's name.
        corner: metres; where two parcels share no more border than this, they meet in a corner.
    """

    parcels: gpd.GeoDataFrame
    name: str = ""
    corner: float = 0.001

    def __len__(self) -> int:
        return len(self.parcels)

    @cached_property
    def yields(self) -> np.ndarray:
        """`(n, 4)` t/ha in the order of `CROPS`."""
        return self.parcels[list(YIELDS)].to_numpy(float)

    @cached_property
    def area(self) -> np.ndarray:
        """`(n,)` ha."""
        return self.parcels["area_ha"].to_numpy(float)

    @cached_property
    def connectivity(self) -> np.ndarray:
        """`(n,)` ecological connectivity, 0 to 1."""
        return self.parcels[CONNECTIVITY].to_numpy(float)

    @cached_property
    def habitat(self) -> np.ndarray:
        """`(n,)` bool: habitat already."""
        return self.parcels["habitat"].to_numpy(bool)

    @cached_property
    def decidable(self) -> np.ndarray:
        """The numbers of the parcels that are to be decided, in order."""
        return np.flatnonzero(~self.habitat)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """For each parcel the numbers of those that touch it, even in a corner, in order."""
        from libpysal.graph import Graph

        graph = Graph.build_contiguity(self.parcels, rook=False, strict=True)
        found = [[] for _ in range(len(self))]
        for i, j in graph.adjacency[graph.adjacency > 0].index:
            found[i].append(j)
        return tuple(tuple(sorted(near)) for near in found)

    @cached_property
    def borders(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of parcels with a common border, `(m, 2)` with the lower number first, and the
        border's length, `(m,)` km."""
        pairs = [(i, j) for i, near in enumerate(self.neighbours) for j in near if i < j]
        pairs = np.array(pairs, dtype=int).reshape(-1, 2)
        shapes = self.parcels.geometry.to_numpy()
        common = shapely.intersection(shapes[pairs[:, 0]], shapes[pairs[:, 1]])
        length = shapely.length(common) / 1000
        kept = length > self.corner / 1000
        return pairs[kept], length[kept]


def generate(rows: int, cols: int, seed: int = 0, irregular: bool = False) -> Landscape:
    """A generated landscape of `rows` x `cols` parcels, numbered row by row from the north-west.

    Three smooth random fields (soil, heat, moisture) cover the map; heat also rises southwards.
    Every crop follows them in its own way (`GROWTH`). The poorest quarter of the land, at least
    one parcel, yields nothing and is habitat already; the coldest eighth yields neither corn nor
    soy. Connectivity is higher where much habitat is near.

    Args:
        rows: parcels from north to south, 805 m each.
        cols: parcels from west to east.
        seed: 0 or more.
        irregular: Voronoi parcels around jittered points in place of squares, in the same
            rectangle.

    Raises:
        CasebookError: sizes that are not whole numbers from 1, or a seed that is not one from 0.

    >>> landscape = generate(4, 5, seed=1)
    >>> len(landscape), int(landscape.habitat.sum())
    (20, 5)
    """
    for name, value, least in (("rows", rows, 1), ("cols", cols, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise CasebookError(f"{name} is a whole number from {least}, not {value!r}")
    rng = np.random.default_rng([rows, cols, seed])
    y, x = np.divmod(np.arange(rows * cols), cols)
    at = np.stack([x, y], 1).astype(float)  # in parcel sides, southwards from the corner
    if irregular:
        shapes, at = _voronoi(rows, cols, seed)
    else:
        west, north = CORNER[0] + x * SIDE, CORNER[1] - y * SIDE
        shapes = shapely.box(west, north - SIDE, west + SIDE, north)
    soil, heat, moisture = (_field(at, length, rng) for length in (4, 10, 6))
    heat = 0.8 * heat + 0.6 * (at[:, 1] - at[:, 1].mean()) / max(rows / 4, 1)
    climate = np.stack([soil, heat, moisture])
    columns = {}
    barren = soil + 0.7 * _field(at, 2, rng)
    barren = barren <= np.quantile(barren, BARREN)
    for crop, (mean, spread, follows) in GROWTH.items():
        rest = np.sqrt(max(1 - np.square(follows).sum(), 0.05))
        own = 0.8 * _field(at, 2, rng) + 0.6 * rng.normal(size=len(at))
        grown = mean + spread * (np.array(follows) @ climate + rest * own)
        grown = np.maximum(grown, 0.3 * mean)
        cold = heat < np.quantile(heat, TOO_COLD.get(crop, 0.0))
        columns[f"{crop}_yield"] = np.round(np.where(barren | cold, 0, grown), 2)
    density = _density(at, barren)
    connectivity = 0.8 * _field(at, 3, rng) + 3 * (density - density.mean())
    columns[CONNECTIVITY] = np.round(0.1 + 0.8 / (1 + np.exp(-1.2 * connectivity)), 2)
    shape = ", irregular=True" if irregular else ""
    return _landscape(
        gpd.GeoDataFrame(columns, geometry=shapes, crs=LAMBERT),
        f"generate({rows}, {cols}, seed={seed}{shape})",
    )


def _landscape(parcels: gpd.GeoDataFrame, name: str, corner: float = 0.001) -> Landscape:
    """The two columns that follow from the others: area from the geometry, habitat from yields."""
    parcels["area_ha"] = parcels.area / 1e4
    parcels["habitat"] = (parcels[list(YIELDS)] == 0).all(axis=1)
    return Landscape(parcels[[*parcels.columns.drop("geometry"), "geometry"]], name, corner)


def _voronoi(rows: int, cols: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Parcels around points that stray from a grid's cell centres, to the centimetre, and their
    centroids in parcel sides."""
    rng = np.random.default_rng([rows, cols, seed, 1])
    y, x = np.divmod(np.arange(rows * cols), cols)
    points = np.stack([x, y], 1) + 0.5 + rng.uniform(-JITTER, JITTER, size=(rows * cols, 2))
    points = np.array(CORNER) + SIDE * points * (1, -1)
    whole = shapely.box(CORNER[0], CORNER[1] - rows * SIDE, CORNER[0] + cols * SIDE, CORNER[1])
    cells = shapely.voronoi_polygons(shapely.multipoints(points), extend_to=whole, ordered=True)
    shapes = shapely.set_precision(shapely.intersection(shapely.get_parts(cells), whole), 0.01)
    centres = shapely.get_coordinates(shapely.centroid(shapes)) - CORNER
    return shapes, centres * (1, -1) / SIDE - 0.5


def _density(at: np.ndarray, what: np.ndarray) -> np.ndarray:
    """Share of `what` around every point, with Gaussian weights of two sides, cut off at eight."""
    tree = KDTree(at)
    near = tree.sparse_distance_matrix(tree, 8.0, output_type="coo_matrix").tocsr()
    near.data = np.exp(-np.square(near.data) / 8.0)
    return near @ what / np.asarray(near.sum(axis=1)).ravel()


def _field(at: np.ndarray, length: float, rng: np.random.Generator, waves: int = 256) -> np.ndarray:
    """A smooth random field at `(n, 2)` points: mean 0, variance 1, Gaussian covariance."""
    k = rng.normal(size=(2, waves)) / length
    return np.sqrt(2 / waves) * np.cos(at @ k + rng.uniform(0, 2 * np.pi, waves)).sum(1)


# A user's own file


def read_landscape(path: str | Path, islands: str = "error", tolerance: float = 1.0) -> Landscape:
    """A landscape from a GeoPackage, GeoJSON or any other vector file that GDAL reads.

    The file needs the columns `wheat_yield`, `oat_yield`, `corn_yield`, `soy_yield` (t/ha; all
    four 0: habitat already) and `ecological_connectivity` (0 to 1), and one polygon per row. Other
    columns are kept, but `area_ha` and `habitat` are always computed again. Parcels are
    numbered from 0 in the order of the file.

    A map in degrees (every GeoJSON), in feet or with areas more than 5 % off (Web Mercator) is
    projected to Lambert's azimuthal equal-area projection around its centre, in metres; any
    other CRS stays. Borders that do not quite meet, as reprojection and digitising leave them,
    are made one (`shapely.coverage_clean`).

    Args:
        path: of the file.
        islands: what to do about a parcel that touches no other: `"error"` or `"keep"`.
        tolerance: metres; corners and borders closer than this are taken for the same. Raise it
            if narrow roads part the parcels; their land is then shared out.

    Raises:
        CasebookError: a file that cannot be read, or what is wrong with which parcels; they may
            overlap by 0.5 % of the smaller.
    """
    check_name("choice of islands", islands, ("error", "keep"))
    path = Path(path)
    try:
        parcels = gpd.read_file(path)
    except Exception as error:  # GDAL, SQLite, JSON: each has its own
        raise CasebookError(f"{path}: this cannot be read as a map: {str(error)[:200]}") from None
    try:
        if not isinstance(parcels, gpd.GeoDataFrame) or parcels.empty:
            raise CasebookError("there are no parcels: every row needs a polygon")
        _check_columns(parcels)
        _check_shapes(parcels)
        parcels = _in_metres(parcels, min(tolerance, 1.0))
        given = parcels.geometry.to_numpy()
        parcels.geometry = met = _meeting(given, tolerance)
        # Bridging a crossing of roads makes a border of it, up to twice as long as they are wide.
        corner = 0.001 if met is given else max(0.001, 2 * tolerance)
        landscape = _landscape(parcels, path.name, corner)
        if landscape.habitat.all():
            raise CasebookError("every parcel yields nothing: there is nothing to decide")
        if islands == "error":
            advice = (
                "where a narrow road lies between, raise tolerance (metres; in a notebook: "
                "TOLERANCE), and where it is meant, read with islands='keep' (ISLANDS)"
            )
            alone = [not near for near in landscape.neighbours]
            _refuse("no other parcel touches it", alone, advice)
    except CasebookError as error:
        raise CasebookError(f"{path}: {error}") from None
    return landscape


def _check_columns(parcels: gpd.GeoDataFrame) -> None:
    """Yields and connectivity are there, as numbers that can be; makes them floats."""
    if missing := [column for column in _NEEDED if column not in parcels]:
        there = ", ".join(map(str, parcels.columns.drop("geometry"))) or "none"
        raise CasebookError(f"missing columns: {', '.join(missing)}; there are: {there}")
    for column in _NEEDED:
        most, unit = (1, "a share") if column == CONNECTIVITY else (IMPOSSIBLE, "t/ha, not kg/ha")
        numbers = pd.to_numeric(parcels[column], errors="coerce").astype(float)
        fault = f"{column} is not from 0 to {most}"
        _refuse(fault, ~((numbers >= 0) & (numbers <= most)), f"it is {unit}", parcels[column])
        parcels[column] = numbers


def _check_shapes(parcels: gpd.GeoDataFrame) -> None:
    """One valid polygon a row, in a known CRS; unpacks multipolygons of one part."""
    shapes = parcels.geometry.to_numpy()
    one = shapely.get_num_geometries(shapes) == 1
    shapes = shapely.force_2d(shapely.get_geometry(shapes, 0))
    polygon = shapely.get_type_id(shapes) == shapely.GeometryType.POLYGON
    sound = one & polygon & shapely.is_valid(shapes) & ~shapely.is_empty(shapes)
    advice = "give every part a row of its own, and mend borders that cross in a GIS"
    _refuse("the shape is not one valid polygon", ~sound, advice)
    crs = parcels.crs
    if crs is None or not (crs.is_geographic or crs.is_projected):
        raise CasebookError(
            "the coordinate reference system is unknown: set it, as with GeoPandas' set_crs"
        )
    parcels.geometry = shapes


def _in_metres(parcels: gpd.GeoDataFrame, tolerance: float) -> gpd.GeoDataFrame:
    """The parcels in a CRS where areas are right to 5 % and lengths are metres: their own, or
    else an equal-area one around them."""
    crs = parcels.crs
    west, south, east, north = parcels.to_crs("EPSG:4326").total_bounds
    lon, lat = (west + east) / 2, (south + north) / 2
    in_metres = crs.is_projected and all(
        axis.unit_conversion_factor == 1 for axis in crs.axis_info[:2]
    )
    if not in_metres or abs(Proj(crs).get_factors(lon, lat).areal_scale - 1) >= 0.05:
        crs = CRS(f"+proj=laea +lat_0={lat:.2f} +lon_0={lon:.2f} +units=m")
    _check_overlaps(parcels.to_crs(crs))
    if crs == parcels.crs:
        return parcels
    # A corner in the middle of a neighbour's border leaves it in the projection: give it to both.
    metres = 111_000 if parcels.crs.is_geographic else 1.0
    met = _meeting(parcels.geometry.to_numpy(), tolerance / metres)
    return parcels.set_geometry(met, crs=parcels.crs).to_crs(crs)


def _check_overlaps(parcels: gpd.GeoDataFrame) -> None:
    shapes, area = parcels.geometry.to_numpy(), parcels.area.to_numpy()
    first, second = shapely.STRtree(shapes).query(shapes, predicate="intersects")
    first, second = first[first < second], second[first < second]
    common = shapely.area(shapely.intersection(shapes[first], shapes[second]))
    for k in np.flatnonzero(common > SLIVER * np.minimum(area[first], area[second])):
        raise CasebookError(
            f"parcels {first[k]} and {second[k]} (counted from 0) overlap by "
            f"{common[k] / 1e4:.3g} ha"
        )


def _meeting(shapes: np.ndarray, tolerance: float) -> np.ndarray:
    """The same parcels, with the very same corners along common borders."""
    if shapely.coverage_is_valid(shapes, gap_width=tolerance):
        return shapes
    met = shapely.coverage_clean(shapes, gap_width=tolerance, snapping_distance=tolerance)
    whole = (shapely.get_type_id(met) == shapely.GeometryType.POLYGON) & ~shapely.is_empty(met)
    advice = "lower tolerance (in a notebook: TOLERANCE)"
    _refuse(f"nothing whole is left within {tolerance:.2g} of a border", ~whole, advice)
    return met


def _refuse(fault: str, wrong: Sequence, advice: str = "", given: Sequence | None = None) -> None:
    """Raise a sentence if any parcel is `wrong`, with which ones and what the first one holds."""
    numbers = np.flatnonzero(np.asarray(wrong))
    if len(numbers):
        shown = ", ".join(map(str, numbers[:5])) + " and more" * (len(numbers) > 5)
        held = "" if given is None else f" ({np.asarray(given)[numbers[0]]})"
        which = f"parcel{'s' * (len(numbers) > 1)} {shown} (counted from 0)"
        raise CasebookError(f"{which}: {fault}{held}" + f"; {advice}" * bool(advice))
