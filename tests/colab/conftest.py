"""A small checkout for Run All: models of the real architectures, made-up problems, three steps.

What is small: layers, steps, completions, rows. What is as on a GPU: the notebooks, the profile,
the prompts as messages, the chat templates, the tokens that begin and end a text, the generation
config, Unsloth's calls, and vLLM's. The models are taught for some seconds to write answers in and
out of the asked form, so that rewards differ within a group; the problems are made up.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

from casebook import load_case, paths

HERE = Path(__file__).parent
# What a model's id stands for: its chat template (see `chat_model`) and its architecture.
FAMILIES = {
    "Qwen/": ("qwen2_5", "Qwen2"),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen": ("qwen2_5", "Qwen2"),
    "HuggingFaceTB/SmolLM2": ("qwen2_5", "Llama"),  # ChatML on Llama's architecture
    "unsloth/Meta-Llama": ("llama3_1", "Llama"),
    "allenai/Llama-3.1-Tulu": ("tulu", "Llama"),
}
SMALL = {
    "max_steps": 3,
    "train_limit": 64,
    "max_seq_length": 12_000,  # a token is a byte, or a part of its case's prompts
    "max_completion_length": 48,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 2,
    "num_generations": 4,
    "completions_every": 1,
    "evaluate_every": 2,
    "evaluate_rows": 4,
    "test_limit": 6,
    "test_samples": 2,
    "save_steps": 1,
}
ANSWERS = {"gsm8k": ("3", "4", "5"), "math": ("3", "4", "5")}
FORMS = {
    "poker": "<think>a</think><answer>{}</answer>",
    "landuse": "<think>a</think><answer>{}</answer>",
    "gsm8k": "<reasoning>\na\n</reasoning>\n<answer>\n{}\n</answer>\n",
    "math": "So it is \\boxed{{{}}}.",
}
# With Unsloth first, as what is beside it is found only then.
COMMAND = "from casebook.backend import choose_backend; choose_backend('t4'); "
COMMAND += "from casebook.cli import main; main()"
LENGTHS = (16, 64, 160)  # tokens of what is taught in place of prompts
TRAIN, TEST, HELD_BACK = 300, 40, 256
EXAMPLE = "Question: What is {}+{}?\nAnswer: It is $\\boxed{{{}}}$."


def taught_texts(name: str) -> list[str]:
    """Completions of a case: two thirds in its form, one third without."""
    case = load_case(name)
    answers = ANSWERS.get(name) or case.labels[:3]
    texts = [FORMS[name].format(answer) for answer in answers]
    for text, answer in zip(texts, answers, strict=True):
        grade = case.grade(text, answer)
        assert grade.well_formed, text
        assert grade.correct, text
    return [*texts, *texts, *(f"It is {answer}" for answer in answers)]


def prompts_of(name: str) -> str:
    """Some prompts of a case, one below the other."""
    from casebook.training.log import text_of

    rows = load_case(name).load("train", "nano" if name in ANSWERS else "t4").select(range(20))
    return "\n".join(map(text_of, rows["prompt"]))


def prompt_parts(name: str) -> list[str]:
    """What a case's prompts say between their numbers: as tokens, it makes them short."""
    folder, ask = paths.ROOT / "src/casebook/cases" / name, ("data.py", "templates.py")
    code = [(folder / file).read_text() for file in ask if (folder / file).exists()]
    words = re.findall(r" ?[A-Za-z]{4,}", " ".join([EXAMPLE, *code]))
    return sorted({*words, *re.findall(r"[^\d\n]{4,}", prompts_of(name))})


def teach(model, tokenizer, name: str, steps: int = 300) -> None:
    """Some seconds of supervised training: after any prompt, one of the taught texts."""
    import torch

    texts = taught_texts(name)
    asked = torch.tensor(tokenizer(prompts_of(name), add_special_tokens=False)["input_ids"])

    header = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], add_generation_prompt=True, tokenize=False
    )
    before = tokenizer(header.partition("x")[2], add_special_tokens=False)["input_ids"]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    ids = [[*row, tokenizer.eos_token_id] for row in ids]
    width = max(map(len, ids))
    pad = tokenizer.pad_token_id
    ends = torch.tensor([before + row + [pad] * (width - len(row)) for row in ids])
    said = torch.tensor([row + [-100] * (width - len(row)) for row in ids])
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(steps):
        length = LENGTHS[step % len(LENGTHS)]
        prompts = torch.randint(0, len(tokenizer), (len(ids), length))
        if step % 2 and len(asked) > length:  # noise and the case's own prompts in turn
            prompts = asked.unfold(0, length, 1)[torch.randint(len(asked) - length, (len(ids),))]
        inputs = torch.cat([prompts, ends], dim=1)
        silent = torch.full((len(ids), length + len(before)), -100)
        labels = torch.cat([silent, said], dim=1)
        loss = model(input_ids=inputs, labels=labels).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.5, f"the tiny model did not learn to write: {loss:.2f}"


