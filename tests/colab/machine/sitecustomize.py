"""Makes a Python look like Colab's: `google.colab` is there, and versions are those installed."""

import importlib.metadata
import json
import os
import re
import sys
import types
from pathlib import Path

sys.modules["google.colab"] = types.ModuleType("google.colab")

INSTALLED = Path(os.environ["PRETENDED_MACHINE"]) / "installed.json"
_version = importlib.metadata.version


def version(name: str) -> str:
    known = json.loads(INSTALLED.read_text())
    key = re.sub(r"[-_.]+", "-", name).lower()
    return known[key] if key in known else _version(name)


importlib.metadata.version = version
