"""The lane that asks each week whether the pins still fit Colab's image, without an index."""

import subprocess
import sys
from pathlib import Path

import pytest

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
        (("2.11.0+cu128", "2.14.0+cu130"), "no pinned build of vLLM fits: it is built"),
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
