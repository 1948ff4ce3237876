"""How many samples a second GRPO trains on in TRL, beside the poker write-up's own loop.

The write-up's loop (its cells 5 and 6) is written anew here, faults included: every weight is
trained, labels are generated under its position-wise rule and scored by the whole softmax, and
the log-probabilities are summed over tokens. TRL runs as `casebook.training` runs it, with the
same model, prompt, rule, reward and length: with every weight trained ("trl") or an adapter ("trl
lora"), and with a group's prompt computed for each completion or once. All run in this process on
one thread, in turns, so that a slow minute of the machine meets each of them.

    python benchmarks/source_loop.py --output results/benchmarks/source_loop.json
    python benchmarks/source_loop.py --profile smol --seconds 0 --rounds 3 --steps 2 \
        --output results/benchmarks/source_loop_smol.json

Prints and records samples a second, where a step's seconds go, and, after training for equal
seconds from the same base, the held-out accuracy of each.
"""

import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple
from unittest.mock import patch

import torch
import typer
from accelerate import Accelerator
from transformers import set_seed

from casebook.case import check_name, load_case
from casebook.evaluation import evaluate
from casebook.models import load_base, load_saved, read_settings
from casebook.paths import write_json
from casebook.records import provenance
from casebook.settings import read_arms
from casebook.training import ConstrainedTrainer, read_config, train
from casebook.training.progress import Progress


class Compared(NamedTuple):
    """What is compared on a profile.

    Attributes:
        arm: the write-up's version 2 on this profile.
        batches: name -> prompts and completions of each.
        whole, lora: what differs from the arm where all weights are trained, or an adapter.
    """

    arm: str
    batches: dict[str, tuple[int, int]]
    whole: dict[str, Any]
    lora: dict[str, Any]


# The first batch is ours, 4x4 the source's.
LORA = ("use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")
WHOLE = {"use_peft": False, "learning_rate": 1e-4, "lr_scheduler_type": "constant"}
SOUND = read_arms("poker")["sound"]["overrides"]
PROFILES = {
    "nano": Compared("label_published", {"12x8": (12, 8), "4x4": (4, 4)}, WHOLE, {}),
    "smol": Compared(
        "published",
        {"4x8": (4, 8), "4x4": (4, 4)},
        {},
        {name: SOUND[name] for name in ("dtype", "attn_implementation", "learning_rate", *LORA)},
    ),
}
LOOPS = ("trl", "trl lora", "trl, prompts once", "trl lora, prompts once")
PHASES = ("generation", "scoring", "backward", "update", "reward")
SPENT = (*PHASES, "bookkeeping")
RULES = ("trie", "position")  # what may be written when the trained models are evaluated


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Training at equal seconds; 0: no.")] = 30,
    rounds: Annotated[int, typer.Option(min=1, help="Turns each loop takes.")] = 5,
    steps: Annotated[int, typer.Option(min=2, help="Steps of a turn.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Test rows for the accuracy.")] = 1000,
    profile: Annotated[str, typer.Option(help="The model: nano or smol.")] = "nano",
) -> None:
    """Compare the loops, at two batch sizes."""
    check_name("profile", profile, PROFILES)
    turns: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for turn in range(rounds):
        for batch in PROFILES[profile].batches:
            for loop in ("source", *LOOPS):
                turns[batch, loop].append(timed(profile, loop, batch, steps, seed=turn))
    details = [
        {
            "batch": batch,
            "loop": loop,
            **{name: median(t[name] for t in taken) for name in taken[0]},
        }
        for (batch, loop), taken in turns.items()
    ]
    speeds: dict[str, dict[str, float]] = defaultdict(dict)
    for row in details:
        speeds[row["batch"]][row["loop"]] = completions_of(profile, row["batch"]) / row["step"]
        source = next(other for other in details if other["batch"] == row["batch"])
        row["more_than_the_source"] = {name: row[name] - source[name] for name in SPENT}
        print(described(row, source, completions_of(profile, row["batch"])))
    record = {
        "benchmark": "source_loop",
        "profile": profile,
        "samples_per_second": speeds,
        "times_the_source": {
            batch: {loop: of_batch[loop] / of_batch["source"] for loop in LOOPS}
            for batch, of_batch in speeds.items()
        },
        "seconds_of_a_step": details,
        "repeats": rounds,
        "provenance": provenance(),
    }
    if seconds:
        record["accuracy_at_equal_seconds"] = list(at_equal_seconds(profile, seconds, speeds, rows))
    if output is not None:
        write_json(output, record)


def described(row: dict[str, Any], source: dict[str, Any], completions: int) -> str:
    """One line: speed, and which part of the step makes the difference to the source's."""
    line = f"{row['batch']:5} {row['loop']:22} {completions / row['step']:8.3g} samples/s"
    if row is source:
        return f"{line}, a step {parts(row)}"
    more = row["more_than_the_source"]
    most = max(more, key=lambda name: abs(more[name]))
    return (
        f"{line}, {source['step'] / row['step']:.2f} of the source's, a step {parts(row)}; the "
        f"difference is mostly {most} ({1000 * more[most]:+.1f} ms)"
    )


