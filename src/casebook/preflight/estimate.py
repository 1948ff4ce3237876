"""The memory that a training takes at its peak: an estimate.

It is the sum of what stays (weights, adapter, gradients, optimiser, vLLM's reserve) and the larger
of two temporary parts: keys and values while sampling, or activations and logits while learning.
The sum follows TRL's rollouts and loss. It leaves out evaluation, which fits its batches to the
free memory.
"""

import os

from casebook.case import PROFILES, Settings
from casebook.preflight.sizes import GIB, Machine, Shape

# Of the sum, either way. On a processor recorded trainings took 0.75 to 1.4 of it; on a GPU it is a
# guess, by which a tenth of the memory stays free at the upper end.
ERROR_CPU, ERROR_GPU = 0.4, 0.11
# What a process holds beside the model: CUDA's own, its libraries' and their workspaces; on a
# processor the libraries, the rows and what a first step loads.
PROCESS_GPU, PROCESS_CPU = 768 * 2**20, 900 * 2**20
ITEM = {"float32": 4, "bfloat16": 2, "float16": 2}
# NF4 keeps half a byte a parameter, and its scales, quantised themselves, 0.127 bits: Dettmers et
# al. 2023, arXiv 2305.14314, section 3.
NF4 = 0.5 + 0.127 / 8
# Bytes that an optimiser keeps a parameter, in parameters' own width or in 8 bits.
MOMENTS = {"sgd": 0, "adamw_8bit": 2, "paged_adamw_8bit": 2}
VLLM_OVERHEAD = 3 * GIB // 2  # activations and CUDA graphs inside vLLM's reserve
FRAGMENTS = 0.08  # of what comes and goes: blocks that the allocator cannot use again


def memory(settings: Settings, shape: Shape, machine: Machine, prompt: int) -> dict[str, int]:
    """What takes memory at a training's peak: part -> bytes; `prompt` is the longest, in tokens."""
    weights = weights_bytes(settings, shape)
    parts = {"process": PROCESS_GPU if machine.gpu else PROCESS_CPU, "weights": weights}
    if settings["use_peft"]:
        width = 4  # PEFT and Unsloth keep adapters in float32
        changed = shape.adapter(settings["lora_r"], settings["lora_target_modules"])
        parts["adapter"] = changed * width
    else:
        width, changed = ITEM[settings["dtype"]], shape.parameters
        if settings["beta"]:
            parts["reference"] = weights
    parts["gradients"] = changed * width
    parts["optimiser"] = changed * MOMENTS.get(settings.get("optim", ""), 2 * width)
    comes_and_goes = learning(settings, shape, machine, prompt)
    if reserve := vllm_reserve(settings, machine):
        # Unsloth's engine holds the policy's weights itself.
        shared = weights if settings["fast_inference"] else 0
        parts["vLLM's reserve"] = max(0, reserve - shared)
    else:
        writes = writing(settings, shape, prompt)
        comes_and_goes = max(comes_and_goes, writes, key=lambda found: sum(found.values()))
    fragments = int(FRAGMENTS * sum(comes_and_goes.values()))
    return {**parts, **comes_and_goes, "fragmentation": fragments}


def weights_bytes(settings: Settings, shape: Shape) -> int:
    """Bytes of the base model's weights, in the type that the settings load them in."""
    item = ITEM[settings["dtype"]]
    if not settings["load_in_4bit"]:
        return shape.parameters * item
    return int(shape.linear * NF4 + (shape.parameters - shape.linear) * item)


def unsloth_trains(settings: Settings, machine: Machine) -> bool:
    """Whether Unsloth trains there: what a profile of a GPU wants, or `CASEBOOK_BACKEND` says."""
    asked = os.environ.get("CASEBOOK_BACKEND") or "auto"
    wanted = PROFILES[settings["profile"]].device == "gpu" if asked == "auto" else asked != "peft"
    return machine.gpu and wanted


def vllm_reserve(settings: Settings, machine: Machine) -> int:
    """Bytes that vLLM takes of the card and keeps to the end."""
    share = settings.get("vllm_gpu_memory_utilization") or 0.3  # TRL's default
    taken = settings["fast_inference"] or settings.get("use_vllm")
    return int(share * machine.total) if taken else 0


def vllm_needs(settings: Settings, shape: Shape, prompt: int) -> int:
    """Bytes that have to fit into that reserve: weights, and one completion; more of them wait."""
    length = prompt + settings["max_completion_length"]
    one = shape.kv_bytes(ITEM[settings["dtype"]]) * length
    return weights_bytes(settings, shape) + VLLM_OVERHEAD + one


def writing(settings: Settings, shape: Shape, prompt: int) -> dict[str, int]:
    """Parts of the completions of a step, written by `generate`."""
    item, length = ITEM[settings["dtype"]], prompt + settings["max_completion_length"]
    together = settings.get("steps_per_generation") or settings["gradient_accumulation_steps"]
    count = settings["per_device_train_batch_size"] * together
    cache = count * length * shape.kv_bytes(item)
    read = count * prompt * (4 * shape.hidden + 2 * shape.intermediate) * item
    return {
        "keys and values": cache + cache // shape.layers,  # a layer's is copied as it grows
        "prompts and probabilities": read + count * 32 * shape.vocabulary,
    }


def learning(settings: Settings, shape: Shape, machine: Machine, prompt: int) -> dict[str, int]:
    """Parts of a forward and backward pass through one micro batch."""
    item, completion = ITEM[settings["dtype"]], settings["max_completion_length"]
    micro = settings["per_device_train_batch_size"]
    once = settings.get("prompts_once", False)  # each prompt counts once for its group
    prompts = max(1, micro // settings["num_generations"]) if once else micro
    tokens = prompts * prompt + micro * completion
    # A Llama layer of transformers keeps inputs, normalised and scaled, of two norms and the two
    # sums (6), queries and what attention gives, twice (3), keys and values once for each head
    # (2), and gate, its SiLU, up and their product (4).
    wide = shape.heads * shape.head_dim
    numbers = 6 * shape.hidden + 5 * wide + 4 * shape.intermediate
    numbers += 7 * settings["lora_r"] if settings["use_peft"] else 0
    layer = tokens * (numbers * item + (16 * shape.hidden if item < 4 else 0))
    if once:  # attention reads the prompt again for each completion
        layer += 4 * micro * (prompt + completion) * wide * item
    kept = shape.layers * tokens * shape.hidden * item  # the checkpoints between layers
    unsloth = unsloth_trains(settings, machine)
    if unsloth and settings.get("use_gradient_checkpointing"):  # its own has them on the CPU
        kept = 0
    activations = layer + kept if settings["gradient_checkpointing"] else shape.layers * layer
    logits = (completion + 1) * shape.vocabulary
    if unsloth:  # its loss takes a row in pieces, in float32
        logits = logits * 3 * 4 // max(4, completion // 4096)
    else:  # TRL's holds those of the whole micro batch
        logits *= micro * item * (6 if settings.get("constraint", "none") != "none" else 4)
    parts = {"activations": activations, "logits": logits}
    if not settings["use_peft"]:  # a new gradient beside the one it is added to
        parts["gradient of the embedding"] = shape.vocabulary * shape.hidden * item
    return parts
