"""What is installed on Colab, in parts; `colab/test_install_cell.py` runs the whole of it."""

import subprocess
import sys

import pytest

from casebook import install, paths


@pytest.mark.parametrize(
    ("capability", "torch", "wheel", "why"),
    [
        (7.5, "2.11.0+cu128", None, "not tried below compute capability 8.0, and here is 7.5"),
        (8.0, "2.11.0+cu128", "0.26.0+cu129", "its build fits torch 2.11.0+cu128"),
        (8.9, "2.13.0+cu130", "vllm==0.30.0", "its build fits torch 2.13.0+cu130"),
        (10.0, "2.13.0+cu130", "vllm-bnb-plugin==0.0.3", "its build fits"),
        (8.0, "2.12.0+cu128", None, "built for torch 2.11.0+cu12 or 2.13.0+cu13, and here is 2.12"),
        (8.0, "2.11.0+cu130", None, "it is built for torch"),
        (8.0, "", None, "and here is none"),
    ],
)
def test_the_build_of_vllm_fits_card_and_torch(capability, torch, wheel, why):
    wheels, said = install.vllm_for(capability, torch)
    assert why in said
    assert any(wheel in name for name in wheels) if wheel else wheels == []


@pytest.mark.parametrize("python", [(3, 10, 12), (3, 14, 0)])
def test_a_python_that_does_not_fit_is_one_sentence(python, monkeypatch):
    monkeypatch.setattr(sys, "version_info", python)
    with pytest.raises(SystemExit, match=r"does not fit: the casebook needs 3\.11 to 3\.13\.$"):
        install.install("light")


PIP = """
import sys
print("Collecting numpy")
print("  Downloading torch-2.11.0.whl (821.3 MB)")
print("  Downloading six-1.17.0.whl (11 kB)")
if "broken" in sys.argv:
    print("ERROR: Cannot install trl==1.14.2 and transformers==4.0 because of a conflict")
    sys.exit(1)
"""


@pytest.fixture
def real_pip(monkeypatch, tmp_path):
    (tmp_path / "pip.py").write_text(PIP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_large_downloads_and_what_pip_could_not_do_are_told(real_pip, capsys):
    install._pip("torch", "torch")
    assert capsys.readouterr().out.splitlines()[1:] == ["  Downloading torch-2.11.0.whl (821.3 MB)"]
    with pytest.raises(SystemExit, match=r"could not install this: ERROR: Cannot install trl==1"):
        install._pip("this", "broken")


def test_vllm_is_tried_in_a_process_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "No module named 'vllm'" in install._vllm_fault()
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")
    broken = "raise ImportError('libcudart.so.13: cannot open shared object file')"
    (tmp_path / "vllm/_C.py").write_text(broken)
    assert install._vllm_fault().endswith("libcudart.so.13: cannot open shared object file")
    (tmp_path / "vllm/_C.py").write_text("")
    assert install._vllm_fault() is None
    assert "vllm" not in sys.modules


@pytest.mark.parametrize(
    ("answer", "capability"), [("7.5", 7.5), ("8.0\n8.0", 8.0), ("", None), ("No devices", None)]
)
def test_the_gpu_is_asked_by_its_driver(answer, capability, monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert install._capability() == capability


def test_it_runs_before_anything_is_installed():
    code = "import casebook.install as i, sys; print('numpy' in sys.modules, i.ROOT)"
    command, env = [sys.executable, "-S", "-c", code], {"PYTHONPATH": str(paths.ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.stdout.split() == ["False", str(paths.ROOT)], done.stderr
