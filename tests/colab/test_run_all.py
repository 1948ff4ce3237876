"""Run All of the training notebooks, through their last cell, on Unsloth's compiled trainer."""

import json

import pytest
import yaml

NOTEBOOKS = {"13": "poker", "23": "landuse", "33": "gsm8k", "43": "math"}
# How many engines the process made, and whether one was left.
ASKED = """
import sys
engine = sys.modules["engine"].Engine if "engine" in sys.modules else None
print("ENGINES", engine.made if engine else 0, bool(engine and engine.alive))
import trl
assert trl.GRPOTrainer.__module__ == "UnslothGRPOTrainer"
"""


@pytest.mark.parametrize(
    "profile",
    [pytest.param("t4", marks=pytest.mark.slow), pytest.param("a100", marks=pytest.mark.heavy)],
)
@pytest.mark.parametrize("number", NOTEBOOKS)
def test_every_cell_runs_and_leaves_a_record(number, profile, small_checkout, run_all):
    case = NOTEBOOKS[number]
    checkout = small_checkout(case, profile)
    notebook, runs = run_all(checkout, number, profile, ASKED)
    settings = yaml.safe_load((checkout / f"configs/{case}/{profile}.yaml").read_text())
    fast = settings["fast_inference"]

    # One print may come as several outputs.
    said = "".join(o["text"] for o in notebook.cells[-1].outputs if o.get("name") == "stdout")
    assert said.split() == ["ENGINES", str(int(fast)), "False"]

    (file,) = runs.rglob("record.json")
    record = json.loads(file.read_text())
    assert (record["case"], record["profile"]) == (case, profile)
    for when in ("before", "after"):
        assert record[when]["greedy_accuracy"]["n"] == 6
    assert record["adapter_largest_change"] > 0
    # Unsloth logs no entropy, and `kl` always: 0.0 where it has measured none.
    assert "entropy" not in record["curve"]
    assert ("kl" in record["curve"]) == (settings["beta"] > 0)
    assert record["provenance"]["model"]["generator"] == ("vllm" if fast else "unsloth")
