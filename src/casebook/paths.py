"""Where things lie: the folders of the checkout, and the folders a person's own runs go to."""

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(os.environ.get("CASEBOOK_ROOT", Path(__file__).parents[2])).resolve()
CONFIGS = ROOT / "configs"
DATA = ROOT / "data"
NOTEBOOKS = ROOT / "notebooks"
RESULTS = ROOT / "results"
REPORTS = ROOT / "reports"


DRIVE = Path("/content/drive")  # where Colab mounts Google Drive


def runs_dir(value: str | os.PathLike | None = None) -> Path:
    """The folder of training runs: `value`, else `$RUNS_DIR`, else `runs`.

    A relative path counts from the checkout, so that a notebook finds the same runs whether it
    was started from the root or from `notebooks/`. A folder on Google Drive is mounted on Colab,
    where it outlives the machine; that asks for leave once.
    """
    folder = (ROOT / Path(value or os.environ.get("RUNS_DIR") or "runs").expanduser()).resolve()
    if "google.colab" in sys.modules and DRIVE in folder.parents and not os.path.ismount(DRIVE):
        from google.colab import drive

        drive.mount(str(DRIVE))
    return folder


def models_dir() -> Path:
    """Where fetched models lie: `$CASEBOOK_MODELS`, else `models`; git takes no notice of it."""
    return (ROOT / Path(os.environ.get("CASEBOOK_MODELS") or "models").expanduser()).resolve()


def figures_dir() -> Path:
    """Where notebooks write their pictures: `$CASEBOOK_FIGURES_DIR`, else `reports/figures`."""
    return (ROOT / os.environ.get("CASEBOOK_FIGURES_DIR", "reports/figures")).resolve()


def repository() -> str:
    """The public address of the repository from `pyproject.toml`, or an empty string."""
    return project()["tool"]["casebook"]["repository"].rstrip("/")


def extras() -> tuple[str, ...]:
    """The names of the package's optional parts in `pyproject.toml`."""
    return tuple(project()["project"]["optional-dependencies"])


def project() -> dict:
    """What `pyproject.toml` says."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)
