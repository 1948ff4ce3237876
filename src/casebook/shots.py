"""Measuring with another prompt than the one trained on: solved examples before the question.

A model that fails without examples may only not know the form that is wanted; five solved ones
tell it. So 0, 5 and 8 examples are three measurements, and none stands for another. Examples
make prompts long, and a prompt that is cut has lost its beginning: what does not fit is left
out, and the record counts it.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from casebook.case import CasebookError, load_case
from casebook.evaluation import evaluate
from casebook.models import UNSLOTH, load_base, load_saved, read_settings
from casebook.records import provenance

EXAMPLE_TOKENS = 256  # room for one solved example of a word problem; few have more


def evaluate_variant(
    case: str,
    variant: str,
    model_path: str | Path | None = None,
    profile: str | None = None,
    split: str = "test",
    limit: int | None = None,
    samples: int = 8,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Evaluate as `evaluation.evaluate_to_record` does, with another variant of the prompt.

    Args:
        case: name of the case.
        variant: of its prompt, such as "shots5": five solved examples.
        model_path: a folder that a training saved; by default the profile's base model.
        profile: by default the one the policy was trained with, `nano` for the base model.
        split: `train`, `validation` or `test`.
        limit: only the first so many rows.
        samples: completions sampled for each prompt.
        seed: of the sampling.
        progress: called with completions done and to do.

    Returns:
        The record, with `variant` and `dropped_overlong`: how many of the rows were left out
        because prompt and completion do not fit into the model.

    Raises:
        CasebookError: unknown names, no such variant of this case's prompt, another model's
            folder, or no prompt that fits.
    """
    entry = load_case(case)
    if model_path is None:
        card: dict[str, Any] = {"case": case, "profile": profile or "nano"}
    else:
        model, tokenizer, card = load_saved(model_path)
    profile = profile or card["profile"]
    if (card["case"], card["profile"]) != (case, profile):
        raise CasebookError(
            f"{model_path} was trained for {card['case']}/{card['profile']}, "
            f"not for {case}/{profile}"
        )
    settings = read_settings(case, profile)
    rows = entry.load(split, profile=profile, variant=variant)  # before a model is loaded
    if model_path is None:
        wanted = settings["max_seq_length"] + EXAMPLE_TOKENS * shots_of(variant)
        model, tokenizer = load_base(settings | {"max_seq_length": wanted})
    else:
        settings |= card
    rows = rows.select(range(min(limit or len(rows), len(rows))))
    lengths = [_tokens(tokenizer, row["prompt"]) for row in rows]
    positions = _positions(model)
    room = positions - settings["max_completion_length"]
    fitting = [i for i, length in enumerate(lengths) if length <= room]
    if not fitting:
        raise CasebookError(
            f"no prompt of {case}/{variant} fits: the shortest has {min(lengths)} tokens, and of "
            f"the model's {positions} positions {settings['max_completion_length']} are kept for "
            "the completion"
        )
    kept = replace(entry, load=lambda *_, **__: rows.select(fitting))
    evaluation = evaluate(
        model,
        tokenizer,
        kept,
        split,
        profile,
        None,
        samples,
        seed,
        variant=variant,
        settings=settings,
        progress=progress,
    )
    return {
        "case": case,
        "profile": profile,
        "variant": variant,
        "split": split,
        "samples": samples,
        "seed": seed,
        "model": str(model_path or settings["model_name_or_path"]),
        "dropped_overlong": len(rows) - len(fitting),
        "provenance": provenance(),
        **evaluation.summary(),
    }


def shots_of(variant: str) -> int:
    """How many solved examples a variant's prompt has.

    >>> shots_of("shots8"), shots_of("reason")
    (8, 0)
    """
    count = variant.removeprefix("shots")
    return int(count) if count != variant and count.isdecimal() else 0


def _tokens(tokenizer: Any, prompt: str | list[dict]) -> int:
    """The length of a prompt as `evaluation.generate` gives it to the model."""
    if not isinstance(prompt, str):
        prompt = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    return len(tokenizer(prompt, verbose=False).input_ids)


def _positions(model: Any) -> int:
    """How many tokens the model can see; Unsloth lays out memory for a number of its own."""
    positions = model.config.max_position_embeddings
    return min(positions, getattr(model, "max_seq_length", positions)) if UNSLOTH else positions