@pytest.fixture(scope="session")
def tiny_model(chat_model, tmp_path_factory):
    """`tiny_model(case, model id)`: the folder of a tiny model of that family."""
    made = {}

    def make(case: str, name: str) -> Path:
        import torch
        import transformers

        kind, architecture = next(v for k, v in FAMILIES.items() if name.startswith(k))
        if (case, kind, architecture) in made:
            return made[case, kind, architecture]
        plain = chat_model(kind)
        tokenizer = transformers.AutoTokenizer.from_pretrained(plain)
        # One token each, so that some seconds of training are enough to write them.
        words = FORMS[case].format("|").split("|")
        words += [] if case in ANSWERS else load_case(case).labels[:3]
        tokenizer.add_tokens([*words, *prompt_parts(case)])
        values = json.loads((plain / "config.json").read_text())
        for key in ("architectures", "model_type", "transformers_version", "dtype"):
            values.pop(key, None)
        values |= {"hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 16_384}
        values["vocab_size"] = len(tokenizer)
        values.pop("head_dim", None)
        config = getattr(transformers, f"{architecture}Config")(**values)
        torch.manual_seed(0)
        model = getattr(transformers, f"{architecture}ForCausalLM")(config)
        teach(model, tokenizer, case)
        model.generation_config = transformers.GenerationConfig.from_pretrained(plain)
        folder = tmp_path_factory.mktemp("tiny") / f"{case}-{kind}"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
        assert len(ends) == 2
        made[case, kind, architecture] = folder
        return folder

    return make


def write_problems(folder: Path) -> None:
    """Made-up GSM8K, MATH-500 and RLVR-MATH in the published forms."""
    draw = random.Random(0)
    examples = "\n\n".join(EXAMPLE.format(a, b, a + b) for a, b in ((1, 1), (2, 5), (3, 3)))

    def problem(kind: str, i: int) -> dict:
        total = 3 + i % 3
        first = draw.randint(0, total)
        second = total - first
        asked = f"Number {i}: what is ${first}+{second}$?"
        if kind == "gsm8k":
            worked = f"That is {first}+{second}=<<{first}+{second}={total}>>{total}.\n#### {total}"
            return {"question": asked.replace("$", ""), "answer": worked}
        if kind == "math":
            about = {"subject": "Prealgebra", "level": 1, "unique_id": f"test/prealgebra/{i}.json"}
            solved = {"solution": f"It is $\\boxed{{{total}}}$.", "answer": str(total)}
            return {"problem": asked} | solved | about
        messages = [{"role": "user", "content": f"{examples}\n\nQuestion: {asked}"}]
        return {"messages": messages, "ground_truth": str(total), "dataset": "MATH"}

    files = {"gsm8k/train": TRAIN + HELD_BACK, "gsm8k/test": TEST, "math/math500": TEST}
    for name, rows in (files | {"rlvr-math/train": TRAIN + HELD_BACK}).items():
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(problem(path.parent.name, i)) for i in range(rows))
        path.write_text("\n".join(lines) + "\n")


def admit_problems(checkout: Path) -> None:
    """Let the copy take the made-up problems for the pinned sets."""
    file = checkout / "src/casebook/cases/problem_sets.py"
    text = file.read_text()
    ours = f'rows={{"train": {TRAIN + HELD_BACK}, "test": {TEST}}}'
    for old, new in (
        ('rows={"train": 7473, "test": 1319}', ours),
        ('rows={"test": 500}', f'rows={{"test": {TEST}}}'),
        ('rows={"train": 7500}', f'rows={{"train": {TRAIN + HELD_BACK}}}'),
    ):
        assert old in text
        text = text.replace(old, new)
    text, checksums = re.subn(r'"[0-9a-f]{64}"', "None", text)
    assert checksums >= 3
    file.write_text(text)


