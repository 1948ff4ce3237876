"""Where runs are kept; Google Drive is mounted where they lie there, and only there."""

import sys
import types

import pytest

from casebook import paths


@pytest.fixture
def drive(monkeypatch):
    """A pretended Colab; the folders that were mounted."""
    mounted, drive = [], types.ModuleType("google.colab.drive")
    drive.mount = mounted.append
    colab = types.ModuleType("google.colab")
    colab.drive = drive
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setitem(sys.modules, "google.colab.drive", drive)
    return mounted


def test_a_runs_dir_on_drive_mounts_it_on_colab(drive, monkeypatch):
    folder = "/content/drive/MyDrive/casebook"
    assert str(paths.runs_dir(folder)) == folder
    assert drive == ["/content/drive"]
    monkeypatch.setattr(paths.os.path, "ismount", lambda path: str(path) == "/content/drive")
    paths.runs_dir(folder)
    assert drive == ["/content/drive"]


@pytest.mark.parametrize("folder", ["runs", "/content/runs", "/content/drives/x", None])
def test_any_other_runs_dir_asks_for_no_drive(drive, folder):
    paths.runs_dir(folder)
    assert drive == []


def test_outside_colab_nothing_is_mounted(drive, monkeypatch):
    monkeypatch.delitem(sys.modules, "google.colab")
    paths.runs_dir("/content/drive/MyDrive/casebook")
    assert drive == []
