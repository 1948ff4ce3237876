"""What the first cell of a notebook installs on Colab, in addition to Colab's packages.

Only the standard library is imported here, because it runs before anything is installed. It prints
each decision with the reason, shows what pip downloads, and may be run again, also after a restart.
It never replaces torch, NumPy or Pillow: that takes minutes, and breaks packages that Colab built
against its own versions.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip")
PYTHONS = ((3, 11), (3, 13))  # the first and the last that fit
KEPT = ("torch", "numpy", "pillow")
# Read once by a kernel, and broken by another version beneath them: pandas brings pyarrow along.
LOADED = ("numpy", "pandas", "pyarrow", "PIL", "torch", "transformers", "datasets", "torchao")
LIGHT = ("datasets",)
TRAINING = ("accelerate", "datasets", "peft", "transformers", "trl", "wandb")
OF_UNSLOTH = ("unsloth", "unsloth-zoo", "bitsandbytes")
VLLM_FROM = 8.0  # compute capability; a T4 has 7.5, where Unsloth's notebooks use an older vLLM


def install(kind: str, extras: Sequence[str] = ()) -> None:
    """Install what a notebook needs on Colab, and say what was decided.

    Args:
        kind: `light`; or `train`, which adds TRL and PEFT, on a GPU Unsloth, and vLLM where it
            runs.
        extras: optional parts of the package, as in `pyproject.toml`.

    Raises:
        SystemExit: Python does not fit, pip failed, or the kernel has to be restarted; one
            sentence says which, and what to do.
    """
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        sys.exit(f"Python {sys.version.split()[0]} does not fit: the casebook needs 3.11 to 3.13.")
    loaded = {name: installed_version(name) for name in LOADED if name in sys.modules}
    pins = pins_of("requirements.txt")
    chosen = [pins[name] for name in (LIGHT if kind == "light" else TRAINING)]
    keep = [f"{name}=={found}" for name in KEPT if (found := installed_version(name))]
    _say(f"Python {sys.version.split()[0]}; kept as they are: {', '.join(keep) or 'nothing'}.")
    package = f".[{','.join(extras)}]" if extras else "."
    _pip("the casebook and its libraries", "-e", package, *chosen, *keep)
    if kind == "train":
        _install_for_training(chosen, keep)
    now = {name: installed_version(name) for name in loaded}
    changed = [f"{n} {old} (now {now[n]})" for n, old in loaded.items() if old and old != now[n]]
    if changed:
        sys.exit(
            f"This kernel had loaded {', '.join(changed)}: restart it (Runtime, Restart session) "
            "and run this cell again; it will be quick."
        )
    _say("Ready.")


def _install_for_training(chosen: Sequence[str], keep: Sequence[str]) -> None:
    cu12 = pins_of("requirements-gpu-cu12.txt")
    _pip("torchao, since Colab's own is too old for PEFT", "--no-deps", cu12["torchao"])
    capability = _capability()
    if capability is None:
        _say("No GPU answers: Unsloth is left out, and the profiles nano and smol run here.")
        return
    unsloth = [cu12[name] for name in OF_UNSLOTH]
    # Its own requirements would replace half of what Colab has.
    _pip("Unsloth, without its requirements", "--no-deps", *unsloth)
    _say(f"A GPU of compute capability {capability}: Unsloth trains the profiles from t4 on.")
    wheels, why = vllm_for(capability, installed_version("torch") or "")
    if not wheels:
        _say(f"vLLM is left out: {why}.")
        return
    if fault := _vllm_fault():
        _pip("vLLM", *wheels, *chosen, *keep)
        fault = _vllm_fault()
    if fault:
        subprocess.run([*PIP, "uninstall", "-y", "vllm"], capture_output=True)
        _say(f"vLLM was taken out again, since it does not load here: {fault}.")
        return
    _say(f"vLLM loads: {why}; rollouts use it where fast_inference is true, as in a100.")


def vllm_for(capability: float, torch: str) -> tuple[list[str], str]:
    """The requirements of vLLM that fit a GPU and a torch, none if none do; and why.

    >>> vllm_for(7.5, "2.11.0+cu128")
    ([], 'not tried below compute capability 8.0, and here is 7.5')
    """
    if capability < VLLM_FROM:
        return [], f"not tried below compute capability {VLLM_FROM}, and here is {capability}"
    built = []
    for cuda in ("cu12", "cu13"):
        pins = pins_of(f"requirements-gpu-{cuda}.txt")
        built.append(re.sub(r"^.*==|\+.*$", "", pins["torch"]) + f"+{cuda}")
        if torch.startswith(built[-1]):
            wheels = [pins[name] for name in ("vllm", "vllm-bnb-plugin") if name in pins]
            return wheels, f"its build fits torch {torch}"
    return [], f"it is built for torch {' or '.join(built)}, and here is {torch or 'none'}"


def _capability() -> float | None:
    """The compute capability of the first GPU, `None` where no GPU answers."""
    if not shutil.which("nvidia-smi"):
        return None
    asked = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    answer = subprocess.run(asked, capture_output=True, text=True).stdout
    found = re.match(r"\d+\.\d+", answer)
    return float(found[0]) if found else None


def _vllm_fault() -> str | None:
    """Why vLLM cannot be used, found out in a process of its own; `None` where it can."""
    command = [sys.executable, "-c", "import vllm._C"]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stderr.strip().splitlines() or ["no reason given"]
    return said[-1].rstrip(".") if done.returncode else None


def _pip(what: str, *arguments: str) -> None:
    """Install, with what is downloaded as it goes; a `SystemExit` says what went wrong."""
    _say(f"Installing {what} ...")
    command, lines = [*PIP, "install", *arguments], []
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **merged, text=True, bufsize=1) as pip:
        for line in map(str.rstrip, pip.stdout):
            lines.append(line)
            if re.match(r"\s*Downloading .*\d MB", line):
                _say(f"  {line.strip()}")
    if pip.returncode:
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        sys.exit(f"pip could not install {what}: {' '.join(errors) or 'no reason given'}")


def installed_version(name: str) -> str | None:
    """The version of a package that is installed; `None` where it is not."""
    try:
        return version({"PIL": "pillow"}.get(name, name))
    except PackageNotFoundError:
        return None


def pins_of(file: str) -> dict[str, str]:
    """Canonical name -> the requirement as it stands in one of the pinned files."""
    lines = [line.partition(" ;")[0].strip() for line in (ROOT / file).open(encoding="utf-8")]
    pins = [line for line in lines if line and not line.startswith(("#", "-"))]
    return {re.split(r"[^\w.-]", pin)[0].lower().replace("_", "-"): pin for pin in pins}


def _say(line: str) -> None:
    print(line, flush=True)
