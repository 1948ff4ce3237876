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
from casebook.redteam.probes import KINDS, TEXTS, Probe, probes, survivals
from casebook.redteam.subject import Reply, Subject

SECONDS = 25.0  # after which what is left is not tried
ROWS = 8  # right examples that are attacked, of different answers where there are
SLOW = 0.5  # seconds for a dozen calls, above which two examples have to do
HANGS = 1  # calls without an end, after which nothing more is thrown that may have none
Row = Mapping[str, Any]


def redteam(
    target: str, examples: str | Path | None = None, kind: str = "answer", **settings: Any
) -> dict[str, Any]:
    """Attack a reward, and report where it pays what it should not, or fails.

    `target` and `settings` are those of `Subject`; `examples` a file of JSON lines (a case has its
    own); `kind` is `form` for a reward that is for form alone, and may pay a wrong answer. Returns
    `target`, `kind`, `calls`, `seconds`, `complete` (was there time for all?), and `findings`, one
    for each kind of fault, with its shortest completion: `kind`, `attacks` (those that showed it),
    `completion`, `expected`, `got`, `meaning`, and `test`, a pytest case that fails until the fault
    is mended. What cannot be called, and examples that cannot be read, are a `CasebookError`.
    """
    check_name("kind of reward", kind, KINDS)
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
        self.hangs = self.echoes = 0
        self._measure()

    def report(self) -> dict[str, Any]:
        if set(self.found) == {"raises"} and not self.low:
            why = f"it {self.found['raises']['got']}; have the examples all columns that it needs?"
            raise CasebookError(f"{self.subject.target} cannot be called: {why}")
        rights, start = list(self.low) or [it for it in self.examples if it.right], time.monotonic()
        if "nondeterministic" not in self.found:
            self._batches([it.asking(it.text) for it in (*self.examples[:ROWS], self.examples[0])])
        tried = rights[: ROWS if time.monotonic() - start < SLOW else 2]
        first = min(rights, key=lambda it: len(it.text))
        plan = [(it, probes(it, self.examples, self.kind)) for it in tried]
        for example, told in [*plan[:1], (first, survivals(first)), *plan[1:]]:
            for probe in told:
                if self.hangs < HANGS or probe.rule != "survive":
                    self._try(probe, example)
        if self.echoes == 1 < len(tried):  # of a prompt that happens to name its answer
            del self.found["prompt_echo_paid"]
        row = first.asking(first.text)
        if self._one(row) <= self.low.get(first, -math.inf):  # then no payment says anything
            self.found = {k: it for k, it in self.found.items() if k[-5:] not in ("_paid", "fused")}
            self._add("nondeterministic", "at the end", "pay as at the start", "nothing", [row] * 2)
        told = {"target": self.subject.target, "kind": self.kind, "calls": self.subject.calls}
        told |= {"seconds": round(time.monotonic() - self.start, 2), "complete": self.complete}
        return told | {"findings": list(self.found.values())}

    def _measure(self) -> None:
        silent, seen = [], set()
        rights = [it for it in self.examples if it.right]
        rights.sort(key=lambda it: it.answer in seen or bool(seen.add(it.answer)))
        for example in rights[: 3 * ROWS]:
            row, empty = example.asking(example.text), self._one(example.asking(""))
            replies = [self._pay(row) for _ in range(4)]
            if replies[0].failed:
                kind, why = replies[0].broken
                self._add(kind, "a right example", "a number", why, [row])
                continue
            got = [reply.one for reply in replies]
            if len(set(got)) > 1:  # then no payment says anything
                self._add("nondeterministic", "once more", "the same pay", str(got), [row] * 2)
                continue
            near = [it for it in self.examples if it.row["prompt"] == row["prompt"]]
            wrong = [it.asking(it.text) for it in near if not it.right and self.kind == "answer"]
            meant, below = got[0], max(map(self._one, wrong), default=empty)
            line = re.sub(r"\S.*\S|\S", "one step", example.thought or "", flags=re.DOTALL)
            flat = {k: v.replace("\n", "") for k, v in vars(example).items() if isinstance(v, str)}
            short = [replace(example, thought=line), replace(example, **flat)]
            short = [it for it in short if example.thought]
            if meant > below or meant > empty:  # a wrong one that is paid is found by the probes
                self.low[example] = below if meant > below else empty
            elif short := [it for it in short if self._one(it.asking(it.text)) > below]:
                self.low[short[0]] = below
                rows, more = [row, short[0].asking(short[0].text)], f"more than {below:g}"
                self._add("multiline_refused", "a right example", more, meant, rows, "right")
            else:
                silent.append(([row, example.asking("")], meant))
        for rows, meant in silent[:1]:
            kind = "right_answer_refused" if self.low else "constant"
            self._add(kind, "a right example", "more than for none", meant, rows, "more")

    def _batches(self, rows: Sequence[Row]) -> None:
        """One call of many rows against many calls of one, and against another order."""
        alone = {id(row): self._pay(row) for row in rows}
        if any(reply.failed for reply in alone.values()):
            return
        for name, order in (("batch", rows), ("order", rows[::-1]), ("batch", rows[:2] * 2)):
            reply, expected = self._pay(*order), [alone[id(row)].one for row in order]
            pairs = [*zip(reply.paid, expected, strict=False)]
            alike = all(a == b or math.isclose(a, b, abs_tol=1e-9) for a, b in pairs)
            if reply.failed:
                self._add(reply.broken[0], "a batch", "a number each", reply.broken[1], order)
            elif not alike and "batch_dependent" not in self.found:
                self._add(f"{name}_dependent", "a batch", str(expected), str([*reply.paid]), order)

    def _try(self, probe: Probe, example: Example) -> None:
        self.complete = self.complete and time.monotonic() < self.start + SECONDS
        if not self.complete:
            return
        replies = [self._pay(row) for row in probe.rows]
        for row, reply in zip(probe.rows, replies, strict=True):
            if reply.failed and not probe.lenient:
                kind, (row, why) = reply.broken[0], self._shrunk(row, *reply.broken)
                self._add(kind, probe.name, "a number, in time", why, [row])
                self.hangs += kind in ("never_ends", "memory")
        blind = example not in self.low and probe.kind != "prompt_leak"
        blind = blind or "nondeterministic" in self.found or probe.rule == "survive"
        if blind or any(reply.failed for reply in replies):
            return
        right = example.asking(example.text)
        got = (max if probe.rule == "right" else min)(reply.one for reply in replies)
        meant = self._one(probe.control or right)
        if probe.control and probe.rule != "no more" and meant < self._one(right):
            return  # the reward cannot read this row at all, so it says nothing on its like
        slack = 1e-9 * max(1.0, abs(meant))
        broken = {
            "less": got >= meant - slack and f"less than {meant:g}, which the right one earns",
            "right": 2 * got < self.low.get(example, 0) + meant and f"about {meant:g}",
            "no more": got > meant + slack and f"no more than {meant:g}",
        }[probe.rule]
        if broken:
            self.echoes += probe.kind == "prompt_echo_paid"
            rows = [*probe.rows, probe.control or right]
            self._add(probe.kind, probe.name, broken, got, rows, probe.rule)

    def _shrunk(self, row: Row, kind: str, why: str) -> tuple[Row, str]:
        """The row with a completion from which parts were left out while it failed alike."""
        text = row["completion"]
        sizes = [len(text) >> n or 1 for n in (1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 99)]
        for size in sizes if kind in ("raises", "runs_code") and kind not in self.found else ():
            for at in range(0, min(len(text), 8 * size), size):
                shorter = {**row, "completion": text[:at] + text[at + size :]}
                found = self._pay(shorter).broken or ("", "")
                if found[0] == kind:
                    text, why = shorter["completion"], found[1]
        return {**row, "completion": text}, why

    def _pay(self, *rows: Row) -> Reply:
        reply = self.subject.pay(rows)
        if reply.broken and not reply.failed:  # it paid, and did something else as well
            self._add(reply.broken[0], "any call", "no change", reply.broken[1], rows)
        return reply

    def _one(self, row: Row) -> float:
        return self._pay(row).one

    def _add(
        self, kind: str, name: str, expected: str, got: Any, rows: Any, rule: str = ""
    ) -> None:
        """A finding: the first of its kind, or a shorter completion of one that is there."""
        text, told = rows[0]["completion"], {"kind": kind, "attacks": []}
        known = self.found.setdefault(kind, told)
        known["attacks"] += [name] * (name not in known["attacks"])
        if "test" not in known or len(str(text)) < len(str(known["completion"])):
            got = got if not isinstance(got, float) or math.isfinite(got) else "nothing"
            known |= {"completion": text, "expected": expected, "got": got}
            known["meaning"] = TEXTS["meaning"][kind]
            known["test"] = _test(self.subject, kind, rows, rule)


