"""A planner's own file, which the generator did not make, through the notebooks that take one."""

import subprocess
import sys
from pathlib import Path

import geopandas as gpd
import nbformat
import numpy as np
import pytest
import shapely

ROOT = Path(__file__).parents[3]
ACROSS, DOWN, RADIUS = 7, 6, 400.0  # hexagons, metres
LAKE = [10, 17, 18]  # nothing grows there


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Hexagonal fields in UTM 14N, with a column of another kind, a lake, and no soy anywhere."""
    rng = np.random.default_rng(7)
    turns = np.pi / 6 + np.pi / 3 * np.arange(6)
    corners = RADIUS * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    wide = np.sqrt(3) * RADIUS
    centres = [
        (500_000 + wide * (x + y % 2 / 2), 5_500_000 + 1.5 * RADIUS * y)
        for y in range(DOWN)
        for x in range(ACROSS)
    ]
    n = len(centres)
    fields = gpd.GeoDataFrame(
        {
            "owner": [f"farm {i % 5}" for i in range(n)],
            "ecological_connectivity": rng.uniform(0.1, 0.9, n).round(2),
            "soy_yield": np.zeros(n),
            "corn_yield": rng.uniform(6, 11, n).round(2),
            "wheat_yield": rng.uniform(2, 5, n).round(2),
            "oat_yield": rng.uniform(2, 4, n).round(2),
        },
        geometry=[shapely.Polygon(corners + centre) for centre in centres],
        crs="EPSG:32614",
    )
    fields.loc[LAKE, ["corn_yield", "wheat_yield", "oat_yield"]] = 0.0
    path = tmp_path_factory.mktemp("own") / "hexagons.gpkg"
    fields.to_file(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["20_landuse_oracle", "24_landuse_analysis"])
def test_a_notebook_shows_it(name, own, tmp_path, monkeypatch):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CASEBOOK_FIGURES_DIR", str(tmp_path / "figures"))
    copy = tmp_path / f"{name}.ipynb"
    command = ["papermill", str(ROOT / "notebooks" / f"{name}.ipynb"), str(copy)]
    told = ["-p", "PROFILE", "smoke", "-p", "LANDSCAPE", str(own)]
    done = subprocess.run(
        [sys.executable, "-m", *command, *told, "--no-progress-bar"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert nbformat.read(copy, as_version=4).cells
    assert list((tmp_path / "figures").glob("*.png"))
