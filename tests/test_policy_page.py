"""The page on what to do with a policy: its commands parse, and its Python runs as it stands."""

import json
import re
import shlex
import subprocess
import sys

import pytest
import yaml

from casebook import paths

PAGE = (paths.ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [
    line
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
GUARDED = [code for code in CODE if "Not run here" in code]


SETTINGS = {
    f"{path.parent.name}/{path.stem}": yaml.safe_load(path.read_text())
    for path in sorted(paths.CONFIGS.glob("*/*.yaml"))
    if path.stem != "experiments"
}


def run(code, folder):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_the_page_has_what_it_promises():
    for words in ("merge(", "bfloat16", "push_to_hub", "save_pretrained_gguf", "vllm serve"):
        assert words in PAGE
    assert len(CODE) - len(GUARDED) == 3


def test_bases_of_4_bits_are_those_that_it_names():
    assert "4 bits (GSM8K’s GPU profiles and `configs/math/a100_qlora.yaml`)" in PAGE
    four = {name for name, given in SETTINGS.items() if given.get("load_in_4bit")}
    gsm8k = {n for n, given in SETTINGS.items() if n.startswith("gsm8k") and not given["use_cpu"]}
    assert four == gsm8k | {"math/a100_qlora"}


def test_vllm_serves_the_rank_of_every_adapter_that_a_gpu_trains():
    served = int(re.search(r"--max-lora-rank (\d+)", PAGE)[1])
    trained = [s["lora_r"] for s in SETTINGS.values() if s.get("use_peft") and not s["use_cpu"]]
    assert served >= max(trained)


@pytest.mark.slow
def test_what_runs_offline_runs(tmp_path):
    said = []
    for code in CODE:
        if code not in GUARDED:
            done = run(code, tmp_path)
            assert done.returncode == 0, done.stderr
            said.append(done.stdout)
    tried, merged, half = said
    assert "full house" in tried
    assert merged == "32 of 32 greedy completions are equal\n"
    assert re.match(r"\d+ of 32 greedy completions are equal\n", half)
    for folder, dtype in (("merged", "float32"), ("half", "bfloat16")):
        assert json.loads((tmp_path / folder / "config.json").read_text())["dtype"] == dtype


@pytest.mark.slow
@pytest.mark.parametrize("code", GUARDED, ids=range(len(GUARDED)))
def test_what_needs_more_than_this_machine_says_so(code, tmp_path, monkeypatch):
    """Hidden from the interpreter: a GPU, the libraries, a login."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hidden = (
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n in {'unsloth', 'vllm', 'wandb'} else find(n, *a)\n"
    )
    done = run(hidden + code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Not run here" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_login_by_command_is_one(tmp_path, monkeypatch):
    """`hf auth login` writes a file. The hub is offline here, and the folder to push is empty."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "token").write_text("hf_of_nobody")
    (tmp_path / "merged").mkdir()
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    (code,) = (code for code in GUARDED if "push_to_hub" in code)
    done = run(code, tmp_path)
    assert "Not run here" not in done.stdout
    assert "merged" in done.stderr


@pytest.mark.slow
def test_reading_wandb_s_files_where_there_are_none_is_a_sentence(tmp_path):
    pytest.importorskip("wandb")
    (code,) = (code for code in GUARDED if "read_runs" in code)
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "there is no offline run of W&B in runs" in done.stdout


def test_commands_of_the_casebook_parse(monkeypatch, capsys):
    """Each option of a printed command is one of the command's."""
    from typer.main import get_command

    from casebook import cli

    mine = [shlex.split(line) for line in COMMANDS if line.startswith("casebook ")]
    assert mine
    for _, name, *arguments in mine:
        command = get_command(cli.app).commands[name]
        known = command.make_context(name, arguments).params
        assert known["run"]
        assert known["prompt"] or known["row"] is not None