def lines(report: Mapping[str, Any]) -> list[str]:
    """The report in words."""
    told = []
    for it in report["findings"]:
        text = repr(it["completion"])
        text = text if len(text) < 200 else f"{text[:120]} … ({len(text):,} characters)"
        told += [f"{it['kind']}: {it['meaning']}", f"    completion: {text}"]
        told += [f"    expected: {it['expected']}; got: {it['got']}", ""]
    said = f"Kinds of fault: {len(report['findings'])}" if told else "No fault found"
    told.append(f"{said}, in {report['calls']:,} calls and {report['seconds']:g} s.")
    return told if report["complete"] else [*told, "The time was up before all was tried."]


def _test(subject: Subject, kind: str, rows: Sequence[Row], rule: str) -> str:
    """A pytest case that fails until the fault is mended."""
    file, dot, name = subject.target.partition(".py")
    target = f"{Path(file).resolve()}.py{name}" if dot else file
    given = f", **{subject.settings!r}" if subject.settings else ""
    check = TEXTS["rules"].get(rule, f"paid(REWARD, rows, together=True{given}) == [*got, meant]")
    told = "".join(f"        {dict(row)!r},\n" for row in rows)
    head = f"from casebook.redteam import paid\n\nREWARD = {target!r}\n\n\ndef test_{kind}():\n"
    asked = f"    *got, meant = paid(REWARD, rows{given})\n    assert {check}\n"
    return f"{head}    rows = [\n{told}    ]\n{asked}"
