"""Try all probes on a reward, and say what was found."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from casebook import folder
from casebook.case import CasebookError, check_name
from casebook.redteam.form import Example, case_examples, read_examples
from casebook.redteam.probes import TEXTS, Probe, fields, probes, survivals
from casebook.redteam.subject import Reply, Subject

SECONDS = 60.0  # after which what is left is not tried
ROWS = 4  # right examples that are attacked, of different answers where there are
Row = Mapping[str, Any]


def redteam(
    target: str, examples: str | Path | None = None, kind: str = "answer", **settings: Any
) -> dict[str, Any]:
    """Attack a reward, and report where it pays what it should not, or fails.

    `target` and `settings` are those of `Subject`; `examples` a file of JSON lines (a case has its
    own); `kind` is `form` for a reward that is for form alone, and may pay a wrong answer. Returns
    `target`, `kind`, `calls`, `seconds`, `complete` (was there time for all?), `habits` (what it
    does where fair readers differ), and `findings`, one for each kind of fault, with its shortest
    completion: `kind`, `attacks` (those that showed it), `completion`, `answer` of its row,
    `expected`, `got`, `meaning`, and `test`, a pytest case that fails until the fault is mended.
    What cannot be called, and examples that cannot be read, are a `CasebookError`.
    """
    check_name("kind of reward", kind, ("answer", "form"))
    place = target.rpartition(":")[0]
    if not examples and not folder.place(place):
        raise CasebookError("name a file of examples: --examples FILE.jsonl")
    told = read_examples(Path(examples)) if examples else case_examples(place)
    with closing(Subject(target, settings)) as subject:
        attack = _Attack(subject, told, kind)
        if not attack.low:  # a reward for messages may raise on texts, or pay nothing for them
            other = _Attack(subject, [it.as_chat() for it in told], kind)
            attack = other if other.low or "raises" not in other.found else attack
        return attack.report()


def paid(target: str, rows: Sequence[Row], together: bool = False, **settings: Any) -> list[float]:
    """What a reward pays rows, each alone or together; no number in time is an `AssertionError`."""
    with closing(Subject(target, settings)) as subject:
        replies = [subject.pay(call) for call in ([rows] if together else [[it] for it in rows])]
    for reply in replies:
        assert reply.broken is None, reply.broken[1]
    return [value for reply in replies for value in reply.paid]


class _Attack:
    """One reward under attack. `low` has the right examples that earn something, with what they
    have to exceed: what a wrong one earns or, where that is as much, an empty completion."""

    def __init__(self, subject: Subject, examples: Sequence[Example], kind: str):
        self.subject, self.examples, self.kind = subject, examples, kind
        self.start, self.complete = time.monotonic(), True
        self.found: dict[str, dict[str, Any]] = {}  # by kind
        self.low: dict[Example, float] = {}
        self.hangs = False  # after a call without an end nothing is tried that may have none
        self._measure()

    def report(self) -> dict[str, Any]:
        if set(self.found) == {"raises"} and not self.low:
            why = (it := self.found["raises"]["got"]) + "; a missing column?" * ("argument" in it)
            raise CasebookError(f"{self.subject.target} cannot be called: it {why}")
        rights = list(self.low) or [it for it in self.examples if it.right]
        if "nondeterministic" not in self.found:
            self._batches([it.asking(it.text) for it in (*self.examples[:8], self.examples[0])])
        first = min(rights, key=lambda it: len(it.text))
        if "batch_dependent" in self.found:  # then what it pays one alone says little
            self.found.pop("constant", None)
            texts, more = fields(first, self.examples), "more than the wrong one beside it"
            pair = [first.asking(texts[it]) for it in ("thinks_steps", "lie")]
            long, lie = self._pay(*pair).paid or (0, 0)
            if long < lie and self.kind == "answer":
                self._add("long_reasoning_refused", "in a batch", more, long, pair, "beside")
        plan = [(it, probes(it, self.examples, self.kind)) for it in rights[:ROWS]]
        for example, told in [*plan[:1], (first, survivals(first)), *plan[1:]]:
            for probe in told:
                self._try(probe, example)
        told = {"target": self.subject.target, "kind": self.kind, "calls": self.subject.calls}
        told |= {"seconds": round(time.monotonic() - self.start, 2), "complete": self.complete}
        return told | {"habits": self._habits(first), "findings": list(self.found.values())}

    def _habits(self, example: Example) -> dict[str, str]:
        """What it does with the completions on which fair readers differ."""
        low, meant = (self._one(example.asking(text)) for text in ("", example.text))
        low, words = self.low.get(example, low), ("refused", "paid in part", "paid")
        texts, told = fields(example, self.examples), TEXTS["habits"].items() if low < meant else ()
        asked = {name: text.format(**texts) for name, text in told}
        got = {k: self._one(example.asking(it)) for k, it in asked.items() if it != example.text}
        return {name: words[(pay > low) + (pay >= meant - 1e-9)] for name, pay in got.items()}

    def _measure(self) -> None:
        silent, seen = [], set()
        rights = [it for it in self.examples if it.right]
        rights.sort(key=lambda it: it.answer in seen or bool(seen.add(it.answer)))
        for example in rights[: 3 * ROWS]:
            row, none = example.asking(example.text), example.asking("")
            replies, empty = [self._pay(row) for _ in range(4)], self._one(none)
            got, broken = [reply.one for reply in replies], replies[0].broken
            if not replies[0].paid:
                self._add(broken[0], "a right example", "a number", broken[1], [row])
                continue
            if len(set(got)) > 1:  # then no payment says anything
                self._add("nondeterministic", "once more", "the same pay", str(got), [row] * 2)
                continue
            near = [it for it in self.examples if it.row["prompt"] == row["prompt"]]
            wrong = [it.asking(it.text) for it in near if not it.right and self.kind == "answer"]
            meant, below = got[0], max(map(self._one, wrong), default=empty)
            line = re.sub(r"\S.*\S|\S", "one step", example.thought or "", flags=re.DOTALL)
            flat = {k: v.replace("\n", "") for k, v in vars(example).items() if isinstance(v, str)}
            short = [replace(example, thought=line), replace(example, **flat)][: 2 * bool(line)]
            if meant > below or meant > empty:  # a wrong one that is paid is found by the probes
                self.low[example] = below if meant > below else empty
            elif short := [it for it in short if self._one(it.asking(it.text)) > below]:
                self.low[short[0]] = below
                rows, more = [row, short[0].asking(short[0].text)], f"more than {below:g}"
                half = (below + self._one(rows[1])) / 2
                self._add("multiline_refused", "a right example", more, meant, rows, "right", half)
            else:
                silent.append((row, none, meant, empty))
        other = next((it.asking(it.text) for it in self.low), None)
        for row, none, meant, empty in silent:
            if other and empty >= self._one(other):
                rows, more = [none, other], "less than a right one elsewhere"
                self._add("unreadable_gold_paid", "nothing", more, empty, rows, "less")
            else:
                kind, rows = "right_answer_refused" if self.low else "constant", [row, none]
                self._add(kind, "a right example", "more than for none", meant, rows, "more")

    def _batches(self, rows: Sequence[Row]) -> None:
        """One call of many rows against many calls of one, and against another order."""
        alone = {id(row): self._pay(row) for row in rows}
        if any(not reply.paid for reply in alone.values()):
            return
        for name, order in (("batch", rows), ("order", rows[::-1]), ("batch", rows[:2] * 2)):
            reply, expected = self._pay(*order), [alone[id(row)].one for row in order]
            pairs = zip(reply.paid, expected, strict=False)
            alike = all(a == b or math.isclose(a, b, abs_tol=1e-9) for a, b in pairs)
            if not reply.paid:
                self._add(reply.broken[0], "a batch", "a number each", reply.broken[1], order)
            elif not alike and "batch_dependent" not in self.found:
                self._add(f"{name}_dependent", "a batch", str(expected), str([*reply.paid]), order)

    def _try(self, probe: Probe, example: Example) -> None:
        self.complete = self.complete and time.monotonic() < self.start + SECONDS
        if not self.complete or (self.hangs and probe.rule == "survive"):
            return
        replies = [self._pay(row) for row in probe.rows]
        for row, reply in zip(probe.rows, replies, strict=True):
            if not reply.paid and not probe.lenient:
                self._add(reply.broken[0], probe.name, "a number, in time", reply.broken[1], [row])
                self.hangs = self.hangs or reply.broken[0] in ("never_ends", "memory")
        blind = example not in self.low and probe.kind != "prompt_leak"
        blind = blind or "nondeterministic" in self.found or probe.rule == "survive"
        if blind or any(not reply.paid for reply in replies):
            return
        right = example.asking(example.text)
        got = (max if probe.rule == "right" else min)(reply.one for reply in replies)
        meant = self._one(probe.control or right)
        if probe.control and probe.rule != "no more" and meant < self._one(right):
            return  # the reward cannot read this row at all, so it says nothing on its like
        slack, half = 1e-9 * max(1.0, abs(meant)), (self.low.get(example, 0) + meant) / 2
        broken = {
            "less": got >= meant - slack and f"less than {meant:g}, which the right one earns",
            "right": got < half and f"about {meant:g}",
            "little": got > half and f"less than half of {meant:g}",
            "no more": got > meant + slack and f"no more than {meant:g}",
        }[probe.rule]
        if broken:
            rows = [*probe.rows, probe.control or right]
            self._add(probe.kind, probe.name, broken, got, rows, probe.rule, half)

    def _pay(self, *rows: Row) -> Reply:
        reply = self.subject.pay(rows)
        if reply.broken and reply.paid:  # it paid, and did something else as well
            self._add(reply.broken[0], "any call", "no change", reply.broken[1], rows)
        return reply

    def _one(self, row: Row) -> float:
        return self._pay(row).one

    def _add(self, kind, name, expected: str, got: Any, rows: Any, rule="", half=0.0) -> None:
        """A finding: the first of its kind, or a shorter completion of one that is there."""
        text = rows[0]["completion"]
        known = self.found.setdefault(kind, {"kind": kind, "attacks": []})
        known["attacks"] += [name] * (name not in known["attacks"])
        if "test" not in known or len(str(text)) < len(str(known["completion"])):
            got = got if not isinstance(got, float) or math.isfinite(got) else "nothing"
            known |= {"completion": text, "answer": str(rows[0]["answer"]), "got": got}
            known |= {"expected": expected, "meaning": TEXTS["meaning"][kind]}
            known["test"] = _test(self.subject, kind, rows, rule, half)


def lines(report: Mapping[str, Any]) -> list[str]:
    """The report in words."""
    told = []
    for it in report["findings"]:
        text = repr(it["completion"])
        text = text if len(text) < 200 else f"{text[:120]} … ({len(text):,} characters)"
        pay = f"    answer: {it['answer']!r:.80}; expected: {it['expected']}; got: {it['got']}"
        told += [f"{it['kind']}: {it['meaning']}", f"    completion: {text}", pay, ""]
    for pay in ("paid", "paid in part", "refused"):
        if names := [name for name, got in report["habits"].items() if got == pay]:
            told.append(f"No fault, but to be known, {pay}: {', '.join(names)}")
    said = f"Kinds of fault: {len(report['findings'])}" if report["findings"] else "No fault found"
    told.append(f"{said}, in {report['calls']:,} calls and {report['seconds']:g} s.")
    return told if report["complete"] else [*told, "The time was up before all was tried."]


def _test(subject: Subject, kind: str, rows: Sequence[Row], rule: str, half: float) -> str:
    """A pytest case that fails until the fault is mended."""
    file, dot, name = subject.target.partition(".py")
    target = f"{Path(file).resolve()}.py{name}" if dot else file
    given = f", **{subject.settings!r}" if subject.settings else ""
    told = "".join(f"        {dict(row)!r},\n" for row in rows)
    check = TEXTS["rules"].get(rule, TEXTS["rules"]["batch"]).format(given, half=half)
    return TEXTS["test"].format(kind=kind, target=target, rows=told, given=given, check=check)
