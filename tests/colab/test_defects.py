"""Each defect that once stopped a Colab user, put back: a test goes red, and it is that test.

`defects.yaml` lists them. A copy of the checkout gets the old fault, one at a time, and the test
that guards against it is run there. It has to fail, not to break: an error while a test is
collected says nothing about the fault.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from casebook import paths

DEFECTS = yaml.safe_load(Path(__file__).with_name("defects.yaml").read_text())
KNOWN = [f"A{number}" for number in range(1, 13)]


def test_every_known_defect_has_a_guard():
    guarded = {defect["finding"] for defect in DEFECTS}
    assert [finding for finding in KNOWN if finding not in guarded] == []


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d['finding']}-{d['name']}")
def test_what_is_put_back_is_still_mended(defect):
    """The text that the mend brought is there, once: else the list has to follow the code."""
    assert (paths.ROOT / defect["file"]).read_text().count(defect["mended"]) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d['finding']}-{d['name']}")
def test_a_defect_that_is_put_back_is_seen(defect, copy_checkout, tmp_path):
    checkout = copy_checkout(tmp_path)
    file = checkout / defect["file"]
    file.write_text(file.read_text().replace(defect["mended"], defect["defect"]))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment = kept | {"CASEBOOK_ROOT": str(checkout), "PYTHONPATH": str(checkout / "src")}
    unsloth = str(paths.ROOT / ".venv-unsloth/bin/python")  # of this checkout, not of the copy
    environment.setdefault("CASEBOOK_UNSLOTH_PYTHON", unsloth)
    quiet = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, defect["test"]],
        **{"cwd": checkout, "env": environment, "capture_output": True, "text": True},
    )
    assert done.returncode == 1, f"nothing went red:\n{done.stdout[-2000:]}"
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    assert failed, f"it broke before it failed:\n{done.stdout[-2000:]}"
    assert failed[0].partition("[")[0] == defect["test"].partition("[")[0]