def parts(row: dict[str, Any]) -> str:
    """The milliseconds of a step and of its phases, in words."""
    named = (f"{name} {1000 * row[name]:.1f}" for name in SPENT)
    return f"{1000 * row['step']:.1f} ms ({', '.join(named)})"


def completions_of(profile: str, batch: str) -> int:
    """How many completions a step of this batch has."""
    prompts, group = PROFILES[profile].batches[batch]
    return prompts * group


def timed(profile: str, loop: str, batch: str, steps: int, seed: int) -> dict[str, float]:
    """Median seconds of a step and of its phases; the first step, which warms up, is left out."""
    if loop == "source":
        source = SourceLoop(profile, batch, seed)
        ends = [source.step() or time.perf_counter() for _ in range(steps + 1)]
        phases = source.watch.seconds
    else:
        watch = Stopwatch()
        with watching_trl(watch), tempfile.TemporaryDirectory() as folder:
            settings = asked(profile, loop, batch, max_steps=steps + 1, seed=seed)
            ends = trained(settings, folder).metrics()["seconds"].to_list()
        phases = watch.seconds
    step = median(after - before for before, after in pairwise(ends))
    spent = {name: median(phases[name][1:]) for name in PHASES}
    return {"step": step, **spent, "bookkeeping": step - sum(spent.values())}


def asked(profile: str, loop: str, batch: str, **changes: Any) -> dict[str, Any]:
    """The arm's settings with this batch, and without evaluations on the way."""
    compared = PROFILES[profile]
    settings = read_settings("poker", profile) | read_arms("poker")[compared.arm]["overrides"]
    quiet = {"evaluate_every": 0, "completions_every": 10**6, "save_steps": 10**6}
    measured = {"also_evaluate": {}, "test_limit": 1, "test_samples": 1}
    shape = {
        "per_device_train_batch_size": completions_of(profile, batch),
        "num_generations": compared.batches[batch][1],
        "prompts_once": loop.endswith("prompts once"),
    }
    trained = compared.lora if "lora" in loop else compared.whole
    return settings | quiet | measured | shape | trained | changes


def trained(settings: dict[str, Any], folder: str):
    """The finished run of `casebook.training`, which says nothing on the way."""
    with patch.object(Progress, "say"), redirect_stdout(StringIO()):
        return train(read_config(("poker", settings["profile"]), settings), Path(folder) / "run")


def at_equal_seconds(
    profile: str, seconds: float, speeds: dict[str, dict[str, float]], rows: int
) -> Iterator[dict[str, Any]]:
    """Each loop trained for about so many seconds, and its accuracy; the base comes first."""
    asked_of = asked(profile, "source", "4x4")
    base, tokenizer = load_base(asked_of)
    yield reported({"loop": "base", **accuracy(base, tokenizer, asked_of, rows)})
    for batch in PROFILES[profile].batches:
        for loop in ("source", *LOOPS):
            steps_a_second = speeds[batch][loop] / completions_of(profile, batch)
            count = max(2, round(seconds * steps_a_second))
            with tempfile.TemporaryDirectory() as folder:
                settings = asked(profile, loop, batch, max_steps=count)
                if loop == "source":
                    source = SourceLoop(profile, batch, seed=0)
                    started = time.perf_counter()
                    for _ in range(count):
                        source.step()
                    spent = time.perf_counter() - started
                    model, tokenizer = source.model, source.tokenizer
                else:
                    run = trained(settings, folder)
                    spent = run.record()["train_seconds"]
                    model, tokenizer, _ = load_saved(run.adapter)
                yield reported(
                    {
                        "batch": batch,
                        "loop": loop,
                        "steps": count,
                        "seconds": round(spent, 1),
                        "learning_rate": settings["learning_rate"],
                        **accuracy(model, tokenizer, asked_of, rows),
                    }
                )


def accuracy(model: Any, tokenizer: Any, settings: dict[str, Any], rows: int) -> dict[str, dict]:
    """Greedy and sampled accuracy on test rows, under each rule for what may be written."""
    result = {}
    for rule in RULES:
        evaluation = evaluate(
            model,
            tokenizer,
            "poker",
            limit=rows,
            samples=2,
            profile=settings["profile"],
            variant=settings["variant"],
            settings=settings | {"constraint": rule},
        )
        figures = evaluation.summary()
        result[rule] = {name: figures[name] for name in ("greedy_accuracy", "sampled_accuracy")}
    return result


