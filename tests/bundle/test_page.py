"""The page that takes a stranger from clone to bundle: each command on it can be typed."""

import re
import shlex
import shutil
import subprocess

import pytest
import typer

from casebook import cli, paths
from casebook.bundle import archive
from casebook.bundle.importing import arm_of
from casebook.paths import plain
from casebook.records import load_claims
from casebook.settings import checked

PAGE = paths.ROOT / "docs" / "ninety_minutes.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
OURS = [shlex.split(line)[1:] for line in COMMANDS if line.startswith("casebook ")]


def parsed(arguments):
    """The options of one call, as typer understands them; nothing runs."""
    command, (*words,) = typer.main.get_command(cli.app), arguments
    while hasattr(command, "commands"):  # a group
        name = words.pop(0)
        command = command.commands[name]
    context = command.make_context(name, words)
    return name, context.params


def test_the_page_has_commands_from_clone_to_bundle():
    assert COMMANDS[0].startswith("git clone ")
    assert [" ".join(words[:2]) for words in OURS if words[0] == "record"] == [
        "record export",
        "record import",
    ]


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_every_command_is_one(words):
    name, params = parsed(words)
    assert name in {words[0], words[1] if len(words) > 1 else ""}
    assert params.get("config") is None or (paths.ROOT / params["config"]).is_file()


def test_files_that_the_page_names_are_there():
    text = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"(?:configs|requirements)[\w/-]*\.(?:yaml|txt)", text)
    named = set(named) - {"requirements-t4.txt"}  # the page makes it
    assert len(named) == 3
    assert all((paths.ROOT / name).is_file() for name in named)


@pytest.mark.parametrize("cuda", ["cu12", "cu13"])
def test_what_is_installed_on_a_t4_is_all_but_vllm(cuda, tmp_path):
    (line,) = [line for line in COMMANDS if line.startswith("grep ")]
    assert line in (paths.ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    file = f"requirements-gpu-{cuda}.txt"
    shutil.copy(paths.ROOT / file, tmp_path)
    subprocess.run(line.replace("cu12", cuda), shell=True, check=True, cwd=tmp_path)
    whole, short = ((tmp_path / name).read_text() for name in (file, "requirements-t4.txt"))
    left_out = set(whole.splitlines()) - set(short.splitlines())
    assert left_out
    assert all(line.startswith("vllm") for line in left_out)
    assert not [line for line in short.splitlines() if line.startswith("vllm")]


def test_the_run_of_the_page_is_the_one_that_the_claim_wants():
    (words,) = [words for words in OURS if words[0] == "train" and "--resume" not in words]
    _, params = parsed(words)
    overrides = cli.parse_parameters(params["setting"]) | {"seed": params["seed"]}
    config = plain(checked(paths.ROOT / params["config"], overrides))
    (claim,) = [claim for claim in load_claims("poker") if "want" in claim]
    assert claim["want"]["profile"] == config["profile"]
    for comparison in claim["want"]["compare"]:
        for side in ("left", "right"):
            assert comparison[side].split("/")[0] == arm_of(config)


def test_the_limits_of_the_page_are_those_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    mebibyte = archive.MEBIBYTE
    assert f"{archive.LARGEST_BUNDLE // mebibyte} MiB as sent" in text
    assert f"{archive.LARGEST_CONTENT // mebibyte} MiB expanded" in text
    assert f"{archive.MOST_FILES} files" in text
    assert f"{archive.LARGEST_FILE // mebibyte} MiB for a file without completions" in text
    assert f"more than {archive.LARGEST_RATIO} times its size" in text


def test_the_size_of_the_run_is_that_of_its_settings():
    text = PAGE.read_text(encoding="utf-8")
    settings = checked(("poker", "t4"))
    batch = settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"]
    assert f"{settings['max_steps']} steps of {batch} completions" in text
    assert f"{settings['test_limit']} hands, two completions each" in text
    assert settings["test_samples"] == 1
