"""Ask a trained policy: its completions, their grades, and their rewards.

A prompt goes the way of a measured row: the same tokens, decoding and grader, and the rewards of
the training. The libraries that load models are imported when one is loaded.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import KL_PART, CasebookError, load_case
from casebook.settings import read_settings, read_yaml


class Policy:
    """A saved policy: loaded once, asked as often as one likes.

    `run` is the folder of a run or of a policy, or an arm whose adapter is committed, as in
    `poker/nano/grpo`.
    """

    def __init__(self, run: str | Path):
        committed = paths.RESULTS / str(run).strip("/").removesuffix("/grpo")
        folders = (Path(run), Path(run) / "adapter", committed / "adapter")
        folder = next((path for path in folders if (path / "casebook.json").exists()), None)
        if folder is None:
            raise CasebookError(
                f"{run} contains no policy: name the folder of a finished run or of an adapter, or "
                "an arm whose adapter is committed, such as poker/nano/grpo"
            )
        from casebook.models import load_saved

        self.model, self.tokenizer, card = load_saved(folder)
        self.model.eval()
        own = folder.parent / "config.yaml"
        self.settings = read_settings(card["case"], card["profile"])
        self.settings |= (read_yaml(own) if own.exists() else {}) | card
        self.case = load_case(card["case"])

    def ask(
        self,
        prompt: str | None = None,
        row: int | None = None,
        answer: str | None = None,
        base: bool = False,
        samples: int = 0,
    ) -> tuple[Any, pd.DataFrame]:
        """The prompt, and the completions with grade and reward, one per row.

        Args:
            prompt: your own text; for poker five cards are enough, in the form of the case's hands.
            row: number of a test row, instead of a prompt; asked and graded as in the record.
            answer: the right answer to your prompt; without it only the form is graded.
            base: whether to ask the same model with its adapter off as well.
            samples: number of sampled completions besides the greedy one.

        Returns:
            The prompt, a text or messages; and a frame with `model` (`policy` or `base`), how it
            was decoded, what was written, its grade, `reward/<part>` for each part that can be
            computed, and `reward`, their weighted sum where all can.

        Raises:
            CasebookError: neither or both of prompt and row, no such row, or too long a prompt.
        """
        from casebook.evaluation import graded

        if (row is None) == (prompt is None or not prompt.strip()):
            raise CasebookError("name a prompt or a row of the case, and not both")
        settings = self.settings
        rows = self.case.load("test", settings["profile"], variant=settings["variant"])
        if row is not None and not 0 <= row < len(rows):
            raise CasebookError(f"there is no row {row}: the test rows are 0 to {len(rows) - 1}")
        columns = {"answer": answer} if row is None else dict(rows[row])
        asked = columns.pop("prompt", None) or in_form(prompt, rows["prompt"][:128])
        said = self._written("policy", asked, row or 0, samples)
        if base and hasattr(self.model, "disable_adapter"):
            with self.model.disable_adapter():
                said += self._written("base", asked, row or 0, samples)
        table = graded(self.case, [columns] * len(said), said, settings["variant"])
        if answer is None and row is None:
            table["correct"] = table["strict"] = None
        given = {name: [value] * len(said) for name, value in columns.items() if value is not None}
        texts = [one["completion"] for one in said]
        if not isinstance(asked, str):
            texts = [[{"role": "assistant", "content": text}] for text in texts]
        given |= {"prompts": [asked] * len(said), "completions": texts}
        given["completion_ids"] = [one["ids"][1] for one in said]
        names, kwargs = settings["reward_funcs"], settings.get("reward_kwargs") or {}
        for name in (name for name in names if name != KL_PART):  # that wants a base
            with suppress(TypeError, CasebookError):  # of a part that lacks a column of the row
                reward = self.case.rewards[name](**kwargs.get(name, {}))
                table[f"reward/{name}"] = reward(**given)
        parts, table["reward"] = [f"reward/{name}" for name in names], None
        if set(parts) <= set(table):
            table["reward"] = table[parts] @ (settings.get("reward_weights") or [1.0] * len(parts))
        return asked, table.drop(columns=[*columns, "ids"])

    def _written(self, name: str, asked: Any, row: int, samples: int) -> list[dict[str, Any]]:
        from casebook.models.decoding import constraint_for
        from casebook.models.generation import decoding_of, generate_all, token_ids

        ids, settings, said = token_ids(self.tokenizer, asked), self.settings, []
        room = self.model.config.max_position_embeddings - settings["max_completion_length"]
        if len(ids) > room:
            raise CasebookError(f"the prompt has {len(ids)} tokens, but there is room for {room}")
        rule = constraint_for(settings.get("constraint", "none"), self.case.labels, self.tokenizer)
        for decoding, count in (("greedy", 1), ("sample", samples)):
            how = decoding_of(settings, greedy=decoding == "greedy") | {"constraint": rule}
            how["keys"] = [(0, row, number) for number in range(count)]
            for _, _, batch in generate_all(self.model, self.tokenizer, [ids] * count, **how):
                said += [{"model": name, "decoding": decoding, **one} for one in batch]
        return said


def in_form(text: str, known: Sequence[Any]) -> Any:
    """A text between what all `known` prompts begin and end with, unless it is there.

    >>> in_form("2H 2D", ["Hand: 8C AS\\n", "Hand: 3D 5H\\n"])
    'Hand: 2H 2D\\n'
    """
    if not isinstance(known[0], str):
        last = in_form(text, [messages[-1]["content"] for messages in known])
        return [*known[0][:-1], {**known[0][-1], "content": last}]
    begin = os.path.commonprefix(list(known))  # noqa: RUF071, no paths
    end = os.path.commonprefix([one[len(begin) :][::-1] for one in known])[::-1]  # noqa: RUF071
    return begin + text.removeprefix(begin).removesuffix(end) + end


def lines(asked: Any, table: pd.DataFrame) -> list[str]:
    """An answer of `Policy.ask` as it is printed; what a model writes steers no terminal."""
    said = [asked if isinstance(asked, str) else asked[-1]["content"]]
    for one in table.to_dict("records"):
        parts = [f"{n.partition('/')[2]} {v:g}" for n, v in one.items() if n.startswith("reward/")]
        grade = ", ".join(f"{name} {one[name]}" for name in ("well_formed", "extracted", "correct"))
        said += [f"--- {one['model']}, {one['decoding']}: {grade}", one["completion"]]
        said.append(f"reward {one['reward']} ({', '.join(parts)})")
    return [
        "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in t) for t in said
    ]
