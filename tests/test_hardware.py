"""The profile that `hardware` proposes: by the memory that is free, not by a card's name."""

from types import SimpleNamespace

import pytest

from casebook import hardware
from casebook.preflight.cards import GIB


@pytest.fixture
def gpu(monkeypatch):
    """`gpu(16, 14, 7)` is a card of that size, with so much free, of that generation."""
    import torch

    def put(total, free, major):
        card = SimpleNamespace(name="a card", total_memory=total * GIB, major=major, minor=0)
        monkeypatch.setattr(hardware, "_gpu", lambda: card)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * GIB, total * GIB))
        return hardware.hardware()

    return put


def test_a_card_of_80_gb_gets_a_larger_profile_than_one_of_15(gpu):
    assert gpu(15, 14, 7)["profile"] == "t4"
    assert gpu(80, 79, 8)["profile"] == "a100"


def test_a_large_card_that_others_fill_gets_what_fits_into_the_rest(gpu):
    assert gpu(80, 2, 8)["profile"] == "nano"
    assert gpu(80, 14, 8)["profile"] != "a100"


def test_a_card_without_bf16_never_gets_a_profile_that_needs_it(gpu):
    found = gpu(80, 79, 7)
    assert "a100" not in found["profiles"].values()


def test_the_reason_names_the_free_memory(gpu):
    assert gpu(15, 14, 7)["reason"].startswith("14.0 GiB are free on the GPU")


def test_without_a_gpu_it_is_the_embedded_model(monkeypatch):
    monkeypatch.setattr(hardware, "_gpu", lambda: None)
    found = hardware.hardware()
    assert (found["profile"], found["reason"]) == ("nano", hardware.NO_GPU)
    assert "profiles" not in found
