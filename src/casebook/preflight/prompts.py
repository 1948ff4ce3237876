"""What a training asks its model: lengths, rows that are dropped, where texts begin and end.

The tokenizer decides all of it, so it is loaded here, without the model. Training means TRL's own
rollouts, evaluation what `casebook.models.generation` does; where they differ, a policy is measured
on other prompts than it was trained on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from casebook.case import CasebookError, load_case
from casebook.preflight.memory import TEST_ROWS, Texts
from casebook.preflight.shapes import Shape

SEEN = 2000  # training prompts that are looked at
CHARACTERS = 2.5  # a token, at least: English has about 4, digits and symbols fewer
TEMPLATE = 48  # tokens that a chat template adds to a message, at most


def rows_of(settings: Mapping[str, Any], split: str) -> list[dict[str, Any]]:
    """The first rows of a split as the training has them.

    Raises:
        CasebookError: what they are read from is not here.
    """
    case = load_case(settings["case"])
    profile, variant = settings["profile"], settings["variant"]
    if split == "train":
        rows = case.load("train", profile, settings["seed"], variant)
        limit = settings.get("train_limit")
    else:
        rows = case.load("test", profile=profile, variant=variant)
        limit = settings.get("test_limit")
    count = min(limit or len(rows), len(rows))
    return rows.select(range(min(SEEN, count))).to_list()


def read_tokenizer(settings: Mapping[str, Any]) -> Any:
    """The tokenizer of a training's model; a `CasebookError` where it cannot be had."""
    from transformers import AutoTokenizer

    from casebook.models import model_source

    name = settings["model_name_or_path"]
    try:
        return AutoTokenizer.from_pretrained(model_source(name), padding_side="left")
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CasebookError(
            f"the tokenizer of {name} cannot be had here: {str(error).strip().splitlines()[0]}"
        ) from error


def counted(
    settings: Mapping[str, Any],
    tokenizer: Any,
    train: Sequence[Mapping[str, Any]],
    test: Sequence[Mapping[str, Any]],
    shape: Shape,
) -> tuple[Texts, dict[str, Any]]:
    """The lengths of all prompts in tokens, and what is to be said about them.

    Raises:
        CasebookError: every training prompt is too long.
    """
    from casebook.models.generation import token_ids

    completion = settings["max_completion_length"]
    room = settings["max_seq_length"] - completion
    asked = [token_ids(tokenizer, row["prompt"]) for row in train]
    kept = [ids for ids in asked if len(ids) <= room]
    if not kept:
        shortest = min(map(len, asked))
        raise CasebookError(
            f"no training prompt fits into max_seq_length {settings['max_seq_length']} less "
            f"max_completion_length {completion}: the shortest has {shortest} tokens; raise "
            f"max_seq_length to at least {shortest + completion}"
        )
    tested = [len(token_ids(tokenizer, row["prompt"])) for row in test]
    fitting = [length for length in tested if length <= shape.positions - completion]
    lengths = [len(ids) for ids in kept]
    columns = zip(*kept, strict=False)
    shared = next((i for i, tokens in enumerate(columns) if len(set(tokens)) > 1), min(lengths))
    texts = Texts(
        train=max(lengths),
        test=max(fitting, default=max(lengths)),
        shared=min(shared, min(lengths) - 1),
        test_rows=len(test) or TEST_ROWS,
        known=True,
    )
    said = {
        "train_prompts": len(asked),
        "dropped": len(asked) - len(kept),
        "median": int(np.median(lengths)),
        "longest": max(lengths),
        "room": room,
        "test_prompts": len(tested),
        "test_longest": max(tested, default=0),
        "test_dropped": len(tested) - len(fitting),
        **beginnings(tokenizer, train[0]["prompt"]),
        **ends(settings, tokenizer),
    }
    return texts, said


def guessed(
    settings: Mapping[str, Any], train: Sequence[Mapping], test: Sequence[Mapping], shape: Shape
) -> Texts:
    """Lengths from the numbers of characters, where the tokenizer cannot be had: upper bounds."""
    room = min(settings["max_seq_length"], shape.positions) - settings["max_completion_length"]

    def longest(rows: Sequence[Mapping]) -> int:
        texts = [_characters(row["prompt"]) for row in rows]
        return min(room, int(max(texts) / CHARACTERS) + TEMPLATE)

    return Texts(longest(train), longest(test), test_rows=len(test))


def beginnings(tokenizer: Any, prompt: Any) -> dict[str, Any]:
    """How often the token of the beginning stands before a prompt, in training and evaluation.

    Returns:
        `begins_training`, `begins_evaluation` (counts), and `same_ids`: whether both ask with the
        same tokens.
    """
    from casebook.models.generation import token_ids

    if isinstance(prompt, str):  # as TRL's trainer tokenises
        trained = tokenizer(text=[prompt])["input_ids"][0]
    else:
        trained = tokenizer.apply_chat_template(
            conversation=[prompt], add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"][0]
    evaluated, begin = token_ids(tokenizer, prompt), tokenizer.bos_token_id

    def leading(ids: Sequence[int]) -> int:
        return next((i for i, token in enumerate(ids) if token != begin), len(ids))

    return {
        "begins_training": leading(trained),
        "begins_evaluation": leading(evaluated),
        "same_ids": list(trained) == list(evaluated),
    }


def ends(settings: Mapping[str, Any], tokenizer: Any) -> dict[str, Any]:
    """The tokens that end a completion: the tokenizer's, and those that the model declares.

    Training and evaluation both stop at all of them; `end_tokens` is `None` where the model's
    generation config cannot be read.
    """
    from transformers import GenerationConfig

    from casebook.models import model_source

    own = [tokenizer.eos_token_id]
    try:
        source = model_source(settings["model_name_or_path"])
        declared = GenerationConfig.from_pretrained(source).eos_token_id
    except (OSError, ValueError):
        return {"end_tokens": None, "tokenizer_end": tokenizer.convert_ids_to_tokens(own)[0]}
    declared = declared if isinstance(declared, list) else [declared]
    found = list(dict.fromkeys(token for token in (*own, *declared) if token is not None))
    return {
        "end_tokens": tokenizer.convert_ids_to_tokens(found),
        "tokenizer_end": tokenizer.convert_ids_to_tokens(own)[0],
    }


def _characters(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt)
    return sum(len(message["content"]) for message in prompt)
