"""Run All of the training notebooks, through their last cell, in the profiles of the GPUs."""

import json

import pytest
import yaml

NOTEBOOKS = {"13": "poker", "23": "landuse", "33": "gsm8k", "43": "math"}
PROFILES = ("t4", "gpu24", "a100")
# How many engines the process made, and whether one was left.
ASKED = """
import sys
engine = sys.modules["engine"].Engine if "engine" in sys.modules else None
print("ENGINES", engine.made if engine else 0, bool(engine and engine.alive))
"""

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("profile", ["t4", "a100"])
@pytest.mark.parametrize("number", NOTEBOOKS)
def test_every_cell_runs_and_leaves_a_record(number, profile, small_checkout, run_all):
    case = NOTEBOOKS[number]
    checkout = small_checkout(case, profile)
    notebook, runs = run_all(checkout, number, profile, ASKED)
    settings = yaml.safe_load((checkout / f"configs/{case}/{profile}.yaml").read_text())
    fast = settings["fast_inference"]

    assert notebook.cells[-1].execution_count
    (said,) = (o["text"] for o in notebook.cells[-1].outputs if o.output_type == "stream")
    assert said.split() == ["ENGINES", str(int(fast)), "False"]

    (file,) = runs.rglob("record.json")
    record = json.loads(file.read_text())
    assert (record["case"], record["profile"]) == (case, profile)
    for when in ("before", "after"):
        assert record[when]["greedy_accuracy"]["n"] == 6
    assert record["adapter_largest_change"] > 0
    assert record["provenance"]["model"]["generator"] == ("vllm" if fast else "unsloth")
