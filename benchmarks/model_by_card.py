"""Which model fits which card, and the seconds of a step, as `casebook preflight` estimates them.

    python benchmarks/model_by_card.py      # writes docs/fits.md

Nothing is run on a GPU for this page. A test holds it to what the estimate says today.
"""

from pathlib import Path

import yaml

from casebook import paths
from casebook.preflight import estimate, sizes
from casebook.settings import read_settings

PUBLISHED = Path(estimate.__file__).with_name("published.yaml")
MODELS = {  # name -> bits of the weights
    "Qwen/Qwen3-0.6B": (16,),
    "Qwen/Qwen2.5-1.5B-Instruct": (16,),
    "Qwen/Qwen3-1.7B": (16,),
    "Qwen/Qwen2.5-3B-Instruct": (16, 4),
    "unsloth/Llama-3.2-3B-Instruct": (16, 4),
    "Qwen/Qwen3-4B": (16, 4),
    "unsloth/Meta-Llama-3.1-8B-Instruct": (16, 4),
    "Qwen/Qwen3-8B": (16, 4),
}
CARDS = {"t4": "T4", "24": "24 GB (L4, A10)", "a100-40": "A100, 40 GB", "h100": "H100 SXM"}
PROMPT, LENGTH, COMPLETIONS = 256, 256, 16
PAGE = """\
# Which model fits which card

<!-- Written by benchmarks/model_by_card.py -->

Estimates of `casebook preflight`, not measurements: no step of these was run here. In a step the
model writes, and learns from, {completions} completions of at most {length} tokens, eight of a
prompt of at most {prompt} tokens; LoRA has rank 32, and Unsloth trains without vLLM. *GiB* is the
sum of the memory. Seconds are the range of a step, where the sum fits with its error bar; *close*
means that it fits without it, *no* that it does not. [What runs where](hardware.md) says how both
are reckoned.

{table}

The seconds are fitted to what others published: outputs stored in [Unsloth’s own
notebooks](https://github.com/unslothai/notebooks), commit bdda2efc, all of them with vLLM. Tokens
are the mean of a completion. The last column divides the seconds by the plain sum for vLLM.

{published}
"""


def told(model: str, bits: int, gpu: str) -> str:
    """Seconds of a step of one model on one card, where it fits; without a card the memory."""
    machine, shape = sizes.cards()[gpu or "a100-80"], sizes.known_shapes()[model]
    settings = read_settings("gsm8k", "t4") | {
        **{"model_name_or_path": model, "load_in_4bit": bits == 4, "beta": 0.0, "lora_r": 32},
        **{"per_device_train_batch_size": COMPLETIONS, "gradient_accumulation_steps": 1},
        **{"steps_per_generation": 1, "max_completion_length": LENGTH},
    }
    total = sum(estimate.memory(settings, shape, machine, PROMPT).values())
    if not gpu:
        return f"{total / sizes.GIB:.0f}"
    if (1 - estimate.ERROR_GPU) * total > machine.there:
        return "no"
    word = "" if (1 + estimate.ERROR_GPU) * total <= machine.there else "close, "
    fast, slow = estimate.seconds_per_step(settings, shape, machine, PROMPT)
    return f"{word}{fast:.0f} to {slow:.0f} s"


def plain_seconds(row: dict, vllm: bool) -> float:
    """What the sum says of a published run at equal tokens, without the range."""
    settings = read_settings("gsm8k", "t4") | {
        **{"load_in_4bit": row["bits"] == 4, "lora_r": row["lora_r"], "beta": 0.0},
        **{"per_device_train_batch_size": row["completions"], "gradient_accumulation_steps": 1},
        **{"steps_per_generation": 1, "max_completion_length": row["tokens"]},
        **{"fast_inference": vllm, "vllm_gpu_memory_utilization": 0.5},
    }
    shape, machine = sizes.known_shapes()[row["model"]], sizes.cards()[row["gpu"]]
    seconds = estimate.seconds_per_step(settings, shape, machine, 128)
    return seconds[1] / (estimate.RANGE_VLLM if vllm else estimate.RANGE)[1]


def page() -> str:
    """The page as Markdown."""
    rows = [["model", "bits", "GiB", *CARDS.values()]]
    rows.append(["---"] * len(rows[0]))
    for model, widths in MODELS.items():
        for bits in widths:
            cells = (told(model, bits, gpu) for gpu in ("", *CARDS))
            rows.append([model.partition("/")[2], str(bits), *cells])
    shown = [["model", "bits", "card", "completions", "tokens", "seconds", "of the sum"]]
    shown.append(["---"] * len(shown[0]))
    for row in yaml.safe_load(PUBLISHED.read_text()):
        ratio, model = row["seconds"] / plain_seconds(row, vllm=True), row["model"].split("/")[1]
        cells = [model, row["bits"], CARDS[row["gpu"]], row["completions"], row["tokens"]]
        shown.append([*map(str, cells), f"{row['seconds']}", f"{ratio:.1f} times"])
    lines = {"table": rows, "published": shown}
    text = {n: "\n".join(f"| {' | '.join(row)} |" for row in t) for n, t in lines.items()}
    return PAGE.format(completions=COMPLETIONS, length=LENGTH, prompt=PROMPT, **text)


if __name__ == "__main__":
    (paths.ROOT / "docs" / "fits.md").write_text(page(), encoding="utf-8")
