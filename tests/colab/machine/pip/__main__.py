"""`pip install` without an index: what Colab's image holds, and what the pinned wheels require.

The requirements of one command and of everything they bring along have to agree, as pip asks; what
is installed stays where it satisfies them. Of a package that neither the image nor the wheels
know, the lowest version that fits is taken, so that no download is needed. What `pip check` would
say afterwards is written to `conflicts.json`.
"""

import argparse
import json
import os
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

MACHINE = Path(os.environ["PRETENDED_MACHINE"])
WHEELS = json.loads(Path(__file__).parents[2].joinpath("wheels.json").read_text())
KNOWN: dict[str, dict[str, list[str]]] = {}  # name -> version -> what it requires
for pin, wheel in WHEELS.items():
    named, _, number = pin.partition("==")
    KNOWN.setdefault(canonicalize_name(named), {})[number] = wheel["requires"]
ENVIRONMENT = {"python_version": "3.13", "python_full_version": "3.13.15", "extra": ""}


class Impossible(Exception):
    """No set of versions satisfies what was asked for."""


def wanted_by(options: argparse.Namespace) -> list[Requirement]:
    """What a command names: packages, wheels by address, and a checkout with extras."""
    texts = list(options.wanted)
    for name in options.editable:
        folder, _, extras = name.rstrip("]").partition("[")
        project = tomllib.loads(Path(folder, "pyproject.toml").read_text())["project"]
        groups = project["optional-dependencies"]
        texts += project["dependencies"]
        for extra in filter(None, extras.split(",")):
            texts += groups[extra]
    found = [by_address(text) if "://" in text else Requirement(text) for text in texts]
    return [r for r in found if r.marker is None or r.marker.evaluate(ENVIRONMENT)]


def by_address(text: str) -> Requirement:
    """`https://…/vllm-0.26.0+cu129-….whl` is vllm==0.26.0+cu129."""
    wheel = unquote(text.partition(" ;")[0].strip().rpartition("/")[2])
    name, version = wheel.split("-")[:2]
    return Requirement(f"{name}=={version}")


def resolve(wanted: list[Requirement], installed: dict[str, str], no_deps: bool) -> dict[str, str]:
    """Name -> version of what the command leaves installed.

    Raises:
        Impossible: two requirements exclude each other.
    """
    asked: dict[str, list[tuple[str, Requirement]]] = {}
    chosen: dict[str, str] = {}
    queue = [("you", r) for r in wanted]
    while queue:
        by, requirement = queue.pop(0)
        name = canonicalize_name(requirement.name)
        asked.setdefault(name, []).append((by, requirement))
        version = choose(name, [r for _, r in asked[name]], installed)
        if version is None:
            said = "; ".join(f"{who} asks for {r}" for who, r in asked[name])
            raise Impossible(f"{name}: {said}")
        if chosen.get(name) == version:
            continue
        chosen[name] = version
        if not no_deps:
            queue += [(f"{name} {version}", r) for r in required_by(name, version)]
    return chosen


def required_by(name: str, version: str) -> list[Requirement]:
    texts = KNOWN.get(name, {}).get(version.partition("+")[0], [])
    found = map(Requirement, texts)
    return [r for r in found if r.marker is None or r.marker.evaluate(ENVIRONMENT)]


def choose(name: str, requirements: list[Requirement], installed: dict[str, str]) -> str | None:
    """The installed version if it fits, else a known one, else the lowest that is named."""

    def fits(version: str) -> bool:
        return all(r.specifier.contains(version, prereleases=True) for r in requirements)

    named = [s.version for r in requirements for s in r.specifier if s.operator in (">=", "==")]
    named = sorted((v.removesuffix(".*") for v in named), key=Version)
    exact = [s.version for r in requirements for s in r.specifier if s.operator == "=="]
    offered = [*exact, installed.get(name), *reversed(KNOWN.get(name, {})), *named, "1.0"]
    return next((v for v in offered if v and "*" not in v and fits(v)), None)


def conflicts(installed: dict[str, str]) -> list[str]:
    """What `pip check` would say of the packages whose requirements are known."""
    said = []
    for name in sorted(set(installed) & set(KNOWN)):
        for requirement in required_by(name, installed[name]):
            needed = canonicalize_name(requirement.name)
            there = installed.get(needed)
            if there is None or not requirement.specifier.contains(there, prereleases=True):
                said.append(f"{name} {installed[name]} requires {requirement}: {there}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(prog="pip install")
    parser.add_argument("--no-deps", action="store_true")
    parser.add_argument("-e", "--editable", action="append", default=[])
    parser.add_argument("wanted", nargs="*")
    options = parser.parse_args(sys.argv[2:])  # after `install`
    file = MACHINE / "installed.json"
    installed = json.loads(file.read_text())
    try:
        chosen = resolve(wanted_by(options), installed, options.no_deps)
    except Impossible as error:
        sys.exit(f"ERROR: ResolutionImpossible: {error}")
    installed |= chosen
    if "vllm" in chosen:  # it is imported after it was installed
        folder = MACHINE / "modules" / "vllm"
        folder.mkdir(parents=True, exist_ok=True)
        for module in ("__init__", "_C"):
            (folder / f"{module}.py").touch()
    file.write_text(json.dumps(installed))
    (MACHINE / "conflicts.json").write_text(json.dumps(conflicts(installed)))


if __name__ == "__main__":
    main()
