"""What is installed on Colab, decided on pretended machines: pip, GPU and vLLM are stand-ins."""

import subprocess
import sys
import types

import pytest

from casebook import install, paths

# Colab's GPU image of August 2026, as far as the decisions look at it.
COLAB = {
    **{"torch": "2.11.0+cu128", "numpy": "2.1.3", "pillow": "11.3.0", "pandas": "2.2.3"},
    **{"pyarrow": "18.1.0", "transformers": "5.15.0", "datasets": "4.0.0", "torchao": "0.10.0"},
}


class Machine:
    """A pretended Colab: what is installed, the GPU, and whether vLLM loads once it is there."""

    def __init__(self, monkeypatch, gpu=None, torch=COLAB["torch"], vllm_loads=True, loaded=()):
        self.commands, self.here = [], COLAB | {"torch": torch}
        self.vllm_loads, self.has_vllm = vllm_loads, False
        monkeypatch.setattr(install, "installed_version", self.here.get)
        monkeypatch.setattr(install, "_capability", lambda: gpu)
        monkeypatch.setattr(install, "_pip_run", self.pip)
        monkeypatch.setattr(install, "_vllm_fault", self.vllm_fault)
        monkeypatch.setattr(sys, "version_info", (3, 13, 15))
        monkeypatch.setattr(sys, "version", "3.13.15 (main)")
        for name in install.LOADED:
            if name in loaded:
                monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
            else:
                monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delenv("UNSLOTH_VLLM_STANDBY", raising=False)

    def pip(self, arguments):
        self.commands.append(list(arguments))
        self.has_vllm |= any("vllm" in argument for argument in arguments)
        if "-e" in arguments:
            self.here["pyarrow"] = "26.0.1"  # TRL wants 21 or newer

    def vllm_fault(self):
        if self.has_vllm and self.vllm_loads:
            return None
        return "libcudart.so.13: cannot open shared object file" if self.has_vllm else "no vllm"

    def installed(self, name):
        return [c for c in self.commands if any(a.startswith(name) for a in c)]


@pytest.mark.parametrize(
    ("gpu", "torch", "unsloth", "vllm"),
    [
        (None, "2.11.0+cpu", False, None),
        (7.5, "2.11.0+cu128", True, None),
        (8.0, "2.11.0+cu128", True, "0.26.0+cu129"),
        (8.9, "2.13.0+cu130", True, "vllm==0.30.0"),
        (10.0, "2.13.0+cu130", True, "vllm-bnb-plugin==0.0.3"),
        (8.0, "2.12.0+cu128", True, None),
        (8.0, "2.11.0+cu130", True, None),
        (8.0, "2.11.0", True, None),
    ],
)
def test_what_a_training_notebook_installs(gpu, torch, unsloth, vllm, monkeypatch):
    machine = Machine(monkeypatch, gpu, torch)
    install.install("train", ["train"])
    first = machine.commands[0]
    assert first[:3] == ["install", "-e", ".[train]"]
    assert "trl==1.14.2" in first
    for command in machine.commands:
        assert "--no-deps" in command or {f"torch=={torch}", "numpy==2.1.3"} <= set(command)
    assert bool(machine.installed("unsloth")) is unsloth
    assert machine.has_vllm is bool(vllm)
    assert vllm is None or any(vllm in argument for argument in machine.commands[-1])


@pytest.mark.parametrize(
    ("gpu", "torch", "said"),
    [
        (None, "2.11.0+cpu", "No GPU answers: Unsloth is left out, and the profiles nano and"),
        (7.5, "2.11.0+cu128", "vLLM is left out: it needs compute capability 8.0, and this GPU"),
        (8.0, "2.12.0+cu128", "built for torch 2.11.0+cu12 or 2.13.0+cu13, and here is 2.12.0+cu"),
        (8.0, "2.11.0+cu128", "vLLM loads: its build fits torch 2.11.0+cu128"),
    ],
)
def test_each_decision_is_one_line_with_its_reason(gpu, torch, said, monkeypatch, capsys):
    # A torch that matched none once left vLLM out in silence; FastLanguageModel said it much later.
    Machine(monkeypatch, gpu, torch)
    install.install("train", ["train"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(said in line for line in lines) == 1
    assert "Python 3.13.15; kept as they are: torch==" in lines[0]
    assert lines[-1] == "Ready."


def test_a_vllm_that_does_not_load_is_taken_out_again(monkeypatch, capsys):
    machine = Machine(monkeypatch, 8.0, vllm_loads=False)
    install.install("train", ["train"])
    assert machine.commands[-1] == ["uninstall", "-y", "vllm"]
    said = capsys.readouterr().out
    assert "does not load here: libcudart.so.13: cannot open shared object file" in said
    assert "UNSLOTH_VLLM_STANDBY" not in install.os.environ


def test_what_a_kernel_had_loaded_and_pip_replaced_asks_for_a_restart(monkeypatch):
    # pyarrow replaced beneath a loaded pandas once broke `import datasets`, with no word of why.
    Machine(monkeypatch, loaded=("pandas", "pyarrow"))
    with pytest.raises(SystemExit, match=r"had loaded pyarrow 18\.1\.0 \(now 26\.0\.1\): restart"):
        install.install("light")
    Machine(monkeypatch, loaded=("pandas",))
    install.install("light")


@pytest.mark.parametrize("python", [(3, 10, 12), (3, 14, 0)])
def test_a_python_that_does_not_fit_is_one_sentence(python, monkeypatch):
    Machine(monkeypatch)
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
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(paths.ROOT / "src")},
    )
    assert done.stdout.split() == ["False", str(paths.ROOT)], done.stderr
