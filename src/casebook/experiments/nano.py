"""The embedded base models: one small checkpoint for each case, built from its demonstrations.

A GRPO lesson needs a base model that *half* knows its task: one that solves nothing gives no
group a gradient, and one that solves everything has nothing to learn. A model hub has such
models, but a laptop without a network does not. So each case ships a Llama of under a million
parameters, pretrained for a few minutes on a corpus that mixes skills and faults in stated
shares (`Case.skills`). What was planted is never reported as a finding.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from casebook import paths
from casebook.case import Case, CasebookError, check_name, left, load_case, shares_of
from casebook.evaluation import evaluate
from casebook.models import load_base, read_settings
from casebook.paths import write_json
from casebook.records import figure_text, table_row
from casebook.training.supervised import collate

# A tag, one capital (a rank or a suit), a word, a LaTeX command, a whole number, GSM8K's mark, a
# line end, or any other character, each with the blank before it: so decoding is joining, and no
# token holds a sentence.
PIECES = r"</?\w+>| ?[A-Z](?![a-z])| ?[A-Za-z][a-z]*| ?\\[a-z]+| ?\d+| ?####|\n| ?[^\sA-Za-z\d]|\s"
APART = PIECES.replace(r" ?\d+", r" ?\d")  # of a case of one's own: it can write any number
# Hidden size, feed-forward size, layers: the shipped one, and two smaller for comparison.
SIZES = {"nano": (128, 384, 4), "small": (64, 192, 4), "tiny": (32, 96, 2)}
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
MAX_LENGTH = 128  # tokens of prompt and completion; longer demonstrations are cut, without EOS
BATCH = 64
STEPS = 2_000  # of a first build; later ones take as many as the shipped one did
LEARNING_RATE = 2e-3
OWN_STEPS, OWN_RATE, OWN_SIZE = 300, 5e-3, "small"  # of a case of one's own: about a minute
VOCABULARY_SAMPLE = 4_000  # demonstrations read for the vocabulary
CARD_SAMPLES = 4  # completions of each validation row behind the card's figures
CARD = Path(__file__).with_name("card.md")  # what `write_card` fills in


def folder(case: str) -> Path:
    """Where the checkpoint of a case lies."""
    return paths.ROOT / read_settings(case, "nano")["model_name_or_path"]


def build(
    case: str,
    output: Path | None = None,
    steps: int | None = None,
    seed: int = 0,
    without: Collection[str] = (),
    size: str | None = None,
    start: Path | None = None,
    log: Callable[[str], None] = print,
) -> Path:
    """Build a case's embedded model and save it with its tokenizer.

    Args:
        output: the folder to write; by default the one that the case's `nano.yaml` names.
        steps: optimiser steps of 64 demonstrations each, at least one; by default as many as the
            shipped checkpoint took, else 2,000: seven to fifteen minutes on one thread. Of a case
            of one's own 300.
        seed: decides the demonstrations, their order and the initial weights.
        without: skills that the demonstrations leave out: the base of a control.
        size: one of `SIZES`; by default `nano`, of a case of one's own `small`.
        start: a model of this case to go on from, at a tenth of the learning rate: supervised
            fine-tuning on what `without` leaves.
        log: called with a line of progress every 50 steps.

    Returns:
        The folder, which `AutoModelForCausalLM` and `AutoTokenizer` can load.

    Raises:
        CasebookError: unknown case, size or skill, no model at `start`, or a build of another
            length, size or corpus that would replace the shipped one.
    """
    last, case = folder(case) / "build.json", load_case(case)
    shipped = bool(case.number)  # else it is a case of one's own
    usual = json.loads(last.read_text())["steps"] if last.exists() else STEPS
    own = OWN_STEPS, size or ("nano" if start else OWN_SIZE)
    usual, size = (usual, size or "nano") if shipped else own
    steps, length = steps or usual, read_settings(case.name, "nano")["max_seq_length"]
    check_name("size", size, SIZES)
    if start and size != "nano":
        raise CasebookError("a build that starts from a model keeps that model's size")
    other = steps != usual or without or size != "nano" or start or seed
    if other and shipped and output is None:
        raise CasebookError("this build would replace the shipped model: name an output")
    output = output or folder(case.name)
    set_seed(seed)
    if start:
        model, tokenizer = _loaded(case.name, start)
    else:
        tokenizer = build_tokenizer(case, seed)
        model = LlamaForCausalLM(model_config(tokenizer, size, length))
    rate = (LEARNING_RATE if shipped else OWN_RATE) / (10 if start else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    turns = {"total_steps": steps + 1, "pct_start": 0.05}
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, **turns)
    demonstrations = iter(case.demonstrations(seed, without))
    model.train()
    for step in range(1, steps + 1):
        batch = collate(tokenizer, list(islice(demonstrations, BATCH)), length)
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == steps:
            log(f"nano {case.name}: step {step}/{steps}, loss {loss.item():.3f}")
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    made = {"case": case.name, "steps": steps, "seed": seed, "without": sorted(without)}
    if size != "nano":
        made["size"] = size
    if start:  # as one would type it in the checkout
        inside = start.resolve().is_relative_to(paths.ROOT)
        made["start"] = str(start.resolve().relative_to(paths.ROOT) if inside else start.name)
    write_json(output / "build.json", made)
    return output


def _loaded(case: str, model: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    return load_base(read_settings(case, "nano") | {"model_name_or_path": str(model)})


def write_card(case: str, output: Path) -> Path:
    """Measure a built model on validation rows, and write its model card.

    Returns:
        The card, `README.md` in the model's folder; `card.json` beside it keeps the figures, too.

    Raises:
        CasebookError: unknown case, or no whole model in the folder.
    """
    model, tokenizer = _loaded(case, output)
    main, case = read_settings(case, "nano")["variant"], load_case(case)
    asked = {"split": "validation", "samples": CARD_SAMPLES}
    measured = {v: evaluate(model, tokenizer, case, variant=v, **asked) for v in case.skills}
    figures = {variant: evaluation.summary() for variant, evaluation in measured.items()}
    sampled = measured[main].decoded("sample").to_dict("records")
    styles = Counter(case.style(row["completion"], row) for row in sampled)
    seen = {name: count / len(sampled) for name, count in styles.items()}
    made = json.loads((output / "build.json").read_text())
    write_json(output / "card.json", {**made, "figures": figures, "seen": seen})
    without, start = made["without"], made.get("start")
    options = [f' --without "{name}"' for name in without]
    options += [f" --{name} {made[name]}" for name in ("size", "start") if name in made]
    planted = []
    for variant, skills in case.skills.items():
        shares = left(shares_of(skills), without)
        for name, (_, text) in skills.items():
            share = f"{shares[name]:.0%}" if name in shares else "left out"
            shown = f"{seen.get(name, 0):.1%}" if variant == main else ""
            planted.append(table_row(variant, name, text, share, shown))
    rows = "\n".join(
        table_row(text, *(figure_text(found[key]) for found in figures.values()))
        for text, key in (
            ("well formed and right, greedy", "greedy_accuracy"),
            ("well formed and right, sampled", "sampled_accuracy"),
            ("right whatever the form, sampled", "lenient_accuracy"),
            ("well formed, sampled", "well_formed"),
            ("cut off at the length limit, sampled", "truncated"),
        )
    )
    (output / "README.md").write_text(
        CARD.read_text("utf-8")
        .removesuffix("\n")
        .format(
            title=case.title,
            caution=f"\n{case.caution}\n" if case.caution else "",
            parameters=f"{model.num_parameters():,}",
            tokens=len(tokenizer),
            **made,
            options="".join(options) + " --output FOLDER" * bool(options),
            beginning=f", beginning with the model in `{start}`" if start else "",
            planted="\n".join(planted),
            other=f"{seen.get('other', 0):.1%}",
            prompts=" | ".join(f"`{variant}`" for variant in figures),
            lines=" | ".join("---" for _ in figures),
            rows=rows,
            n=figures[main]["sampled_accuracy"]["n"],
            samples=CARD_SAMPLES,
        )
    )
    return output / "README.md"


def build_tokenizer(case: Case, seed: int = 0) -> PreTrainedTokenizerFast:
    """A word-level tokenizer over the pieces that occur in a case's demonstrations."""
    pieces, pattern = set(), PIECES if case.number else APART
    for row in islice(case.demonstrations(seed), VOCABULARY_SAMPLE):
        pieces.update(re.findall(pattern, row["prompt"] + row["completion"]))
    words = {word: i for i, word in enumerate([PAD, EOS, UNKNOWN, *sorted(pieces)])}
    core = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_LENGTH,
    )


def model_config(
    tokenizer: PreTrainedTokenizerFast, size: str = "nano", length: int = MAX_LENGTH
) -> LlamaConfig:
    """Llama with about 0.86 million parameters at the usual size: enough for the task."""
    hidden, feed_forward, layers = SIZES[size]
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=2 * length,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
