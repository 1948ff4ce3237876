"""Do the pins still fit Colab's image? The first conflict is named, before a reader meets it.

    python tests/colab/pins_fit.py pip-freeze.gpu.txt os-info-gpu.txt

The files are the packages and the Python that Colab publishes of its GPU image
(github.com/googlecolab/backend-info). What the install cell keeps has to suit the package, a build
of vLLM has to fit Colab's torch, and `uv` has to find a set that holds the install cell's pins
beside what is kept: one for GPUs without vLLM, and one with it.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement

from casebook import paths
from casebook.install import KEPT, TRAINING, VLLM_FROM, pins_of, vllm_for

TORCH_INDEX = "https://download.pytorch.org/whl/"


def first_conflict(here: Mapping[str, str], python: str) -> str | None:
    """What of Colab, its packages (name -> version) and its Python, does not fit the pins first."""
    project = paths.project()["project"]
    if not Requirement(f"python{project['requires-python']}").specifier.contains(python):
        return f"Colab has Python {python}, and the casebook needs {project['requires-python']}"
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["train"]]
    for asked in map(Requirement, wanted):
        has = here.get(asked.name.lower())
        if asked.name in KEPT and has and not asked.specifier.contains(has, prereleases=True):
            return f"the install cell keeps Colab's {asked.name} {has}, the casebook needs {asked}"
    wheels, why = vllm_for(VLLM_FROM, here["torch"])
    if not wheels:
        return f"no pinned build of vLLM fits: {why}"
    pins = pins_of("requirements.txt")
    own = [r for name, rs in extras.items() if name not in ("site", "dev") for r in rs]
    keep = [f"{name}=={here[name]}" for name in KEPT if name in here]
    lines = [*wanted, *own, *(pins[name] for name in TRAINING), *keep]
    return _resolve(lines, here, python) or _resolve([*lines, *wheels], here, python)


def _resolve(lines: list[str], here: Mapping[str, str], python: str) -> str | None:
    """What `uv` says where no set of versions holds all of the requirements."""
    tag = here["torch"].partition("+")[2]
    with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
        print(*lines, sep="\n", file=file, flush=True)
        command = ["uv", "pip", "compile", file.name, "--quiet", "--python-version", python]
        command += ["--python-platform", "x86_64-manylinux_2_28"]
        command += ["--index-strategy", "unsafe-best-match"]
        command += ["--extra-index-url", TORCH_INDEX + tag] if tag else []
        done = subprocess.run(command, capture_output=True, text=True)
    return " ".join(done.stderr.split()) if done.returncode else None


def main(freeze: str, system: str) -> None:
    lines = Path(freeze).read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([\w.-]+)==(\S+)", line) for line in lines)
    here = {m[1].lower().replace("_", "-"): m[2] for m in found if m}
    python = re.search(r"^Python (\d+\.\d+)", Path(system).read_text(encoding="utf-8"), re.M)
    conflict = first_conflict(here, python[1])
    sys.exit(f"First conflict: {conflict}" if conflict else print("The pins fit."))


if __name__ == "__main__":
    main(*sys.argv[1:])
