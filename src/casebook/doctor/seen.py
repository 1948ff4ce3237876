"""What several findings ask of a log: how its columns go, and what was right at either end.

Logs are noisy, and estimates of a KL have spikes of many orders of magnitude. So everything is read
from medians, or from means over a sixth of the run, and a change counts beside its standard error.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from casebook.doctor.logs import Log

FEWEST, TREND = 5, 20  # steps before anything is said of a log, and of its trend
ENOUGH = 100  # completions: what was never seen in 100 is rarer than 3 in 100 (rule of three)
Z = 2.5  # standard errors of a difference of two windows of one run
RIGHT = (r"lenient_accuracy", r"sampled_accuracy", r".*(accura|correct|exact|val-core).*")
WORDS = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text(encoding="utf-8"))
FORM, ANSWER = (re.compile("|".join(WORDS["parts"][kind])) for kind in ("form", "answer"))


class Change:
    """The course of a series of at least one value: its first, last and best sixth."""

    def __init__(self, values: np.ndarray):
        few = len(values) < TREND  # rows that are means of several steps: each is a window
        size = min(max(1 if few else FEWEST, len(values) // 6), len(values))
        windows = [values[i : i + size].mean() for i in range(0, len(values) - size + 1, size)]
        windows[-1] = values[-size:].mean() if len(windows) > 1 else windows[-1]
        self.few, self.first, self.last, self.high = few, windows[0], windows[-1], max(windows)
        self.when = int(np.argmax(windows)) / max(len(windows) - 1, 1)  # the best: share of the run
        self.gain, self.spread, self.deviation = (
            self.last - self.first,
            np.ptp(values),
            values.std(),
        )
        noise = np.diff(values).std() / 2**0.5 if len(values) > 2 else 0.0
        noise *= 1 + 4 / len(values) if few else 1  # known from few differences only
        self.error = noise * (2 / size) ** 0.5 + 1e-12  # of a difference of two windows
        self.tells = abs(self.gain) > Z * self.error  # more than noise
        self.rose = self.gain > 0 and self.tells
        lost = self.high - self.last  # 0 where it may be chance
        self.fell = lost if lost > (1 if few else 3) * self.error else 0.0


class Seen:
    """A log as the findings read it.

    Attributes:
        parts: of the reward, step by step; none where the whole is the only one.
        answers: names of those that look at the answer.
        reward, answer, rest: the courses of the whole, of the answers' part, and of the others.
        texts: the oldest and the newest completions, so many steps that they hold `ENOUGH`.
        held_out: the evaluation that says how many answers were right, and its values.
        right, formed: the shares of right and of well-formed completions at first and at the end.
        moved: by how much right answers went up or down; 0 where that may be chance.
        groups: of the newest recorded ones: `spread` of the reward, share `right`, `size`.
        at_top: whether the reward has risen and stays near the largest value that was logged.
        learned: whether it has clearly risen, and no right answers were lost.
        answers_fell: whether the part for answers fell, and the whole did not rise.
    """

    def __init__(self, log: Log):
        self.log, steps = log, log.steps
        gaps = np.diff(self["step"], prepend=0)
        self.span = max(1.0, float(np.median(gaps))) if len(gaps) else 1.0  # steps of a row
        found = {c[5:]: self[c] for c in steps if c.startswith("part/")}
        found = {name: values for name, values in found.items() if self.has(values, FEWEST)}
        alike = len(found) > 1 and len({*map(len, found.values())}) == 1
        self.parts = found if alike else {}
        rest = [name for name in self.parts if not FORM.search(name.lower())]
        named = [name for name in rest if ANSWER.search(name.lower())] or rest
        self.answers = named if len(named) < len(self.parts) else []
        others = [name for name in self.parts if name not in self.answers]
        self.reward = self.course(self["reward"])
        self.answer, self.rest = (
            self.course(sum(self.parts[name] for name in names)) if self.answers else None
            for names in (self.answers, others)
        )
        self._read_answers()
        ends, reward = self.reward, self["reward"]
        self.at_top = self.learned = self.answers_fell = False
        if ends:
            near = reward.max() - ends.last <= 0.1 * ends.spread and ends.last > 0
            self.at_top = bool(near and ends.gain > 0.3 * ends.spread)
            usual = 0.3 * np.ptp(np.quantile(reward, [0.05, 0.95]))
            clear = ends.gain > max((Z if ends.few else 4) * ends.error, usual)
            self.learned = bool(clear and self.moved >= 0)
        if ends and (own := self.answer) and not ends.rose:
            self.answers_fell = -own.gain > 0.25 * abs(own.first) and (own.tells or self.moved < 0)

    def _read_answers(self) -> None:
        texts, evaluations, settings = self.log.completions, self.log.evaluations, self.log.settings
        self.texts = texts.head(ENOUGH), texts.tail(ENOUGH)
        if "step" in texts:
            counts = texts["step"].value_counts().sort_index()
            ends = [c.index[: int((c.cumsum() < ENOUGH).sum()) + 1] for c in (counts, counts[::-1])]
            self.texts = tuple(texts[texts["step"].isin(steps)] for steps in ends)
        held = {name: column.dropna().to_numpy(float) for name, column in evaluations.items()}
        held = {n: v for n, v in held.items() if len(v) > 2 and v.min() >= 0 and v.max() <= 1}
        named = [(n, v) for pattern in RIGHT for n, v in held.items() if re.fullmatch(pattern, n)]
        self.held_out = named[0] if named else ("", np.array([]))
        self.right = self._ends("correct", self.held_out[1])
        self.formed = self._ends("well_formed", held.get("well_formed", []))
        moved = self.right[1] - self.right[0] if self.right else 0.0
        asked = settings.get("evaluate_rows")
        rows = max(asked if isinstance(asked, int) else 0, ENOUGH)
        self.moved = moved if abs(moved) > max(0.1, Z * (0.4 / rows) ** 0.5) else 0.0
        self.groups = pd.DataFrame(columns=["spread", "right", "size"], dtype=float)
        if (newest := self.newest("step", "prompt", "reward", "correct")) is not None:
            keys = [newest["step"], newest["prompt"].map(str)]  # a chat's prompt is a list
            paid = newest["reward"].groupby(keys)
            table = {"spread": paid.max() - paid.min(), "size": paid.size()}
            right = newest["correct"].groupby(keys).mean()
            self.groups = pd.DataFrame({**table, "right": right})

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of a column, oldest first; empty where there is none."""
        steps = self.log.steps
        return steps[name].dropna().to_numpy(float) if name in steps else np.array([])

    def has(self, values: np.ndarray, steps: int) -> bool:
        """Whether values cover so many steps."""
        return len(values) * self.span >= steps

    def course(self, values: np.ndarray) -> Change | None:
        """How a column goes, where there are enough steps to tell."""
        return Change(values) if self.has(values, TREND) and len(values) > 2 else None

    def newest(self, *columns: str) -> pd.DataFrame | None:
        """The newest completions, where there are enough of them, with these columns."""
        texts = self.texts[1]
        return texts if len(texts) >= ENOUGH and {*columns} <= {*texts} else None

    def _ends(self, column: str, evaluated: np.ndarray) -> tuple[float, float] | None:
        if self.newest(column) is not None:
            return tuple(float(texts[column].mean()) for texts in self.texts)
        return (evaluated[0], evaluated[-2:].mean()) if len(evaluated) > 2 else None
