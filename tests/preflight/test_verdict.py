"""Go, change or stop, and the line that is proposed."""

import pytest

from casebook.preflight import proposal, verdict
from casebook.preflight.cards import GIB, Machine, cards
from casebook.preflight.memory import Texts, phases
from casebook.preflight.shapes import known_shapes
from casebook.settings import checked
from casebook.stats import mean_interval

QWEN = known_shapes()["Qwen/Qwen2.5-1.5B-Instruct"]
TEXTS = Texts(200, 200, known=True)


def settings(**changes):
    return checked(("poker", "t4"), changes)


def judged(wanted, gib):
    card = Machine("a card", int(gib * GIB), int(gib * GIB), True)
    found = phases(wanted, QWEN, card, TEXTS)
    return verdict.of_memory(wanted, QWEN, card, TEXTS, found)


def test_what_fits_goes():
    assert judged(settings(), 14.6) == ("go", [], None)


def test_a_micro_batch_that_is_too_large_is_made_smaller_and_the_step_stays_as_it_is():
    wanted = settings(per_device_train_batch_size=128, num_generations=8)
    wanted |= {"gradient_accumulation_steps": 1, "steps_per_generation": 1}
    wanted |= {"gradient_checkpointing": False, "max_completion_length": 32}
    word, reasons, change = judged(wanted, 14.6)
    assert word == "change"
    assert reasons[0].startswith("backward does not fit on a card: it needs")
    size, steps = (
        change.values[name] for name in ("per_device_train_batch_size", "steps_per_generation")
    )
    assert size * steps == 128
    mended = wanted | change.values
    assert judged(mended, 14.6)[0] == "go"
    larger = {"per_device_train_batch_size": size * 2, "steps_per_generation": steps // 2}
    assert judged(wanted | larger, 14.6)[0] != "go"
    checked(("poker", "t4"), mended)  # and it is a configuration


def test_two_phases_that_do_not_fit_may_take_two_settings():
    wanted = settings(per_device_train_batch_size=512, max_completion_length=32)
    wanted |= {"gradient_accumulation_steps": 1, "steps_per_generation": 1}
    wanted |= {"gradient_checkpointing": False}
    word, reasons, change = judged(wanted, 14.6)
    assert word == "change"
    assert {reason.split()[0] for reason in reasons} == {"rollout", "backward"}
    assert judged(wanted | change.values, 14.6)[0] == "go"
    checked(("poker", "t4"), wanted | change.values)


def test_what_nothing_mends_stops_and_names_the_phase():
    word, reasons, change = judged(settings(load_in_4bit=True), 1.0)
    assert (word, change) == ("stop", None)
    assert "no other values of one setting or two make" in reasons[-1]


def test_less_than_a_tenth_free_is_too_little():
    found = phases(settings(), QWEN, cards()["t4"], TEXTS)
    needed = max(each.needed for each in found if each.name == "backward")
    assert judged(settings(), 1.05 * needed / GIB)[0] != "go"


@pytest.mark.parametrize(
    ("silent", "truncated", "said"),
    [(1, 0, "groups are silent"), (0, 1, "cut at max_completion_length"), (0, 0, None)],
)
def test_silent_groups_and_cut_completions_stop(silent, truncated, said):
    found = {"silent": mean_interval([silent] * 16), "truncated": mean_interval([truncated] * 16)}
    reasons = verdict.of_measure(found)
    assert len(reasons) == bool(said)
    assert all(said in reason for reason in reasons)


def test_a_training_that_takes_longer_than_there_is_stops_with_the_steps_that_would_end():
    seconds = {"load": 60, "evaluation": 0, "rollout": 3600, "backward": 3600, "final test": 300}
    assert verdict.of_time(seconds, 3, 100) == []
    (reason,) = verdict.of_time(seconds, 1, 100)
    assert reason == "it takes 2.1 hours, and there are 1: max_steps 45 would end in time"
    assert verdict.of_time(dict.fromkeys(seconds), 1, 100) == []


def test_a_t4_has_no_bf16_and_no_vllm():
    reasons = verdict.of_capability(checked(("poker", "a100")), cards()["t4"])
    assert [reason.split()[0] for reason in reasons] == ["T4", "vLLM"]


@pytest.mark.parametrize("name", cards())
def test_each_card_gets_a_profile_whose_phases_fit(name):
    found = proposal.proposed(cards()[name])
    for case, profile in found["profiles"].items():
        if profile != proposal.NOTHING:
            wanted = checked((case, profile))
            shape = known_shapes()[wanted["model_name_or_path"]]
            assert verdict.fits(phases(wanted, shape, cards()[name])), case
    assert found["profile"] != proposal.NOTHING


def test_a_profile_that_leaves_less_than_a_tenth_free_is_not_proposed():
    wanted = checked(("poker", "t4"))
    needed = max(each.needed for each in phases(wanted, QWEN, cards()["t4"]))
    # Evaluations fit themselves to what is free, and leave room on any card.
    free = [int(needed * share) for share in (1.0, 1.05, 1.2)]
    for size in free:
        machine = cards()["t4"]._replace(free=size)
        found = phases(wanted, QWEN, machine)
        proposes = proposal.proposed(machine)["profiles"]["poker"] != proposal.NOTHING
        assert proposes == verdict.fits(found)
    assert proposes


def test_of_peft_nothing_is_asked_that_only_unsloth_knows(monkeypatch):
    card = cards()["a100-80"]
    wanted = checked(("gsm8k", "a100"))
    assert verdict.of_capability(wanted, card) == []
    monkeypatch.setenv("CASEBOOK_BACKEND", "peft")
    (said,) = verdict.of_capability(wanted, card)
    assert "only Unsloth knows load_in_4bit and fast_inference" in said
    whys = [why for why, _ in verdict._options(wanted | {"load_in_4bit": False}, card)]
    assert "weights of 4 bits" not in whys


def test_a_card_that_is_full_gets_what_needs_none():
    full = cards()["a100-80"]._replace(free=2 * GIB)
    assert proposal.proposed(full)["profile"] == "nano"
