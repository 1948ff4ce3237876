"""The memory that a training takes, phase by phase, from the shape of its model alone.

A process goes through five phases: it *loads* the model, *evaluates* held-out rows on the way,
writes *rollouts*, goes *backward* through them, and measures the *final test*. `phases` says for
each of them what is held all the time (weights, adapter, gradients, optimiser, vLLM's reserve)
and what comes and goes (keys and values, activations, logits).

The sums follow the code that runs: TRL's loss and rollouts, `batch_that_fits` and `_drift` of the
evaluation. What cannot be known before a run is a figure at the head of this file.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from casebook.backend import BACKENDS
from casebook.case import PROFILES, check_name
from casebook.preflight.cards import GIB, Machine
from casebook.preflight.shapes import Shape

PHASES = ("load", "evaluation", "rollout", "backward", "final test")
ITEM = {"float32": 4, "bfloat16": 2, "float16": 2}
# NF4 keeps half a byte a parameter, and its scales, quantised themselves, 0.127 bits: Dettmers et
# al. 2023, arXiv 2305.14314, section 3.
NF4 = 0.5 + 0.127 / 8
# Bytes that an optimiser keeps a parameter, in parameters' own width or in 8 bits.
MOMENTS = {"sgd": 0, "adamw_8bit": 2, "paged_adamw_8bit": 2}
LARGEST_BATCH, SHARE_OF_MEMORY = 256, 0.6  # of `batch_that_fits`; a test compares them
DRIFT_LOGITS = 2**26  # of `casebook.evaluation`; a test compares them
VLLM_OVERHEAD = 3 * GIB // 2  # activations and CUDA graphs inside vLLM's reserve
MARGIN_GPU = 0.08  # of what comes and goes: blocks that the allocator cannot use again
MARGIN_CPU = 0.05
TRAINER = 250 * 2**20  # what a trainer's first step loads beside the libraries, on a CPU
EVALUATE_ROWS, TEST_ROWS = 128, 1000  # of the second: where nothing limits it and no data are here


class Texts(NamedTuple):
    """Tokens of the prompts.

    Attributes:
        train: the longest that is trained on.
        test: the longest that is evaluated.
        shared: what all training prompts begin with.
        test_rows: how many rows the final test has.
        known: whether they were counted; else they are the longest that the settings allow.
    """

    train: int
    test: int
    shared: int = 0
    test_rows: int = TEST_ROWS
    known: bool = False


class Phase(NamedTuple):
    """One phase of a training.

    Attributes:
        name: one of `PHASES`.
        parts: what takes memory -> bytes.
        there: bytes that a process may take.
        assumed: what the figures rest on, in sentences.
        batch: completions written at once, where the code fits them to the memory that is free.
    """

    name: str
    parts: dict[str, int]
    there: int
    assumed: tuple[str, ...] = ()
    batch: int | None = None

    @property
    def needed(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def headroom(self) -> float:
        """The share of what is there that stays free; below 0 it does not fit."""
        return (self.there - self.needed) / self.there


def longest_allowed(settings: Mapping[str, Any], shape: Shape) -> Texts:
    """The longest prompts that settings and model allow, where nobody has counted them."""
    room = min(settings["max_seq_length"], shape.positions) - settings["max_completion_length"]
    return Texts(room, room, test_rows=settings.get("test_limit") or TEST_ROWS)


def phases(
    settings: Mapping[str, Any], shape: Shape, machine: Machine, texts: Texts | None = None
) -> list[Phase]:
    """What each phase needs, and what is there.

    Args:
        settings: of a training, as `casebook.settings.checked` gives them.
        shape: of its model.
        machine: where it runs.
        texts: lengths of the prompts; by default the longest that the settings allow.
    """
    return _Training(settings, shape, machine, texts or longest_allowed(settings, shape)).phases()


def completions_at_once(shape: Shape, length: int, itemsize: int, free: float) -> int:
    """How many completions an evaluation writes at once: as `batch_that_fits` counts them.

    Args:
        length: tokens of prompt and completion.
        itemsize: bytes of a number.
        free: bytes.
    """
    needed = completion_bytes(shape, length, itemsize)
    return int(max(1, min(LARGEST_BATCH, SHARE_OF_MEMORY * free // needed)))


def completion_bytes(shape: Shape, length: int, itemsize: int) -> int:
    """Bytes of one completion that is written: keys and values, one layer's activations over its
    length, and the next token's probabilities."""
    layer = 4 * shape.hidden + 2 * shape.intermediate
    return length * (shape.kv_bytes(itemsize) + layer * itemsize) + 32 * shape.vocabulary


