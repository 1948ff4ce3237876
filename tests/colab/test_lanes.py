"""The lanes that need a package index: what they run is there and says what it should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from casebook import paths

HERE = Path(__file__).parent
FREEZE = "numpy==2.1.3\npillow==11.3.0\ntorch==2.11.0+cu128\n"
SYSTEM = "Ubuntu 22.04.5 LTS\nPython 3.13.15\n"
UV = """#!/bin/sh
case "$*" in *"whl/cu128"*) ;; *) echo "another index" >&2; exit 1;; esac
grep -q "^trl==" "$3" && grep -q "^torch==2.11.0+cu128" "$3" && exit 0
echo "No solution" >&2; exit 1
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("", ""), "The pins fit."),
        (("Python 3.13", "Python 3.14"), "Colab has Python 3.14, and the casebook needs >=3.11,<"),
        (("numpy==2.1.3", "numpy==1.26.4"), "keeps Colab's numpy 1.26.4"),
        (("2.11.0+cu128", "2.14.0+cu130"), "no pinned build of vLLM fits: it is built"),
        (("torch==", "torch @ "), "are not the lists of Colab's GPU image"),
    ],
)
def test_the_first_pin_that_does_not_fit_colab_is_named(change, said, tmp_path, monkeypatch):
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "freeze.txt").write_text(FREEZE.replace(*change) if change[0] else FREEZE)
    (tmp_path / "system.txt").write_text(SYSTEM.replace(*change) if change[0] else SYSTEM)
    command = [sys.executable, HERE / "pins_fit.py", "freeze.txt", "system.txt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert said in done.stdout + done.stderr
    assert done.returncode == int(bool(change[0]))


@pytest.mark.parametrize(
    ("lane", "script"), [("colab-pins", "pins_fit.py"), ("older-libraries", "older_libraries.sh")]
)
def test_a_workflow_runs_it_by_itself(lane, script):
    workflow = yaml.safe_load((paths.ROOT / f".github/workflows/{lane}.yml").read_text())
    assert workflow[True]["schedule"]  # YAML reads `on` as true
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    assert f"tests/colab/{script}" in steps[-1]
    assert (HERE / script).exists()


def test_the_older_libraries_are_those_of_colabs_image():
    image = yaml.safe_load((HERE / "image.yaml").read_text())["packages"]
    taken = re.findall(r'"(\w+)==\$\(version (\w+)\)"', (HERE / "older_libraries.sh").read_text())
    assert [name for name, _ in taken] == ["numpy", "pandas", "pytz"]
    assert all(name == asked and image[name] for name, asked in taken)
