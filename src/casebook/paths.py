"""Where things lie: the folders of the checkout, and the folders a person's own runs go to."""

import os
import tomllib
from pathlib import Path

ROOT = Path(os.environ.get("CASEBOOK_ROOT", Path(__file__).parents[2])).resolve()
CONFIGS = ROOT / "configs"
DATA = ROOT / "data"
NOTEBOOKS = ROOT / "notebooks"
RESULTS = ROOT / "results"
REPORTS = ROOT / "reports"


def runs_dir(value: str | os.PathLike | None = None) -> Path:
    """The folder of training runs: `value`, else `$RUNS_DIR`, else `runs`.

    A relative path counts from the checkout, so that a notebook finds the same runs whether it
    was started from the root or from `notebooks/`.
    """
    return (ROOT / Path(value or os.environ.get("RUNS_DIR") or "runs").expanduser()).resolve()


def models_dir() -> Path:
    """Where fetched models lie: `$CASEBOOK_MODELS`, else `models`; git takes no notice of it."""
    return (ROOT / Path(os.environ.get("CASEBOOK_MODELS") or "models").expanduser()).resolve()


def figures_dir() -> Path:
    """Where notebooks write their pictures: `$CASEBOOK_FIGURES_DIR`, else `reports/figures`."""
    return (ROOT / os.environ.get("CASEBOOK_FIGURES_DIR", "reports/figures")).resolve()


def repository() -> str:
    """The public address of the repository from `pyproject.toml`, or an empty string."""
    return _project()["tool"]["casebook"]["repository"].rstrip("/")


def extras() -> tuple[str, ...]:
    """The names of the package's optional parts in `pyproject.toml`."""
    return tuple(_project()["project"]["optional-dependencies"])


def _project() -> dict:
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)
