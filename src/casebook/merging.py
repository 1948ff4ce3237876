"""A plain model of a trained adapter, in 32 or 16 bits: does it still answer alike?

An adapter adds `B A` times a scale to some of its base's weights. Adding it once and for all gives
a model that every library loads, without PEFT and without the base beside it. In float32 that
rounds next to nothing; in 16 bits the sum is rounded to 8 or 11 binary digits, and what the model
writes may change. So nothing is taken for granted: `compare` asks both the same held-out rows.
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casebook.case import CasebookError, check_name
from casebook.paths import check_writable, read_json, write_trouble
from casebook.policy import CARD, find_policy

if TYPE_CHECKING:
    import pandas as pd

DTYPES = ("float32", "bfloat16", "float16")


def merge(run: str | Path, output: str | Path, dtype: str = "float32") -> Path:
    """Save a policy as one plain model that `AutoModelForCausalLM` loads; whole or not at all.

    Args:
        run: as for `casebook.policy.find_policy`.
        output: a folder that does not exist yet, or is empty.
        dtype: of the saved weights: `float32`, `bfloat16` or `float16`.

    Returns:
        The folder: config, weights in safetensors, tokenizer, and the policy's card, so that
        `casebook try` and `casebook evaluate` take it as well.

    Raises:
        CasebookError: no such policy, a base that is not here or has 4 bits, an output that holds
            something or cannot be written, or weights that are too large for `dtype`.
    """
    check_name("dtype", dtype, DTYPES)
    output = Path(output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise CasebookError(f"{output} is there and not an empty folder: name another one")
    policy = find_policy(run)
    if policy.settings["load_in_4bit"]:
        raise CasebookError(
            "the base of this policy has weights of 4 bits, to which nothing can be added exactly: "
            "Unsloth's save_pretrained_merged makes 16 bits of them on a GPU (docs/policy.md)"
        )
    check_writable(output.parent)
    part = output.with_name(f"{output.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _save(policy, part, dtype)
        if output.exists():
            output.rmdir()
        os.replace(part, output)
    except Exception as error:
        if (trouble := write_trouble(error)) is None:
            raise
        raise CasebookError(f"{output} cannot be written ({trouble})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return output


def _save(policy: Any, part: Path, dtype: str) -> None:
    import torch

    from casebook.models import load_saved, save_policy

    model, tokenizer, _ = load_saved(policy.folder)
    if hasattr(model, "merge_and_unload"):
        # In float32, whatever the base's own: 16 bits would round most of what was learned away.
        model = model.to(torch.float32).merge_and_unload()
    model = model.to(getattr(torch, dtype))
    for name, weights in model.named_parameters():
        if not weights.isfinite().all():
            raise CasebookError(f"{name} has values that {dtype} cannot hold")
    settings = {**policy.settings, "use_peft": False, "dtype": dtype}
    save_policy(model, tokenizer, part, settings)


def compare(
    run: str | Path, merged: str | Path, rows: int = 16, split: str = "test"
) -> "pd.DataFrame":
    """What a policy and the model that was made of it write greedily for the same held-out rows.

    The second one is loaded as anybody would: by `AutoModelForCausalLM` and `AutoTokenizer`.

    Args:
        run: as for `casebook.policy.find_policy`.
        merged: the folder that `merge` wrote.
        rows: how many, the first of the split.

    Returns:
        One line a row: `row`, `policy` and `merged` (the completions), `equal`, and whether each is
        right and well formed (`policy_strict`, `merged_strict`).

    Raises:
        CasebookError: no such policy, nothing in the folder, or a model of another case.
    """
    policy = find_policy(run)
    if not (Path(merged) / CARD).exists():
        raise CasebookError(f"{merged} has no {CARD}: it holds no merged policy")
    card = read_json(Path(merged) / CARD)
    if [card.get(n) for n in ("case", "profile")] != [
        policy.settings[n] for n in ("case", "profile")
    ]:
        raise CasebookError(f"{merged} was made for {card.get('case')}/{card.get('profile')}")
    if rows < 1:
        raise CasebookError(f"{rows} rows cannot be compared")
    import pandas as pd
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from casebook.models import load_saved

    tuned = _greedy(*load_saved(policy.folder)[:2], policy.settings, rows, split)
    try:
        tokenizer = AutoTokenizer.from_pretrained(merged, padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(merged, dtype="auto")
    except (OSError, ValueError) as error:
        raise CasebookError(f"no model can be loaded from {merged}: {error}") from error
    plain = _greedy(model, tokenizer, policy.settings, rows, split)
    return pd.DataFrame(
        {
            "row": tuned["row"],
            "policy": tuned["completion"],
            "merged": plain["completion"],
            "equal": tuned["completion"] == plain["completion"],
            "policy_strict": tuned["strict"],
            "merged_strict": plain["strict"],
        }
    )


def _greedy(model: Any, tokenizer: Any, settings: Any, rows: int, split: str) -> "pd.DataFrame":
    from casebook.evaluation import evaluate

    case, profile = settings["case"], settings["profile"]
    return evaluate(model, tokenizer, case, split, profile, rows, samples=0, settings=settings).rows