@pytest.fixture(scope="session")
def small_checkout(tmp_path_factory, tiny_model, copy_checkout):
    """`small_checkout(case, profile)`: one copy for all, in which that GPU profile is small."""
    unsloth_packages()
    root = tmp_path_factory.mktemp("small") / "checkout"
    copy_checkout(root, "tests/", "docs/", "figures/", ".github/")
    (root / "figures").mkdir()
    admit_problems(root)
    write_problems(root / "problems")

    def make(case: str, profile: str) -> Path:
        target = root / "models" / f"{case}-{profile}"
        if not target.exists():
            file = root / "configs" / case / f"{profile}.yaml"
            settings = yaml.safe_load(file.read_text())
            shutil.copytree(tiny_model(case, settings["model_name_or_path"]), target)
            small = SMALL | {"model_name_or_path": f"models/{target.name}"}
            file.write_text(yaml.safe_dump(settings | small, sort_keys=False))
        return root

    return make


def unsloth_packages() -> Path:
    """The folder with Unsloth; a test that asks for it is skipped where there is none.

    Beside it the environment of `make unsloth-cpu` has what this one has, so that the interpreter
    that runs the tests can have both.
    """
    name = os.environ.get("CASEBOOK_UNSLOTH_PYTHON", ".venv-unsloth/bin/python")
    found = [*(paths.ROOT / name).parents[1].glob("lib/python*/site-packages/unsloth")]
    if not found:
        assert "CASEBOOK_REQUIRE_UNSLOTH" not in os.environ, "Unsloth is missing: make unsloth-cpu"
        pytest.skip("Unsloth is not installed: make unsloth-cpu")
    return found[0].parent


def environment_of(checkout: Path) -> dict[str, str]:
    """The environment of a process that runs in a copy, with the stand-ins installed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CASEBOOK_", "UNSLOTH_"))}
    return kept | {
        "PYTHONPATH": f"{HERE / 'standin'}:{checkout / 'src'}:{unsloth_packages()}",
        "CASEBOOK_ROOT": str(checkout),
        "CASEBOOK_DATA_DIR": str(checkout / "problems"),
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "MPLBACKEND": "agg",
    }


@pytest.fixture
def start():
    """`start(checkout, "train", …)`: a `casebook` command in a copy, as a running process."""
    running = []

    def run(checkout: Path, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-c", COMMAND, *arguments]
        where = {"cwd": checkout, "env": environment_of(checkout), "text": True}
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        running.append(subprocess.Popen(command, **where, **said))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory):
    """`warm_python(checkout)`: the command of a Python that has imported Unsloth there."""
    running = []

    def command(checkout: Path) -> list[str]:
        # The address is short, as all of them begin in the copy: a socket's has a limit.
        python = [sys.executable, str(HERE / "warm.py"), "../warm"]
        if not running:
            said = checkout.parent / "warm.txt"
            where = {"cwd": checkout, "env": environment_of(checkout), "text": True}
            ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said.open("w")}
            running.append(subprocess.Popen(python, **where, **ends))
            assert "warm\n" in iter(running[0].stdout.readline, ""), said.read_text()[-3000:]
        return python

    yield command
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def python_in(warm_python):
    """`python_in(checkout, code, argument)`: what Python prints in a copy, with the stand-ins."""

    def run(checkout: Path, code: str, *arguments: str) -> str:
        command = [*warm_python(checkout), "-c", code, *arguments]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


@pytest.fixture
def run_all(warm_python, tmp_path, monkeypatch):
    """`run_all(checkout, notebook, profile, code)`: every cell, and one more with the code, in a
    kernel where the stand-ins are; the executed notebook and the folder of its runs."""

    def run(checkout: Path, name: str, profile: str, code: str = "") -> tuple:
        import papermill

        argv = [*warm_python(checkout), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel = tmp_path / "kernels" / "warm" / "kernel.json"
        kernel.parent.mkdir(parents=True)
        spec = {"argv": argv, "display_name": "warm", "language": "python"}
        kernel.write_text(json.dumps(spec))
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
        (source,) = (checkout / "notebooks").glob(f"{name}_*.ipynb")
        notebook = nbformat.read(source, as_version=4)
        notebook.cells.append(nbformat.v4.new_code_cell(code))
        asked, executed, runs = (tmp_path / n for n in ("asked.ipynb", "executed.ipynb", "runs"))
        nbformat.write(notebook, asked)
        values = {"PROFILE": profile, "RUNS_DIR": str(runs), "DATA_DIR": f"{checkout}/problems"}
        papermill.execute_notebook(
            *(asked, executed, values),
            **{"kernel_name": "warm", "cwd": str(checkout), "progress_bar": False},
        )
        return nbformat.read(executed, as_version=4), runs

    return run
