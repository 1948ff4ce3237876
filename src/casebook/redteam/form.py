"""Examples of a task, and the form that they teach: where in a completion the answer stands.

An example is a line of JSON with `prompt`, `completion`, `answer`, `right` (is the completion
right?) and the columns that the reward needs. The *slot* of the answer is looked for in the last
box, the last closed tags, behind the last `####`, in a JSON object and in plain text. The place
must be in all right examples, and one that holds the answer goes before one that does not.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from casebook.case import CasebookError, load_case
from casebook.rewards import completion_text

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_CLOSED = r"</([A-Za-z][\w-]*)>"
_BRACES = r"(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*"  # up to three within each other


@dataclass(frozen=True, eq=False)
class Example:
    """One completion to a prompt, taken apart: `before + thought + between + slot + after`.

    `row` has the columns, `prompt` and `answer` among them. `thought` is the reasoning, `None`
    where the form has no place for any.
    """

    row: Mapping[str, Any]
    right: bool
    slot: str
    before: str = ""
    thought: str | None = None
    between: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        return f"{self.before}{self.thought or ''}{self.between}{self.slot}{self.after}"

    @property
    def answer(self) -> str:
        """The row's answer; of a solution as GSM8K writes it, what follows the mark."""
        return str(self.row["answer"]).rpartition("####")[2].strip()

    @property
    def marked(self) -> bool:
        """A tag, a box or #### marks the answer."""
        return self.between.rstrip()[-1:] in (">", "{", "#")

    @property
    def direct(self) -> bool:
        """The slot holds the row's answer, not something that is judged by other columns."""
        return same(self.slot, self.answer)

    def told(self, slot: str | None = None, thought: str | None = None, after: str = "") -> str:
        """The completion with another answer, another thought, or something behind it."""
        slot, inner = self.slot if slot is None else slot, self.thought
        if thought is not None and inner is not None:
            first, _, last = inner.partition(inner.strip()) if inner.strip() else ("", "", inner)
            free = not self.before and not self.between.startswith("</")
            inner = first + thought + (last or "\n" * free)  # free text: a line of its own
        return replace(self, slot=slot, thought=inner, after=self.after + after).text

    def asking(self, completion: Any, **columns: Any) -> dict[str, Any]:
        """The row with a completion, as a reward gets it; columns that equal `answer` follow it."""
        alike = [key for key, value in self.row.items() if value == self.row["answer"]]
        changed = dict.fromkeys(alike, columns["answer"]) if "answer" in columns else {}
        return {**self.row, **changed, **columns, "completion": completion}

    def as_chat(self) -> "Example":
        """The example with its prompt as messages, which makes messages of completions, too."""
        prompt = self.row["prompt"]
        chat = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        return replace(self, row={**self.row, "prompt": chat})

    @property
    def question(self) -> str:
        """The prompt's text; of messages, the last one's."""
        *_, last = prompt if isinstance(prompt := self.row["prompt"], list) and prompt else [prompt]
        return str(last.get("content") if isinstance(last, Mapping) else last)


def same(one: Any, other: Any) -> bool:
    """Whether two answers are written alike, or are the same plain number."""
    one, other = (" ".join(str(it).replace(",", "").split()).lower() for it in (one, other))
    numbers = _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)
    return float(one) == float(other) if numbers else one == other


def others(example: Example, examples: Iterable[Example]) -> list[str]:
    """Answers that are wrong for an example: those of wrong completions to its prompt, those of
    other rows, and the next number."""
    told = [e.slot for e in examples if not e.right and e.row["prompt"] == example.row["prompt"]]
    if example.direct:
        told += [e.slot for e in examples if e.right]
        if re.fullmatch(r"-?\d+", example.answer):
            told.append(str(int(example.answer) + 1))
    return list(dict.fromkeys(slot for slot in told if slot and not same(slot, example.slot)))


def read_examples(path: Path) -> list[Example]:
    """The examples of a file of JSON lines; what is none, or no right one, is a `CasebookError`."""
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise CasebookError(f"{path} cannot be read as JSON lines: {error}") from None
    for number, row in enumerate(rows, 1):
        needed = ("prompt", "completion", "answer", "right")
        if missing := [key for key in needed if not isinstance(row, dict) or key not in row]:
            raise CasebookError(f"example {number} of {path} has no {missing[0]!r}")
        row["right"] = str(row["right"]).lower() in ("true", "1", "1.0", "yes")
    return apart(rows)


