"""What does a real model know about poker hands before any training?

The poker write-up reports one number for its base model. What that number says depends on how the
model is asked and on how an answer is taken from it, so both are varied here, on the same hands:

    prompts   text        the write-up's prompt
              chat        the same words as a user's message, in the model's chat template
              shots       the text after four solved hands of four labels
    ways      free        the model writes what it likes, at most as long as the write-up allows
              position    constrained by position, as published
              trie        constrained to the eight labels
              likelihood  nothing is written: the label with the highest log-probability, its end
                          included; and `likelihood_per_token`, that divided by its tokens

All writing is greedy. The answers of every row are kept, so that `figures` can grade them again.
`casebook study smol_poker` makes the committed record, `results/poker/data/smol_poker.json`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from casebook.case import NO_ANSWER
from casebook.cases.poker import data, oracle
from casebook.cases.poker.rewards import grade
from casebook.records import answer_entropy, provenance
from casebook.stats import mean_interval

NAME, PROFILE = "smol_poker", "smol"
ROWS = {"source": ("label-source", 200), "balanced": ("label", 500)}  # variant and limit
PROMPTS = {"text": "label", "chat": "label-chat", "shots": "label-shots4"}
WAYS = ("free", "position", "trie", "likelihood")
BLANK = {"text": " ", "chat": "", "shots": " "}  # between a prompt and a label
AT_ONCE = 8  # prompts whose eight labels are scored together


def record(limit: int | None = None, log: Callable[[str], None] = print) -> dict[str, Any]:
    """The answers of the untrained model, and their figures.

    Args:
        limit: only so many rows of each kind, for a trial.
        log: called with a line for each part that is finished.

    Returns:
        `provenance`, `rows` (kind -> right answers and the baselines on them) and `found`: rows ->
        prompt -> way -> `figures`, with the answers themselves as `kept`.

    Raises:
        CasebookError: the model cannot be loaded.
    """
    from casebook.models import describe, load_base, read_settings

    settings = read_settings("poker", PROFILE)
    model, tokenizer = load_base(settings)
    model.eval().requires_grad_(False)  # as the base of a training is measured
    described = describe(model, settings)
    rows, found = {}, {}
    for kind, (variant, most) in ROWS.items():
        asked = data.load("test", PROFILE, variant=variant).select(range(limit or most))
        right = [oracle.LABELS.index(answer) for answer in asked["answer"]]
        rows[kind] = {"variant": variant, "right": _line(right), "baselines": baselines(right)}
        found[kind] = {}
        for prompt, form in PROMPTS.items():
            texts = [data.prompt_maker(PROFILE, form)(hand) for hand in asked["hand"]]
            found[kind][prompt] = {}
            for way in WAYS:
                kept = answers(model, tokenizer, settings, texts, way, BLANK[prompt])
                for name, one in kept.items():
                    found[kind][prompt][name] = figures(one, right) | {"kept": one}
                    accuracy = found[kind][prompt][name]["accuracy"]["value"]
                    log(f"{kind}, {prompt}, {name}: {accuracy:.3f} right")
    return {"provenance": provenance() | {"model": described}, "rows": rows, "found": found}


def answers(
    model: Any,
    tokenizer: Any,
    settings: Mapping[str, Any],
    prompts: Sequence[Any],
    way: str,
    blank: str = " ",
) -> dict[str, dict[str, Any]]:
    """What a model answers to prompts in one way: the way's name -> its answers.

    Args:
        settings: how long an answer may be.
        blank: what stands between a prompt and a label.

    Returns:
        `texts`, the different answers; `of`, for each row the number of its answer; `truncated`,
        1 for each row whose answer did not end. Likelihood comes summed and per token, with
        `label_mass`, the probability of all eight labels together in each row.
    """
    from casebook.models.decoding import PrefixTrie, constraint_for, label_tokens
    from casebook.models.generation import decoding_of, generate_all

    if way == "likelihood":
        return _likelihood(model, tokenizer, prompts, blank)
    rule = None
    if way == "trie":
        tokens = label_tokens(oracle.LABELS, tokenizer, (blank,))
        rule = PrefixTrie(tokens, tokenizer.eos_token_id)
    elif way == "position":
        rule = constraint_for("position", oracle.LABELS, tokenizer)
    written: dict[int, dict[str, Any]] = {}
    decoding = decoding_of(settings, greedy=True)
    for _, numbers, found in generate_all(model, tokenizer, prompts, constraint=rule, **decoding):
        written |= zip(numbers, found, strict=True)
    ordered = [written[number] for number in range(len(prompts))]
    return {
        way: _kept([one["completion"] for one in ordered], [one["truncated"] for one in ordered])
    }


def figures(kept: Mapping[str, Any], right: Sequence[int]) -> dict[str, Any]:
    """Grade kept answers.

    Args:
        kept: `texts`, `of` and `truncated`, as from `answers`.
        right: the number of each row's right label.

    Returns:
        `accuracy` (the label alone, and right), `first_line_accuracy` (the same of the first line
        alone: after solved hands a model goes on with the next one), `lenient_accuracy` (right in
        any form), `no_label` and `truncated` (shares), `histogram` (label -> rows),
        `labels_recalled` (how many labels were right at least once) and `answer_entropy`, in bits.

    >>> found = figures({"texts": [" flush"], "of": "0 0", "truncated": "0 0"}, [5, 0])
    >>> found["accuracy"]["value"], found["histogram"], found["labels_recalled"]
    (0.5, {'flush': 2}, 1)
    """
    texts = [kept["texts"][int(number)] for number in kept["of"].split()]
    gold = [oracle.LABELS[label] for label in right]
    grades = [grade(text, label, "label") for text, label in zip(texts, gold, strict=True)]
    lines = [text.strip().partition("\n")[0] for text in texts]
    first = [grade(line, label, "label") for line, label in zip(lines, gold, strict=True)]
    histogram = Counter(g.answer or NO_ANSWER for g in grades)
    return {
        "accuracy": mean_interval([float(g.strict) for g in grades]),
        "first_line_accuracy": mean_interval([float(g.strict) for g in first]),
        "lenient_accuracy": mean_interval([float(g.correct) for g in grades]),
        "no_label": mean_interval([float(g.answer is None) for g in grades]),
        "truncated": mean_interval([float(cut) for cut in kept["truncated"].split()]),
        "histogram": dict(histogram.most_common()),
        "labels_recalled": len({g.answer for g in grades if g.correct}),
        "answer_entropy": answer_entropy(histogram),
    }


def baselines(right: Sequence[int]) -> dict[str, Any]:
    """What needs no model on these rows: the most common label always, and labels drawn as often
    as they are right.

    >>> found = baselines([0, 0, 0, 1])
    >>> found["majority"]["value"], found["label"], found["class_prior"]
    (0.75, 'high card', 0.625)
    """
    counts = Counter(right)
    label = max(counts, key=lambda number: (counts[number], -number))
    return {
        "label": oracle.LABELS[label],
        "majority": mean_interval([float(number == label) for number in right]),
        "class_prior": sum((n / len(right)) ** 2 for n in counts.values()),
    }


def _likelihood(model, tokenizer, prompts, blank) -> dict[str, dict[str, Any]]:
    from casebook.models.decoding import label_tokens
    from casebook.models.generation import token_ids
    from casebook.models.prompts_once import completion_logps

    tokens = label_tokens(oracle.LABELS, tokenizer, (blank,))
    texts = [[*ids, tokenizer.eos_token_id] for ids in tokens]
    asked = [token_ids(tokenizer, prompt) for prompt in prompts]
    parts = [asked[start : start + AT_ONCE] for start in range(0, len(asked), AT_ONCE)]
    found = (completion_logps(model, [(p, t) for p in part for t in texts]) for part in parts)
    logps = np.concatenate([(logps * mask).sum(1).numpy(force=True) for logps, mask in found])
    logps = logps.reshape(len(prompts), len(texts))
    mass = [round(float(row), 4) for row in np.exp(logps.astype(float)).sum(1)]
    found = {}
    for name, scores in {
        "likelihood": logps,
        "likelihood_per_token": logps / [len(text) for text in texts],
    }.items():
        chosen = [blank + oracle.LABELS[number] for number in scores.argmax(1)]
        found[name] = _kept(chosen, [False] * len(chosen)) | {"label_mass": _line(mass)}
    return found


def _kept(texts: Sequence[str], truncated: Sequence[bool]) -> dict[str, Any]:
    different = list(dict.fromkeys(texts))
    number = {text: i for i, text in enumerate(different)}
    of = _line(number[text] for text in texts)
    return {"texts": different, "of": of, "truncated": _line(map(int, truncated))}


def _line(numbers) -> str:
    """Numbers in one line: a list would take a line for each in the record's file."""
    return " ".join(map(str, numbers))
