"""Calls are bound to the signatures that were read from the pinned wheels."""

import json
from pathlib import Path
from typing import Any

WHEELS = json.loads(Path(__file__).parents[2].joinpath("wheels.json").read_text())
# Not among Unsloth's own names, and yet known: its `**kwargs` hand them on to transformers.
HANDED_ON = {"FastLanguageModel.from_pretrained": {"attn_implementation"}}


def signature(name: str, package: str) -> dict[str, Any]:
    """What the newest wheel of a package that the file knows says of a callable."""
    wheels = [w for pin, w in WHEELS.items() if pin.startswith(f"{package}==")]
    return wheels[-1]["callables"][name]


def bind(name: str, package: str, arguments: tuple, keywords: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name.

    Raises:
        TypeError: one that the wheel does not have, or one that is missing. Unsloth itself would
            take an unknown one in silence.
    """
    parameters = signature(name, package)["parameters"]
    values = dict(zip(parameters, arguments, strict=False)) | keywords
    unknown = set(keywords) - set(parameters) - HANDED_ON.get(name, set())
    if unknown:
        raise TypeError(f"{name} of the pinned {package} takes no {', '.join(sorted(unknown))}")
    missing = [n for n, default in parameters.items() if default == "required" and n not in values]
    if missing:
        raise TypeError(f"{name} of the pinned {package} needs {', '.join(missing)}")
    return values