def weights_bytes(settings: Mapping[str, Any], shape: Shape) -> int:
    """Bytes of the base model's weights, in the type that the settings load them in."""
    item = ITEM[settings["dtype"]]
    if not settings["load_in_4bit"]:
        return shape.parameters * item
    return int(shape.linear * NF4 + (shape.parameters - shape.linear) * item)


def unsloth_trains(settings: Mapping[str, Any], machine: Machine) -> bool:
    """Whether Unsloth trains there: what a profile of a GPU wants, or `CASEBOOK_BACKEND` says.

    Whether it is installed is a check of its own, since the machine may be another one.

    Raises:
        CasebookError: an unknown `CASEBOOK_BACKEND`.
    """
    asked = os.environ.get("CASEBOOK_BACKEND") or "auto"
    check_name("CASEBOOK_BACKEND", asked, ("auto", *BACKENDS))
    wanted = (
        PROFILES[settings["profile"]].device == "gpu" if asked == "auto" else asked == "unsloth"
    )
    return machine.gpu and wanted


class _Training:
    """The sums of one training."""

    def __init__(self, settings: Mapping[str, Any], shape: Shape, machine: Machine, texts: Texts):
        self.settings, self.shape, self.machine, self.texts = settings, shape, machine, texts
        self.item = ITEM[settings["dtype"]]
        self.unsloth = unsloth_trains(settings, machine)
        self.completion = settings["max_completion_length"]
        self.micro = settings["per_device_train_batch_size"]
        accumulated = settings["gradient_accumulation_steps"]
        self.at_once = self.micro * (settings.get("steps_per_generation") or accumulated)
        self.vllm = settings["fast_inference"] or settings.get("use_vllm", False)
        self.there = machine.free if machine.gpu else machine.free + machine.held
        self.once = settings.get("prompts_once", False)

    def phases(self) -> list[Phase]:
        """All five."""
        load = Phase("load", self.resident(trained=False), self.there, self.assumed_of_weights())
        return [load, self.evaluation(), self.rollout(), self.backward(), self.final_test()]

    # What is held all the time

    def resident(self, trained: bool) -> dict[str, int]:
        """Parts that are held; once it is `trained` a step with gradients and optimiser."""
        settings, shape = self.settings, self.shape
        process = self.machine.held + (0 if self.machine.gpu or not trained else TRAINER)
        parts = {"process": process, "weights": weights_bytes(settings, shape)}
        if settings["use_peft"]:
            adapter = shape.adapter(settings["lora_r"], settings["lora_target_modules"])
            width, changed = 4, adapter  # PEFT and Unsloth keep adapters in float32
            parts["adapter"] = adapter * width
        else:
            width, changed = self.item, shape.parameters
            if settings["beta"]:
                parts["reference"] = parts["weights"]
        if trained:
            parts["gradients"] = changed * width
            moments = MOMENTS.get(settings.get("optim", ""), 2 * width)
            parts["optimiser"] = changed * moments
        if self.vllm and settings.get("vllm_mode", "colocate") != "server":
            share = settings.get("vllm_gpu_memory_utilization") or 0.3  # TRL's default
            reserve = int(share * self.machine.total)
            if settings["fast_inference"]:  # Unsloth's engine holds the policy's weights itself
                reserve -= parts["weights"]
            parts["vLLM's reserve"] = max(0, reserve)
        return parts

    def assumed_of_weights(self) -> tuple[str, ...]:
        found = [f"{self.shape.parameters / 1e9:.2f} billion parameters"]
        if self.settings["load_in_4bit"]:
            found.append("NF4 for the layers' matrices, 16 bits for embedding and head")
        if self.machine.gpu:
            found.append(f"{self.machine.held / GIB:.2f} GiB for CUDA and its libraries")
        if self.vllm and self.settings["fast_inference"]:
            found.append("vLLM shares the policy's weights, and keeps its reserve to the end")
        return tuple(found)

    # What comes and goes

    def evaluation(self) -> Phase:
        """Held-out rows in training: written greedily and sampled, and the drift from the base."""
        held = self.resident(trained=True)
        rows = min(self.settings.get("evaluate_rows", EVALUATE_ROWS), LARGEST_BATCH)
        return self.written("evaluation", held, rows, drift=self.settings["use_peft"])

    def final_test(self) -> Phase:
        """The test rows, before and after, with a model that is loaded anew."""
        held = self.resident(trained=False)
        held["process"] = self.resident(trained=True)["process"]
        held.pop("reference", None)
        rows = self.texts.test_rows * max(1, self.settings.get("test_samples", 1))
        return self.written("final test", held, rows, drift=False)

    def written(self, name: str, held: dict[str, int], rows: int, drift: bool) -> Phase:
        """A phase in which as many completions are written at once as memory allows."""
        length, shape = self.texts.test + self.completion, self.shape
        batch, parts, assumed = None, {}, ("vLLM writes, inside its reserve",)
        if not self.settings["fast_inference"]:
            free = self.there - sum(held.values())
            one = completion_bytes(shape, length, self.item)
            batch = min(completions_at_once(shape, length, self.item, free), max(1, rows))
            layer_cache = shape.kv_bytes(self.item) // shape.layers * length * batch
            parts = {"keys, values and probabilities": batch * one, "a layer's cache": layer_cache}
            assumed = (
                f"{batch} completions of {self.texts.test} + {self.completion} tokens at a time, "
                f"as many as {SHARE_OF_MEMORY:.0%} of the free memory takes",
            )
        if drift:
            texts = max(1, DRIFT_LOGITS // (length * shape.vocabulary))
            logits = min(texts, rows) * length * shape.vocabulary * (self.item + 4 + 4)
            if logits > sum(parts.values()):  # one after the other
                parts = {"logits of the drift": logits}
        return Phase(name, self.with_margin(held, parts), self.there, assumed, batch)

    def rollout(self) -> Phase:
        """The completions of a step."""
        held, length = self.resident(trained=True), self.texts.train + self.completion
        if self.vllm:
            return self.vllm_rollout(held, length)
        shape, count = self.shape, self.at_once
        prompt = self.texts.train * (4 * shape.hidden + 2 * shape.intermediate) * self.item
        cache = shape.kv_bytes(self.item) * length
        parts = {
            "keys and values": count * cache,
            "a layer's cache, as it grows": count * cache // shape.layers,
            "prompts and probabilities": count * (prompt + 32 * shape.vocabulary),
        }
        if self.settings["use_peft"] and self.item == 4 and not self.shape.tied:
            parts["weights put back after merging"] = self.shape.linear * self.item
        assumed = (f"{self.at_once} completions of {length} tokens at a time",)
        return Phase("rollout", self.with_margin(held, parts), self.there, assumed)

    def vllm_rollout(self, held: dict[str, int], length: int) -> Phase:
        """Rollouts by vLLM: what they take lies in its reserve, which has to hold one of them."""
        if "vLLM's reserve" not in held:  # a server of its own
            return Phase("rollout", held, self.there, ("vLLM writes on another GPU",))
        weights, reserve = held["weights"], held["vLLM's reserve"]
        if self.settings["fast_inference"]:
            reserve += weights
        one = self.shape.kv_bytes(self.item) * length
        room = max(0, (reserve - weights - VLLM_OVERHEAD) // one)
        parts = {"weights": weights, "vLLM's own": VLLM_OVERHEAD, "keys and values": one}
        assumed = (
            f"inside vLLM's reserve, which has to hold one completion of {length} tokens, and "
            f"holds {room}; more of them wait",
        )
        return Phase("rollout", parts, reserve, assumed)

    def backward(self) -> Phase:
        """Forward and backward through one micro batch."""
        held, shape, settings = self.resident(trained=True), self.shape, self.settings
        tokens, logits = self.tokens(), self.micro * (self.completion + 1) * shape.vocabulary
        layer = self.layer_activations(tokens)
        if settings["gradient_checkpointing"]:
            kept = {"checkpoints": shape.layers * tokens * shape.hidden * self.item}
            activations = {**kept, "one layer's activations": layer}
            how = "with gradient checkpointing"
        else:
            activations = {"activations": shape.layers * layer}
            how = "without gradient checkpointing"
        if self.unsloth:  # its loss goes through them in pieces that it fits to the memory
            logits = (self.completion + 1) * shape.vocabulary * 4 * 3
            about = "Unsloth's loss holds the logits of one completion, in float32, three times"
        else:
            copies = 6 if settings.get("constraint", "none") != "none" else 4
            logits *= copies * self.item
            about = f"TRL's loss holds the logits of {self.micro} completions {copies} times"
        parts = {**activations, "logits": logits}
        if not settings["use_peft"]:  # a new gradient beside the one it is added to
            parts["gradient of the embedding"] = shape.vocabulary * shape.hidden * self.item
        assumed = (f"{self.micro} completions, {tokens} tokens, {how}", about)
        return Phase("backward", self.with_margin(held, parts), self.there, assumed)

    def tokens(self) -> int:
        """Tokens that a micro batch goes through; with prompts once, each prompt counts once."""
        if not self.once:
            return self.micro * (self.texts.train + self.completion)
        prompts = max(1, self.micro // self.settings["num_generations"])
        own = self.texts.train - self.texts.shared
        return self.texts.shared + prompts * own + self.micro * (self.completion + 1)

    def layer_activations(self, tokens: int) -> int:
        """Bytes that one layer keeps for its backward pass.

        Counted in a Llama layer of transformers: inputs, normalised and scaled, of two norms and
        the two sums (6), queries and what attention gives, as it comes and as the next matrix reads
        it (3), keys and values once for each head (2); gate, its SiLU, up and their product (4).
        """
        shape, settings = self.shape, self.settings
        wide = shape.heads * shape.head_dim
        numbers = 6 * shape.hidden + 5 * wide + 4 * shape.intermediate
        if settings["use_peft"]:
            numbers += 7 * settings["lora_r"]
        found = tokens * (numbers * self.item + (16 * shape.hidden if self.item < 4 else 0))
        length = self.texts.train + self.completion
        if self.once:  # what attention reads: the prompt again for each completion
            found += 4 * self.micro * length * wide * self.item
        if settings.get("attn_implementation") == "eager":
            scores = self.micro * shape.heads * length
            scores *= self.completion + 1 if self.once else length
            found += scores * (2 * self.item + 4)
        return found

    def with_margin(self, held: dict[str, int], parts: dict[str, int]) -> dict[str, int]:
        share = MARGIN_GPU if self.machine.gpu else MARGIN_CPU
        return {**held, **parts, "fragmentation": int(share * sum(parts.values()))}


def worst(found: Sequence[Phase]) -> Phase:
    """The phase that needs most of what is there."""
    return max(found, key=lambda phase: phase.needed / phase.there)
