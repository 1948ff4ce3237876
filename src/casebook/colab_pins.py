"""Do the pins still fit Colab's image? The first conflict is named, before a reader meets it.

    python -m casebook.colab_pins pip-freeze.gpu.txt os-info-gpu.txt

The files are the packages and the Python that Colab publishes of its GPU image
(github.com/googlecolab/backend-info). What the install cell keeps has to suit the package, a build
of vLLM has to fit Colab's torch, and `uv` has to find a set that holds the install cell's pins
beside what is kept: one for GPUs without vLLM, and one with it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from casebook import paths
from casebook.case import CasebookError
from casebook.install import KEPT, TRAINING, VLLM_FROM, pins_of, vllm_for

TORCH_INDEX = "https://download.pytorch.org/whl/"


def read_freeze(path: Path) -> dict[str, str]:
    """Package -> version, of a file as `pip freeze` writes it.

    Raises:
        CasebookError: the file cannot be read, or names no torch.
    """
    found = (re.match(r"([\w.-]+)==(\S+)", line.strip()) for line in _lines(path))
    here = {m[1].lower().replace("_", "-"): m[2] for m in found if m}
    if "torch" not in here:
        raise CasebookError(f"{path} names no torch: it is not the list of Colab's GPU image")
    return here


def read_python(path: Path) -> str:
    """Colab's Python, such as `3.13`, of the file that holds what `python --version` said.

    Raises:
        CasebookError: the file cannot be read, or names no Python.
    """
    found = [m[1] for line in _lines(path) if (m := re.match(r"Python (\d+\.\d+)\b", line))]
    if not found:
        raise CasebookError(f"{path} names no Python: it is not what Colab says of its system")
    return found[0]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CasebookError(f"{path} cannot be read: {error}") from error


def first_conflict(here: Mapping[str, str], python: str) -> str | None:
    """The first thing in which the pins and Colab's image do not go together; `None` if they do.

    Args:
        here: package -> version, of Colab.
        python: its version, such as `3.13`.
    """
    from packaging.requirements import Requirement

    project = paths.project()["project"]
    if not Requirement(f"python{project['requires-python']}").specifier.contains(python):
        return f"Colab has Python {python}, and the casebook needs {project['requires-python']}"
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["train"]]
    for line in wanted:
        asked = Requirement(line)
        has = here.get(asked.name.lower())
        if asked.name in KEPT and has and not asked.specifier.contains(has, prereleases=True):
            return (
                f"the install cell keeps Colab's {asked.name} {has}, and the casebook needs {line}"
            )
    wheels, why = vllm_for(VLLM_FROM, here["torch"])
    if not wheels:
        return f"no pinned build of vLLM fits: {why}"
    pins = pins_of("requirements.txt")
    own = [r for name, rs in extras.items() if name not in ("site", "dev") for r in rs]
    keep = [f"{name}=={here[name]}" for name in KEPT if name in here]
    lines = [*wanted, *own, *(pins[name] for name in TRAINING), *keep]
    if conflict := _resolve(lines, here, python):
        return conflict
    conflict = _resolve([*lines, *wheels], here, python)
    return f"with vLLM: {conflict}" if conflict else None


def _resolve(lines: list[str], here: Mapping[str, str], python: str) -> str | None:
    """What `uv` says where no set of versions holds all of the requirements."""
    tag = here["torch"].partition("+")[2]
    index = ["--extra-index-url", TORCH_INDEX + tag] if tag else []
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "requirements.in"
        asked.write_text("\n".join(lines) + "\n")
        command = [
            *("uv", "pip", "compile", str(asked), "--quiet", "--python-version", python),
            *("--python-platform", "x86_64-manylinux_2_28"),
            *("--index-strategy", "unsafe-best-match", *index),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else " ".join(done.stderr.split())


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0: they go together, 1: they do not, 2: it cannot be told."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("freeze", type=Path, help="pip-freeze.gpu.txt of Colab's image")
    parser.add_argument("system", type=Path, help="os-info-gpu.txt of the same image")
    asked = parser.parse_args(arguments)
    try:
        here, python = read_freeze(asked.freeze), read_python(asked.system)
        conflict = first_conflict(here, python)
    except (CasebookError, FileNotFoundError) as error:  # the latter: there is no uv
        print(f"It cannot be told: {error}", file=sys.stderr)
        return 2
    kept = ", ".join(f"{name} {here[name]}" for name in KEPT if name in here)
    print(f"Colab: Python {python}, {kept}.")
    print(f"First conflict: {conflict}" if conflict else "The pins fit.")
    return int(conflict is not None)


if __name__ == "__main__":
    sys.exit(main())
