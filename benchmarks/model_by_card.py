"""Which model fits which card, as `casebook preflight` estimates it.

    python benchmarks/model_by_card.py      # writes docs/fits.md

Nothing is run on a GPU for this page. A test compares it with the current estimate.
"""

from casebook import paths
from casebook.preflight import estimate, sizes
from casebook.settings import read_settings

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

These are estimates of `casebook preflight`, not measurements: none of these steps was run here. In
a step the model generates, and learns from, {completions} completions of at most {length} tokens,
eight for each prompt of at most {prompt} tokens. LoRA has rank 32, and Unsloth trains without vLLM.
*GiB* is the estimated memory. *fits*: it fits with its error bar; *close*: only without the error
bar; *no*: it does not fit. [What runs where](hardware.md) explains the estimate.

{table}
"""


def told(model: str, bits: int, gpu: str) -> str:
    """Whether a step of one model fits one card; without a card its memory in GiB."""
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
    return "fits" if (1 + estimate.ERROR_GPU) * total <= machine.there else "close"


def page() -> str:
    """The page as Markdown."""
    rows = [["model", "bits", "GiB", *CARDS.values()]]
    rows.append(["---"] * len(rows[0]))
    for model, widths in MODELS.items():
        for bits in widths:
            cells = (told(model, bits, gpu) for gpu in ("", *CARDS))
            rows.append([model.partition("/")[2], str(bits), *cells])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return PAGE.format(completions=COMPLETIONS, length=LENGTH, prompt=PROMPT, table=table)


if __name__ == "__main__":
    (paths.ROOT / "docs" / "fits.md").write_text(page(), encoding="utf-8")