def case_examples(name: str, rows: int = 8) -> list[Example]:
    """Completions to rows of a case, their own and the next row's, as its oracle writes them."""
    case = load_case(name)
    chosen = [*{row["answer"]: row for row in case.load("validation")}.values()][-rows:]
    texts = [case.reference(row) for row in chosen]
    pairs = [*zip(chosen, texts, strict=True), *zip(chosen, texts[1:] + texts[:1], strict=True)]
    told = [{"completion": it, "right": case.grade(it, row["answer"]).correct} for row, it in pairs]
    return apart([row | it for (row, _), it in zip(pairs, told, strict=True)])


def apart(rows: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Learn the form from the right completions, and take all apart by it."""
    texts = [completion_text(row["completion"]) for row in rows]
    golds = [Example(row, True, "").answer for row in rows]
    right = [pair for *pair, row in zip(texts, golds, rows, strict=True) if row["right"]]
    if not right:
        raise CasebookError("no example is right: at least one right completion is needed")
    tags, keys = re.findall(_CLOSED, right[0][0]), re.findall(r'"(\w+)"\s*:', right[0][0])
    places = {"whole": r"\A(.*)\Z", "box": rf"\\boxed\{{({_BRACES})\}}"}
    places |= {tag: rf"<{tag}>((?:(?!</?{tag}>).)*)</{tag}>" for tag in reversed(tags)}
    places |= {"####": r"####([^\n]*)"} | {f'"{k}"': rf'"{k}"\s*:\s*"?([^"\n,}}]*)' for k in keys}
    best, most, at = "whole", -1, [0] * len(right)  # where the last of all marks stands
    for place in [*places, "text"]:
        found = [_last(places.get(place, ""), *pair) for pair in right]
        held = sum(same(hit[1], it) for hit, (_, it) in zip(found, right, strict=True) if hit)
        better = held > most or (best == "whole" and held == most)
        spans = [hit.span() if hit and place != "whole" else (0, 0) for hit in found]
        if place == "text":  # in plain text the answer stands behind what marks the form, or in it
            better = most <= 0 and all(end > a for a, (_, end) in zip(at, spans, strict=True))
        at = [max(a, start) for a, (start, _) in zip(at, spans, strict=True)]
        if all(found) and better:
            best, most = place, held
    pattern = places.get(best, "")
    return [_taken(*it, best, pattern) for it in zip(texts, golds, rows, strict=True)]


def _last(pattern: str, text: str, gold: str) -> re.Match | None:
    """The last match, by default of the answer itself."""
    pattern = pattern or rf"(?<!\w)({re.escape(gold)})(?!\w)"
    return next(reversed([*re.finditer(pattern, text, re.DOTALL | re.IGNORECASE)]), None)


def _taken(text: str, gold: str, row: Mapping[str, Any], place: str, pattern: str) -> Example:
    columns = {key: value for key, value in row.items() if key not in ("completion", "right")}
    hit = _last(pattern, text, gold) or _last(r"\A(.*)\Z", text, "")
    inner, start = hit[1], hit.start(1)
    start += len(inner) - len(inner.lstrip())
    end, sign = start + len(inner.strip()), text[: hit.start()].rstrip(" $\\[(")
    head, opened, cut, tagged = text[:start], 0, len(sign), False
    if block := re.search(_CLOSED, sign):  # of reasoning; the prompt may have opened it
        before, opener, _ = sign[: block.start()].partition(f"<{block[1]}>")
        opened, cut = len(before + opener) if opener else 0, block.start()
        tagged = pattern.startswith("<")
    elif place == "text":  # the sentence that states the answer belongs to the form
        cut = max([0, head.rfind("\n") + 1, *(m.end() for m in re.finditer(r"[.!?]\s+", head))])
    thinks = tagged or (sign.strip() and place[0] != '"' and head[opened:cut].strip() != "")
    thought = head[opened:cut] if thinks else None
    told = (head[:opened], thought, head[opened if thought is None else cut :], text[end:])
    example = Example(columns, bool(row["right"]), text[start:end], *told)
    return example if isinstance(row["completion"], str) else example.as_chat()
