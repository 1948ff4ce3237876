"""Ask a trained policy: its completions, their grades, and what its training paid for them.

A prompt goes the way of a measured row: the same tokens, decoding and grader, and the rewards of
the training. The libraries that load models are imported when one is loaded.
"""

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from casebook import paths
from casebook.case import KL_PART, CasebookError, load_case
from casebook.settings import read_settings, read_yaml


class Policy:
    """A saved policy: loaded once, asked as often as one likes.

    Args:
        run: the folder of a run or of a policy, or an arm whose adapter is committed, as in
            `poker/nano/grpo`.
    """

    def __init__(self, run: str | Path):
        committed = paths.RESULTS / str(run).strip("/").removesuffix("/grpo")
        folders = (Path(run), Path(run) / "adapter", committed / "adapter")
        folder = next((path for path in folders if (path / "casebook.json").exists()), None)
        if folder is None:
            raise CasebookError(
                f"{run} holds no policy: name the folder of a run that was trained to its end, of "
                "an adapter, or an arm whose adapter is committed, as in poker/nano/grpo"
            )
        from casebook.models import load_saved

        self.model, self.tokenizer, card = load_saved(folder)
        self.model.eval()
        self.settings = read_settings(card["case"], card["profile"])
        if (config := folder.parent / "config.yaml").exists():
            self.settings |= read_yaml(config)
        self.settings |= card
        self.case = load_case(card["case"])

    def ask(
        self,
        prompt: str | None = None,
        row: int | None = None,
        answer: str | None = None,
        base: bool = False,
        samples: int = 0,
    ) -> tuple[Any, pd.DataFrame]:
        """What was asked, and what was written, graded and paid: one completion a row.

        Args:
            prompt: a text of one's own. What all prompts of the case begin and end with is put
                around it, unless it is there: for poker the five cards are enough.
            row: of the test rows, in place of a prompt; asked and graded as it was measured.
            answer: the right one to a prompt of one's own; without it the form alone is graded.
            base: whether to ask the same model with its adapter off as well.
            samples: completions that are sampled beside the greedy one.

        Returns:
            The prompt, a text or messages; and a frame with `model` (`policy` or `base`),
            `decoding`, `completion`, `tokens`, `truncated`, the grade, `reward/<part>` for each
            part that can be computed, and `reward`, their weighted sum where all can.

        Raises:
            CasebookError: neither or both of prompt and row, no such row, or too long a prompt.
        """
        from casebook.evaluation import graded

        if (row is None) == (prompt is None or not prompt.strip()):
            raise CasebookError("name a prompt or a row of the case, and not both")
        rows = self.case.load("test", self.settings["profile"], variant=self.settings["variant"])
        if row is not None and not 0 <= row < len(rows):
            raise CasebookError(f"there is no row {row}: the test rows are 0 to {len(rows) - 1}")
        columns = {"answer": answer} if row is None else dict(rows[row])
        asked = columns.pop("prompt", None) or in_form(prompt, rows["prompt"][:128])
        said = self._written("policy", asked, row or 0, samples)
        if base and hasattr(self.model, "disable_adapter"):
            with self.model.disable_adapter():
                said += self._written("base", asked, row or 0, samples)
        table = graded(self.case, [columns] * len(said), said, self.settings["variant"])
        if columns["answer"] is None:
            table["correct"] = table["strict"] = None
        paid = dict(self._paid(asked, columns, said))
        table = table.assign(**{f"reward/{part}": values for part, values in paid.items()})
        names = self.settings["reward_funcs"]
        weights = self.settings.get("reward_weights") or [1.0] * len(names)
        table["reward"] = None
        if len(paid) == len(names):
            table["reward"] = table[[f"reward/{name}" for name in names]] @ weights
        return asked, table.drop(columns=[*columns, "ids"])

    def _written(self, name: str, asked: Any, row: int, samples: int) -> list[dict[str, Any]]:
        from casebook.models.decoding import constraint_for
        from casebook.models.generation import decoding_of, generate_all, token_ids

        ids, settings, said = token_ids(self.tokenizer, asked), self.settings, []
        room = self.model.config.max_position_embeddings - settings["max_completion_length"]
        if len(ids) > room:
            raise CasebookError(f"the prompt has {len(ids)} tokens, and there is room for {room}")
        rule = constraint_for(settings.get("constraint", "none"), self.case.labels, self.tokenizer)
        for decoding, count in (("greedy", 1), ("sample", samples)):
            how = decoding_of(settings, greedy=decoding == "greedy") | {"constraint": rule}
            how["keys"] = [(0, row, number) for number in range(count)]
            for _, _, batch in generate_all(self.model, self.tokenizer, [ids] * count, **how):
                said += [{"model": name, "decoding": decoding, **one} for one in batch]
        return said

    def _paid(
        self, asked: Any, columns: Mapping[str, Any], said: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[str, list[float]]]:
        """Each part that lacks no column of the row and no base, and what it pays a completion."""
        texts: list[Any] = [one["completion"] for one in said]
        if not isinstance(asked, str):
            texts = [[{"role": "assistant", "content": text}] for text in texts]
        given = {name: [value] * len(said) for name, value in columns.items() if value is not None}
        given |= {"prompts": [asked] * len(said), "completions": texts}
        given["completion_ids"] = [one["ids"][1] for one in said]
        kwargs = self.settings.get("reward_kwargs") or {}
        for name in (name for name in self.settings["reward_funcs"] if name != KL_PART):
            reward = self.case.rewards[name](**kwargs.get(name, {}))
            with suppress(TypeError, CasebookError):
                inspect.signature(reward).bind(**given)
                yield name, reward(**given)


def in_form(text: str, known: Sequence[Any]) -> Any:
    """A text between what all `known` prompts begin and end with, as far as it lacks that.

    >>> in_form("2H 2D", ["Hand: 8C AS\\n", "Hand: 3D 5H\\n"])
    'Hand: 2H 2D\\n'
    """
    if not isinstance(known[0], str):
        last = in_form(text, [messages[-1]["content"] for messages in known])
        return [*known[0][:-1], {**known[0][-1], "content": last}]
    begin = os.path.commonprefix(list(known))  # noqa: RUF071, no paths
    end = os.path.commonprefix([one[len(begin) :][::-1] for one in known])[::-1]  # noqa: RUF071
    there = max(n for n in range(len(begin) + 1) if text.startswith(begin[len(begin) - n :]))
    done = max(n for n in range(len(end) + 1) if text.endswith(end[:n]))
    return begin[: len(begin) - there] + text + end[done:]


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