def reported(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row of the accuracies, and hand it on."""
    trained_as = f"{row['steps']} steps, {row['seconds']:.0f} s" if "steps" in row else ""
    figures = (
        f"{rule} {row[rule]['greedy_accuracy']['value']:.3f} greedy "
        f"{row[rule]['sampled_accuracy']['value']:.3f} sampled"
        for rule in RULES
    )
    print(f"{row.get('batch', ''):5} {row['loop']:22} {trained_as:18} {'; '.join(figures)}")
    return row


class Stopwatch:
    """Seconds spent in each phase, one entry a step."""

    def __init__(self):
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        started = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - started)

    def on(self, name: str, function):
        """The same function, timed."""

        def timed(*args, **kwargs):
            with self.phase(name):
                return function(*args, **kwargs)

        return timed


@contextmanager
def watching_trl(watch: Stopwatch) -> Iterator[None]:
    """Inside it, TRL's trainer tells the stopwatch what it spends its steps on."""
    places = {
        "generation": (ConstrainedTrainer, "_generate_single_turn"),
        "scoring": (ConstrainedTrainer, "_get_per_token_logps_and_entropies"),
        "reward": (ConstrainedTrainer, "_calculate_rewards"),
        "backward": (Accelerator, "backward"),
        "update": (torch.optim.AdamW, "step"),
    }
    with ExitStack() as stack:
        for name, (owner, method) in places.items():
            watched = watch.on(name, getattr(owner, method))
            stack.enter_context(patch.object(owner, method, watched))
        yield


class SourceLoop:
    """The write-up's training loop: `step` does one update.

    Its optimiser keeps torch's defaults, weight decay 0.01 among them. The learning rate of the
    embedded model is ten times the write-up's 1e-5, which hardly moves it in so short a time.
    """

    def __init__(self, profile: str, batch: str, seed: int):
        settings = asked(profile, "source", batch)
        case = load_case("poker")
        set_seed(seed)
        self.model, self.tokenizer = load_base(settings)
        self.rows = case.load("train", profile=profile, variant=settings["variant"]).to_list()
        self.longest = settings["max_completion_length"]
        self.prompts, self.group = PROFILES[profile].batches[batch]
        (name,) = settings["reward_funcs"]
        self.reward = case.rewards[name](**settings["reward_kwargs"][name])
        forms = [blank + label for blank in ("", " ") for label in case.labels]
        self.labels = [self.tokenizer(text, add_special_tokens=False).input_ids for text in forms]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings["learning_rate"])
        self.watch = Stopwatch()

    def step(self) -> None:
        """Sample, score, and take one step of plain policy gradient."""
        batch = random.sample(self.rows, self.prompts)
        prompts = [row["prompt"] for row in batch for _ in range(self.group)]
        answers = [row["answer"] for row in batch for _ in range(self.group)]
        self.model.train()
        with self.watch.phase("generation"):
            sequences, start = self.generate(prompts)
        with self.watch.phase("scoring"):
            logps = self.sequence_logps(sequences, start)
        with self.watch.phase("reward"):
            texts = self.tokenizer.batch_decode(sequences[:, start:], skip_special_tokens=True)
            rewards = torch.tensor(self.reward(completions=texts, answer=answers))
        groups = rewards.view(self.prompts, self.group)
        spread = groups.std(dim=1, keepdim=True) + 1e-8
        advantages = ((groups - groups.mean(dim=1, keepdim=True)) / spread).flatten()
        loss = -(advantages * logps).mean()
        self.optimizer.zero_grad()
        with self.watch.phase("backward"):
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        with self.watch.phase("update"):
            self.optimizer.step()

    def generate(self, prompts: list[str]) -> tuple[torch.Tensor, int]:
        """Prompts with sampled completions `(n, length)`, and where the completions start."""
        inputs = self.tokenizer(
            prompts, return_tensors="pt", padding=True, return_token_type_ids=False
        )
        start = inputs["input_ids"].shape[1]

        def allowed(row: int, ids: torch.Tensor) -> list[int]:
            return self.allowed(ids.shape[0] - start)

        with torch.inference_mode():
            sequences = self.model.generate(
                **inputs,
                prefix_allowed_tokens_fn=allowed,
                do_sample=True,
                top_k=0,
                top_p=1.0,
                max_new_tokens=self.longest,
                pad_token_id=self.tokenizer.pad_token_id,
                eos_token_id=self.tokenizer.eos_token_id,
            )
        return sequences.clone(), start  # a clone may take part in a graph again

    def allowed(self, position: int) -> list[int]:
        """What any label has at this position, the end included where one is over."""
        end = self.tokenizer.eos_token_id
        tokens = {label[position] for label in self.labels if position < len(label)}
        tokens |= {end for label in self.labels if position == len(label)}
        return list(tokens or {end})

    def sequence_logps(self, sequences: torch.Tensor, start: int) -> torch.Tensor:
        """The log-probability of each completion `(n,)` by the whole softmax."""
        pad = self.tokenizer.pad_token_id
        logits = self.model(sequences, attention_mask=(sequences != pad).long()).logits
        targets = sequences[:, 1:, None]
        logps = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, targets).squeeze(-1)
        written = sequences[:, 1:] != pad
        written[:, : start - 1] = False
        return (logps * written).sum(dim=1)


if __name__ == "__main__":
    typer.run(main)
