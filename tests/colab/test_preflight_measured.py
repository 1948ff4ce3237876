"""`casebook preflight --measure` of the GPU profiles, with the stand-ins for Unsloth and vLLM."""

import json

import pytest

# The stand-ins need no GPU; a card is put where torch would tell of one.
PREFLIGHT = """
import json, sys
from casebook import preflight
from casebook.preflight.sizes import cards
preflight.machine_for = lambda *_: cards()["a100-80"]
{before}
found = preflight.preflight(sys.argv[1], measure=True)
engine = sys.modules["engine"].Engine
print(json.dumps(found | {{"engines": [engine.made, bool(engine.alive)]}}, indent=1))
"""
# A rollout finds no memory, as torch says it.
FULL = """
def full(config, *rest):
    import torch
    from casebook.models import load_policy
    loaded = load_policy(config.case, config.profile, settings=config.settings)
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\\nmore")
import casebook.training
casebook.training.first_steps = full
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def measured(small_checkout, python_in):
    """`measured(profile, before)`: what a preflight of poker finds, in a process of its own."""

    def run(profile, before=""):
        checkout = small_checkout("poker", profile)
        code, config = PREFLIGHT.format(before=before), f"configs/poker/{profile}.yaml"
        said = python_in(checkout, code, config)
        return json.loads(said[said.index("{\n") :])

    return run


@pytest.mark.parametrize(("profile", "engines"), [("t4", 0), ("a100", 1)])
def test_a_profile_of_a_gpu_is_measured_and_leaves_no_engine(profile, engines, measured):
    found = measured(profile)
    assert found["measured"]["prompts"] > 4, found["reasons"]
    assert found["measured"]["seconds"] > 0
    assert found["engines"] == [engines, False]


def test_memory_that_does_not_last_does_not_fit(measured):
    found = measured("a100", FULL)
    assert found["verdict"] == "does not fit"
    assert found["reasons"][0].startswith("measuring ran out of memory (CUDA out of memory.")
