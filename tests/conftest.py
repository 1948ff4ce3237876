"""What several tests share: one thread, no hub, and a made-up checkout."""

import os
import shutil
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
from hypothesis import settings

from casebook import paths

CHECKOUT = Path(__file__).parents[1]

# The same examples every time: who changes one line is not told of an old fault elsewhere.
# `HYPOTHESIS_PROFILE=default pytest` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """An empty checkout, which this process and its children take for the real one."""
    root = tmp_path / "checkout"
    for name in ("notebooks", "configs", "data", "results", "reports"):
        (root / name).mkdir(parents=True)
        monkeypatch.setattr(paths, name.upper(), root / name)
    for path in [CHECKOUT / "pyproject.toml", *CHECKOUT.glob("requirements*.txt")]:
        shutil.copy(path, root)
    monkeypatch.setattr(paths, "ROOT", root)
    monkeypatch.setenv("CASEBOOK_ROOT", str(root))
    monkeypatch.delenv("RUNS_DIR", raising=False)
    return root
