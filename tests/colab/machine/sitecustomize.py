"""Makes a Python look like Colab's: `google.colab` is there, and versions are those installed."""

import importlib.metadata
import json
import os
import re
import sys
import types
from pathlib import Path

colab = sys.modules["google.colab"] = types.ModuleType("google.colab")
# Drive outlives the machine; whoever has none refuses to have it mounted.
DRIVE = os.environ.get("PRETENDED_DRIVE")


def mount(folder: str) -> None:
    if not DRIVE:
        raise ValueError("mount failed")
    Path(folder).mkdir(exist_ok=True)
    if not Path(folder, "MyDrive").exists():
        Path(folder, "MyDrive").symlink_to(DRIVE)


colab.drive = types.SimpleNamespace(mount=mount)

INSTALLED = Path(os.environ["PRETENDED_MACHINE"]) / "installed.json"
_version = importlib.metadata.version


def version(name: str) -> str:
    known = json.loads(INSTALLED.read_text())
    key = re.sub(r"[-_.]+", "-", name).lower()
    return known[key] if key in known else _version(name)


importlib.metadata.version = version
