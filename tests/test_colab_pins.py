"""The pins against a list of Colab's packages; uv is a stand-in, so no index is asked."""

import os
import re
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from casebook import colab_pins, paths
from casebook.case import CasebookError

# From the image of August 2026: Python 3.13, CUDA 12.8.
FREEZE = """
accelerate==1.14.0
datasets==4.0.0
en_core_web_sm @ https://example.org/en_core_web_sm.whl
numpy==2.1.3
pandas==2.2.3
pillow==11.3.0
pyarrow==18.1.0
torch @ file:///dev/null
torch==2.11.0+cu128
"""
SYSTEM = """\
# Do not modify this file directly; it is generated via
#  $ (lsb_release -ds;python --version;) > os-info-gpu.txt
Ubuntu 22.04.5 LTS
Python 3.13.15
R version 4.6.1 (2026-06-24)
"""


@pytest.fixture
def files(tmp_path):
    """Writes the two files of an image; their paths, as the command line takes them."""

    def write(text=FREEZE, system=SYSTEM):
        (tmp_path / "freeze.txt").write_text(text)
        (tmp_path / "system.txt").write_text(system)
        return [str(tmp_path / "freeze.txt"), str(tmp_path / "system.txt")]

    return write


@pytest.fixture
def uv(monkeypatch, tmp_path):
    """A stand-in for uv: keeps what it is asked, fails with a message where one is set.

    With `about` it fails only where that is asked for.
    """
    program, asked = tmp_path / "bin" / "uv", tmp_path / "asked"

    def says(message="", about=""):
        program.parent.mkdir(exist_ok=True)
        fails = f"grep -q '^{about}' \"$3\" && {{ echo '{message}' >&2; exit 1; }}; exit 0"
        keeps = f'(echo "$@"; cat "$3"; echo) >> {asked}'
        program.write_text(f"#!/bin/sh\n{keeps}\n{fails if message else ''}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        return asked

    return says


def test_the_pins_are_resolved_beside_what_colab_keeps(files, uv, capsys):
    asked = uv()
    assert colab_pins.main(files()) == 0
    assert "The pins fit." in capsys.readouterr().out
    calls = asked.read_text().strip().split("\n\n")
    for text in calls:
        assert "--extra-index-url https://download.pytorch.org/whl/cu128" in text
        assert "--python-version 3.13 " in text
        lines = set(text.splitlines())
        assert {"torch==2.11.0+cu128", "numpy==2.1.3", "pillow==11.3.0", "trl==1.14.2"} <= lines
        assert any(line.startswith("geopandas") for line in lines)
    without, beside = calls
    assert "vllm" not in without
    assert re.search(r"^vllm @ \S+\+cu129-\S+\.whl$", beside, re.MULTILINE)


def test_python_is_the_one_of_the_image(files, uv):
    asked = uv()
    assert colab_pins.main(files(system=SYSTEM.replace("3.13.15", "3.12.9"))) == 0
    assert "--python-version 3.12 " in asked.read_text()


def test_the_first_conflict_is_named(files, uv, capsys):
    uv("No solution found: because transformers==5.17.0 needs numpy>=3, it cannot be used")
    assert colab_pins.main(files()) == 1
    assert "First conflict: No solution found: because transformers" in capsys.readouterr().out


def test_a_conflict_that_vllm_brings_is_said_to_be_its(files, uv, capsys):
    uv("No solution found: because vllm==0.26.0 needs numpy>=3", about="vllm")
    assert colab_pins.main(files()) == 1
    assert "First conflict: with vLLM: No solution found: because vllm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "python", "said"),
    [
        (("", ""), "3.14.0", "Colab has Python 3.14, and the casebook needs >=3.11,<3.14"),
        (("numpy==2.1.3", "numpy==1.26.4"), "3.13.15", "keeps Colab's numpy 1.26.4, and the"),
        (("2.11.0+cu128", "2.14.0+cu130"), "3.13.15", "no pinned build of vLLM fits: it is built"),
    ],
)
def test_what_needs_no_resolver_is_said_without_one(change, python, said, files, uv, capsys):
    uv("uv should not be asked")
    text = FREEZE.replace(*change) if change[0] else FREEZE
    assert colab_pins.main(files(text, SYSTEM.replace("3.13.15", python))) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "numpy==2.1.3\n", "<html>404</html>"])
def test_a_list_that_is_none_cannot_be_told(text, files, capsys):
    assert colab_pins.main(files(text)) == 2
    assert "names no torch" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "Ubuntu 22.04.5 LTS\n", "<html>404</html>", "# Python 3.13"])
def test_a_system_without_a_python_cannot_be_told(text, files, capsys):
    assert colab_pins.main(files(system=text)) == 2
    assert "names no Python" in capsys.readouterr().err


def test_without_uv_or_the_files_it_cannot_be_told(files, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    freeze, system = files()
    assert colab_pins.main([freeze, system]) == 2
    for asked in ([str(tmp_path / "none"), system], [freeze, str(tmp_path / "none")]):
        capsys.readouterr()
        assert colab_pins.main(asked) == 2
        assert "cannot be read" in capsys.readouterr().err


@given(text=st.text(max_size=300))
def test_any_text_is_a_list_or_a_sentence(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("freeze") / "freeze.txt"
    path.write_text(text, encoding="utf-8", errors="replace")
    with suppress(CasebookError):
        assert "torch" in colab_pins.read_freeze(path)


def test_the_workflow_calls_it_on_colabs_own_list():
    file = paths.ROOT / ".github" / "workflows" / "colab-pins.yml"
    workflow = yaml.safe_load(file.read_text())
    assert workflow[True]["schedule"]  # YAML reads `on` as true
    steps = " ".join(step.get("run", "") for step in workflow["jobs"]["pins"]["steps"])
    for file in ("pip-freeze.gpu.txt", "os-info-gpu.txt"):
        assert re.search(rf"googlecolab/backend-info/\S+/{re.escape(file)}", steps)
    assert "python -m casebook.colab_pins pip-freeze.gpu.txt os-info-gpu.txt" in steps
