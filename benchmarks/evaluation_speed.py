"""How long SmolLM2 takes to answer 500 poker hands, with and without its prompts' shared beginning.

The hands, prompt and ways to answer are those that the arm `published` is measured with, greedily.
Each way takes its turn with what all prompts begin with computed once ("prompts once"), and with
every prompt computed whole.

    make smol
    python benchmarks/evaluation_speed.py --output results/benchmarks/evaluation_speed.json

Prints and records the seconds of an evaluation, the grading included, median of several.
"""

from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Annotated

import torch
import typer

from casebook.case import load_case
from casebook.evaluation import evaluate
from casebook.models import load_base, read_settings
from casebook.models.generation import token_ids
from casebook.paths import write_json
from casebook.records import provenance
from casebook.settings import read_arms

WAYS = ("free", "trie")  # how an answer is taken: `also_evaluate` of the arm


def main(
    output: Annotated[Path | None, typer.Option(help="Write the figures here as JSON.")] = None,
    hands: Annotated[int, typer.Option(min=1, help="Hands in an evaluation.")] = 500,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Turns each way takes.")] = 3,
    profile: Annotated[str, typer.Option(help="The model, of this profile of poker.")] = "smol",
) -> None:
    """Time evaluations, in turns."""
    torch.set_num_threads(threads)
    settings = read_settings("poker", profile) | read_arms("poker")["published"]["overrides"]
    model, tokenizer = load_base(settings)
    asked = load_case("poker").load("test", profile=profile, variant=settings["variant"])
    prompts = asked.select(range(min(hands, len(asked))))["prompt"]
    taken: dict[tuple[str, bool], list[float]] = {}
    for _ in range(rounds):
        for way in WAYS:
            for once in (True, False):
                begun = perf_counter()
                evaluate(
                    model,
                    tokenizer,
                    "poker",
                    profile=profile,
                    limit=hands,
                    samples=0,
                    settings=settings | settings["also_evaluate"][way] | {"prompts_once": once},
                )
                taken.setdefault((way, once), []).append(perf_counter() - begun)
    figures = {
        f"{way}, {'prompts once' if once else 'every prompt whole'}": median(seconds)
        for (way, once), seconds in taken.items()
    }
    for name, seconds in figures.items():
        typer.echo(f"{len(prompts)} hands, {threads} threads, {name:26} {seconds:7.1f} s")
    if output is not None:
        record = {
            "benchmark": "evaluation_speed",
            "profile": profile,
            "hands": len(prompts),
            "tokens_of_a_prompt": mean(len(token_ids(tokenizer, prompt)) for prompt in prompts),
            "torch_threads": threads,
            "seconds": figures,
            "repeats": rounds,
            "provenance": provenance(),
        }
        write_json(output, record)


if __name__ == "__main__":
    typer.run(main)
