"""Weights & Biases: a login is honoured, and nobody is asked for one."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebook.training import login

NETRC = "machine {} login user password 0123456789\n"


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_MODE", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return tmp_path / "netrc"


def test_without_a_login_it_is_offline_in_the_run_folder(nobody, tmp_path):
    login.prepare_wandb(tmp_path)
    assert (os.environ["WANDB_MODE"], os.environ["WANDB_DIR"]) == ("offline", str(tmp_path))


@pytest.mark.parametrize("how", ["key", "netrc"])
def test_who_is_logged_in_is_online(nobody, tmp_path, monkeypatch, how):
    # "Offline unless you log in" was once offline for everybody.
    if how == "key":
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    else:
        nobody.write_text(NETRC.format("api.wandb.ai"))
    login.prepare_wandb(tmp_path)
    assert "WANDB_MODE" not in os.environ


def test_a_mode_that_somebody_set_stays(nobody, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    login.prepare_wandb(tmp_path)
    assert os.environ["WANDB_MODE"] == "online"


def test_the_login_has_to_be_for_the_server_that_is_used(nobody, monkeypatch):
    nobody.write_text(NETRC.format("github.com"))
    assert not login.logged_in()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org:8080/")
    assert not login.logged_in()
    nobody.write_text(NETRC.format("wandb.example.org"))
    assert login.logged_in()


def test_the_file_lies_in_the_home_folder(nobody, monkeypatch, tmp_path):
    monkeypatch.delenv("NETRC")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not login.logged_in()
    (tmp_path / "_netrc").write_text(NETRC.format("api.wandb.ai"))
    assert login.logged_in()


@given(text=st.text(max_size=80))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_no_login_and_no_error(nobody, text):
    nobody.write_text(text.replace("api.wandb.ai", ""), encoding="utf-8", errors="replace")
    assert login.logged_in() is False
