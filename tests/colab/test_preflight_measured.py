"""`casebook preflight --measure` of the GPU profiles, with the stand-ins for Unsloth and vLLM."""

import json

import pytest

# The stand-ins need no GPU; a card is put where `nvidia-smi` would tell of one.
PREFLIGHT = """
import json, sys
from casebook import preflight
from casebook.preflight import cards, checks
preflight.cards.this_gpu = lambda: cards.card("a100-80")
checks.checks = lambda *_: []  # the versions are those of a CPU
{before}
found = preflight.preflight(sys.argv[1], measure=True)
engine = sys.modules["unsloth.engine"].Engine
print(preflight.as_json(found | {{"engines": [engine.made, bool(engine.alive)]}}))
"""
# The second rollout finds no memory, as torch says it.
FULL = """
import torch
from casebook.preflight import measured
def more(self, trainer):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\\nmore")
measured._Watch.more = more
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def measured(small_checkout, python_in):
    """`measured(profile, before)`: what a preflight of poker finds, in a process of its own."""

    def run(profile, before=""):
        checkout = small_checkout("poker", [profile])
        code, config = PREFLIGHT.format(before=before), f"configs/poker/{profile}.yaml"
        said = python_in(checkout, code, config)
        return json.loads(said[said.index("{\n") :])

    return run


@pytest.mark.parametrize(("profile", "engines"), [("t4", 0), ("a100", 1)])
def test_a_profile_of_a_gpu_is_measured_and_leaves_no_engine(profile, engines, measured):
    found = measured(profile)
    assert found["seconds_by"] == "measured", found["reasons"]
    assert 16 <= found["measured"]["prompts"] <= 32
    assert found["measured"]["learning_seconds"] > 0
    assert found["engines"] == [engines, False]


def test_memory_that_does_not_last_is_a_stop_and_leaves_no_engine(measured):
    found = measured("a100", FULL)
    assert found["verdict"] == "stop"
    (said,) = [reason for reason in found["reasons"] if "out of memory" in reason]
    assert said.startswith("measuring ran out of memory (CUDA out of memory. Tried to allocate")
    assert found["engines"] == [1, False]
