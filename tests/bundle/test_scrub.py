"""What of a machine and its owner is removed, and what only looks like it and stays."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from casebook.bundle import scrub
from casebook.bundle.contents import own_words
from casebook.bundle.scrub import Scrubber, names_here, private_in
from casebook.case import CasebookError
from casebook.paths import plain
from casebook.settings import checked

# Made up, as all names and secrets here: a home, and two folders that Linux has for everybody.
HOME, ROOT, TEMPORARY = (f"/{folder}" for folder in ("home/ann", "root", "tmp"))
PATHS = (
    *(f"{HOME}/runs/x", f"{ROOT}/.cache", "/content/drive/MyDrive/runs", "~/runs", "~ann/x"),
    *(
        "C:\\Users\\Ann\\x",
        "D:/data/x",
        "\\\\server\\share\\x",
        f"file://{TEMPORARY}/x",
        "/kaggle/working/",
    ),
    *("/Users/Ann Smith/models/qwen", TEMPORARY, "/scratch/1234/5678", "/Users/Ann Smith/1234"),
)
SECRETS = (
    "hf_" + "aB3" * 10,
    "ghp_" + "a1" * 15,
    "github_pat_" + "a1" * 15,
    "sk-proj-" + "a1" * 15,
    "AKIA" + "A1B2" * 4,
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.SflKxwRJSM",
    "Bearer abcdefghijklmnop",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
)
HARMLESS = (
    *("Qwen/Qwen2.5-1.5B-Instruct", "rewards/correct/mean", "data/nano/poker", "2.13.0+cu126"),
    *("2026-11-23T04:45:37+00:00", "550.54.15", "NVIDIA A100-SXM4-40GB", "15360 MiB", "1/2"),
    *("81227ff4d5340b429ffe98267ff54a5114d08cd2", "completions/clipped_ratio", "and / or"),
    *("Intel(R) Xeon(R) CPU @ 2.20GHz", "https://huggingface.co/Qwen/Qwen2.5", "a" * 64, "k: 0/8"),
)


@pytest.mark.parametrize("text", PATHS)
def test_paths_go(text):
    assert Scrubber({}).scrub(text) == "[path]"
    assert Scrubber({}).scrub({"note": f"it is in {text}"})["note"].startswith("it is in [path]")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"dir:{HOME}/x", "dir:[path]"),
        (f"PATH=/usr/bin:{HOME}/bin", "PATH=[path]:[path]"),
        ("/scratch/1234/5678", "[path]"),
    ],
)
def test_paths_go_after_a_colon_and_with_parts_of_digits(text, left):
    assert Scrubber({}).scrub(text) == left
    assert private_in(text) == "path"


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_go_whatever_field_they_are_in(text):
    scrubber = Scrubber({})
    assert scrubber.scrub({"note": f"with {text}"}) == {"note": "with [secret]"}
    assert scrubber.found == {"secret": 1}


@pytest.mark.parametrize("field", ["WANDB_API_KEY", "hf_token", "password", "secret", "auth-token"])
def test_a_field_that_is_called_a_secret_is_one(field):
    assert Scrubber({}).scrub({field: "anything"}) == {field: "[secret]"}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_private_stays(text):
    assert Scrubber({}).scrub(text) == text
    assert private_in({text: [text]}) is None


def test_counts_of_tokens_are_no_secrets():
    figures = {"num_tokens": 12, "mean_completion_tokens": {"value": 3.5}, "token": 7}
    assert Scrubber({}).scrub(figures) == figures


def test_addresses_go():
    said = Scrubber({}).scrub("ask ann.b@mail.example.org at 192.168.0.17")
    assert said == "ask [e-mail address] at [network address]"


def test_a_password_inside_an_address_goes():
    assert "hunter2" not in Scrubber({}).scrub("https://ann:hunter2@example.org/x")


def test_names_of_this_machine_go_as_whole_words():
    scrubber = Scrubber({"annika": "user name", "gpu-box-7": "host name"})
    text = "annika on gpu-box-7, annikas run"
    assert scrubber.scrub(text) == "[user name] on [host name], annikas run"


def test_keys_are_looked_at_too():
    assert Scrubber({}).scrub({f"{HOME}/x": 1}) == {"[path]": 1}


def test_keys_keep_the_names_of_user_and_host_and_no_secret():
    scrubber = Scrubber({"torch": "user name", "s3cr3t-value": "secret"})
    versions = {"torch": "of torch", "s3cr3t-value": 1}
    assert scrubber.scrub(versions) == {"torch": "of [user name]", "[secret]": 1}


def test_two_keys_that_would_become_one_are_an_error():
    with pytest.raises(CasebookError, match=r"two keys would both read '\[path\]'"):
        Scrubber({}).scrub({"part": [{f"{HOME}/x": 1, f"{HOME}/y": 2}]})


def test_a_mark_among_the_keys_hides_nothing():
    assert private_in({"[path]": HOME, "": 1}) == "path"


def test_user_host_and_the_environments_secrets_are_known(monkeypatch):
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: "annika")
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: "gpu-box-7.example.org")
    monkeypatch.setattr(scrub.socket, "getfqdn", lambda: "gpu-box-7.example.org")
    found = names_here({"MY_API_KEY": "s3cr3t-value", "PATH": "/usr/bin", "TOKENS": "7"})
    assert found["annika"] == "user name"
    assert found["gpu-box-7"] == found["gpu-box-7.example.org"] == "host name"
    assert found["s3cr3t-value"] == "secret"
    assert "7" not in found
    assert "/usr/bin" not in found


@pytest.mark.parametrize("name", ["root", "ubuntu", "ab", ""])
def test_a_name_that_names_nobody_stays(name, monkeypatch):
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: name)
    assert name not in names_here({})


@pytest.mark.parametrize("name", ["train", "poker", "reason"])
def test_a_name_that_is_a_word_of_the_bundle_stays(name, monkeypatch):
    monkeypatch.setattr(scrub.getpass, "getuser", lambda: name)
    monkeypatch.setattr(scrub.socket, "gethostname", lambda: f"{name}.example.org")
    words = ["train", "data/nano/poker", "reason"]
    assert name in names_here({"A_SECRET": "training-7"})
    assert name not in (found := names_here({"A_SECRET": "training-7"}, words))
    assert found[f"{name}.example.org"] == "host name"
    assert found["training-7"] == "secret"


@pytest.mark.parametrize(
    ("case", "profile"),
    [("poker", "nano"), ("landuse", "t4"), ("gsm8k", "a100"), ("math", "gpu24")],
)
def test_no_setting_of_a_profile_is_taken_for_a_name(case, profile):
    settings = plain(checked((case, profile)))
    texts = [text for _, text in scrub.texts_in(settings)]
    names = {word for text in texts for word in re.findall(r"[\w-]+", text)}
    words = own_words(case, profile)
    scrubber = Scrubber({n: "user name" for n in names if not scrub.is_word(n, words)})
    assert scrubber.scrub(settings) == settings


def test_a_user_without_an_entry_is_no_error(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(scrub.getpass, "getuser", nobody)
    names_here({})


@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x, max_size=3)))
def test_nothing_private_is_left_of_any_value(value):
    assert private_in(Scrubber({}).scrub({"field": value})) is None
