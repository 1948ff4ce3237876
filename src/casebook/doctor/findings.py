"""What can be wrong with a GRPO training: one small method for each finding.

    Examined(log).name(**bounds) -> tuple[sure, evidence] | None

A run that teaches nothing prints the same tidy lines as one that does: the loss reads 0 in both.
Each method looks at one thing that tells them apart, and returns how sure it is (0 to 1) and the
figures; `findings.yaml` has the words, the columns that are needed, and the bounds. Logs are noisy,
so they are read by medians or means over a sixth of the run, and changes by their standard errors.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from casebook.doctor.logs import PARTS, SPREAD, Log, numbers
from casebook.rewards import repetition_penalty

FEWEST, TREND = 5, 20  # steps before anything is said of a log, and of its trend
ENOUGH = 100  # completions: what was never seen in 100 is rarer than 3 in 100 (rule of three)
Z = 2.5  # standard errors of a difference of two windows of one run
FORM, ANSWER = (re.compile("|".join(PARTS[kind])) for kind in ("form", "answer"))
RIGHT = ("lenient_accuracy", "sampled_accuracy", r".*([/_]acc\b|accura|correct|exact|val-core).*")
PART_PAID = rf"eval[/_](?:\w+_)?rewards/(?!.*({FORM.pattern}))"  # how TRL names an evaluation
PAID = (rf"{PART_PAID}.*({ANSWER.pattern}).*", r"eval[/_](\w+_)?reward", rf"{PART_PAID}.*")
FINDINGS = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text("utf-8"))
Found = tuple[float, str, *tuple[str, ...]] | None  # sure, evidence, key of other words


@dataclass(frozen=True)
class Finding:
    """What was found wrong, or remarked on."""

    name: str  # of `FINDINGS`
    step: int  # the newest step it is about
    sure: float  # 0 to 1
    message: str  # what is wrong, in one sentence
    evidence: str  # the figures, and up to three completions
    advice: str  # the line to change, and what would confirm it

    def __str__(self) -> str:
        return f"step {self.step}, {self.name}: {self.message} {self.evidence} {self.advice}"


def shown(texts: Iterable[str]) -> str:
    return "; ".join(repr(t if len(t) <= 90 else f"{t[:87]}...") for t in [*map(str, texts)][:3])


def answered(texts: pd.DataFrame) -> float:
    """The share that had come to an answer and went on: a number at a text's end may be any."""
    read = texts.loc[texts["extracted"].notna(), ["completion", "extracted"]]
    read = read.map(lambda one: str(one).replace(",", "")).to_numpy()  # 1,234 is read as 1234
    goes_on = [re.search(r"[^\W\d_]{2}|[}>]", text.rpartition(own)[2]) for text, own in read]
    return sum(map(bool, goes_on)) / max(len(texts), 1)


def surest(said: Mapping[str, float]) -> Found:
    """Several pieces of evidence for one finding."""
    return (max(said.values()), ". ".join(said) + ".") if said else None


class Change:
    """The course of a series of at least one value: its first, last and best sixth."""

    def __init__(self, values: np.ndarray):
        few = len(values) < TREND  # rows that are means of several steps: each is a window
        size = min(max(1 if few else FEWEST, len(values) // 6), len(values))
        windows = [values[i : i + size].mean() for i in range(0, len(values) - size + 1, size)]
        windows[-1] = values[-size:].mean() if len(windows) > 1 else windows[-1]
        self.few, self.first, self.last, self.high = few, windows[0], windows[-1], max(windows)
        self.when = int(np.argmax(windows)) / max(len(windows) - 1, 1)  # the best: share of the run
        self.gain, self.lost = self.last - self.first, self.high - self.last
        self.spread, self.deviation = np.ptp(values), values.std()
        noise = np.diff(values).std() / 2**0.5 if len(values) > 2 else 0.0
        noise *= 1 + 4 / len(values) if few else 1  # known from few differences only
        self.error = noise * (2 / size) ** 0.5 + 1e-12  # of a difference of two windows
        self.tells = abs(self.gain) > Z * self.error  # more than noise
        self.rose = self.gain > 0 and self.tells
        self.sank = -self.gain > max(Z * self.error, 0.1 * abs(self.first))


class Seen:
    """A log as the findings read it.

    `parts` of the reward, none where the whole is the only one; `answers`: those that look at the
    answer; `reward`, `answer`, `rest`: the courses of the whole, these, others. `right`, `formed`:
    shares of right and well-formed completions at first and at the end, recorded or held out;
    `moved`: by how much right ones moved, 0 where that may be chance. `judge` names an evaluation,
    of right answers or else of a reward, `judged` is its course; `improved`: a held-out share, also
    of well-formed ones, clearly rose. `at_top`: the reward rose and stays near its largest value;
    `learned`: it rose, nothing held out fell; `fell`: it fell; `answers_fell`: they fell alone.
    """

    def __init__(self, log: Log):
        self.log, steps = log, log.steps
        gaps = np.diff(self["step"], prepend=0)
        self.span = max(1.0, float(np.median(gaps))) if len(gaps) else 1.0  # steps of a row
        found = {c[5:]: self[c] for c in steps if c.startswith("part/")}
        found = {name: values for name, values in found.items() if self.has(values, FEWEST)}
        self.parts = found if len(found) > 1 and len({*map(len, found.values())}) == 1 else {}
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
        self.at_top = self.learned = self.answers_fell = self.fell = False
        if ends:
            sure = ends.few and (self.moved < 0 or self.judged.sank)  # answers fell as well
            self.fell = ends.lost > (1 if sure else 3) * ends.error
            near = reward.max() - ends.last <= 0.1 * ends.spread and ends.last > 0
            self.at_top = bool(near and ends.gain > 0.3 * ends.spread)
            usual = 0.3 * np.ptp(np.quantile(reward, [0.05, 0.95]))
            clear = ends.gain > max((Z if ends.few else 4) * ends.error, usual)
            self.learned = bool(clear and self.moved >= 0 and not self.judged.sank)
        if ends and (own := self.answer) and not ends.rose:
            self.answers_fell = -own.gain > 0.25 * abs(own.first) and (own.tells or self.moved < 0)

    def _read_answers(self) -> None:
        texts, evaluations = self.log.completions, self.log.evaluations
        self.texts = texts.head(ENOUGH), texts.tail(ENOUGH)
        if "step" in texts:
            counts = texts["step"].value_counts().sort_index()
            ends = [c.index[: int((c.cumsum() < ENOUGH).sum()) + 1] for c in (counts, counts[::-1])]
            self.texts = tuple(texts[texts["step"].isin(steps)] for steps in ends)
        told = {n: v.dropna().to_numpy(float) for n, v in evaluations.items() if n[-3:] != "std"}
        held = {n: v for n, v in told.items() if len(v) > 2 and v.min() >= 0 and v.max() <= 1}
        named = [(n, v) for like in RIGHT for n, v in held.items() if re.fullmatch(like, n)]
        paid = [(n, v) for like in PAID for n, v in told.items() if re.fullmatch(like, n)]
        self.held_out = (named or [("", np.array([]))])[0]
        judges = [(n, Change(v)) for n, v in named + paid if len(v) >= FEWEST]
        self.judge, self.judged = (judges or [("", Change(np.zeros(1)))])[0]
        shares = [v for _, v in [*named, ("", held.get("well_formed", []))] if len(v) >= FEWEST]
        self.improved = self.judged.rose or any(Change(v).rose for v in shares)
        self.right = self._ends("correct", self.held_out[1])
        self.formed = self._ends("well_formed", held.get("well_formed", []))
        moved = self.right[1] - self.right[0] if self.right else 0.0
        rows = max(self.setting("evaluate_rows") or 0, ENOUGH)
        self.moved = moved if abs(moved) > max(0.1, Z * (0.4 / rows) ** 0.5) else 0.0
        self.groups = pd.DataFrame(columns=["spread", "right", "size"], dtype=float)
        if (newest := self.newest("step", "prompt", "reward", "correct")) is not None:
            keys = [newest["step"], newest["prompt"].map(str)]  # a chat's prompt is a list
            paid, right = newest["reward"].groupby(keys), newest["correct"].groupby(keys).mean()
            self.groups = paid.agg(spread=np.ptp, size="size").assign(right=right)

    def __getitem__(self, name: str) -> np.ndarray:
        """The values of a column, oldest first; empty where there is none."""
        steps = self.log.steps
        return steps[name].dropna().to_numpy(float) if name in steps else np.array([])

    def setting(self, name: str) -> float | None:
        """A number among the settings; YAML reads 1e-3 as a text."""
        return next(iter(numbers(pd.Series([self.log.settings.get(name)])).dropna()), None)

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


class Examined(Seen):
    """A log, asked for each finding of `FINDINGS` by the method of that name."""

    def not_a_number(self) -> Found:
        gradient, spread, said = self["grad_norm"], self["reward_std"], {}
        for name, odd in self.log.odd.items():
            if odd[-3:].all() or odd.mean() > 0.5:  # a single one is a skipped step of float16
                said[f"{name} is NaN or infinite at {odd.sum()} of {len(odd)} steps"] = 0.95
        if len(gradient) < FEWEST or gradient.any() or np.median([0, *spread]) <= SPREAD or said:
            return surest(said)
        return 0.9, f"A group's median deviation is {np.median(spread):.2g}.", "frozen"

    def silent_groups(self, least: float, of_steps: float) -> Found:
        shares, bound, of = self["silent"], least, "of the groups were silent"
        if not len(shares):
            shares, bound = (self["reward_std"] <= SPREAD).astype(float), of_steps
            of = "of the steps had silent groups alone"
        if not self.has(shares, FEWEST):
            return None
        ends, flat = Change(shares), self.groups["right"][self.groups["spread"] <= SPREAD]
        share, size = max(ends.last, shares.mean()), self.groups["size"].max()
        solved = len(flat) > 0 and size > 2 and (flat == 1).mean() >= 0.9  # pairs agree by chance
        if (share < bound and ends.first < least) or (solved and share < 0.75):
            return None
        said = f"At first {ends.first:.0%} {of}, at the end {ends.last:.0%}"
        if len(flat):
            said += f"; of those recorded last {(flat == 1).mean():.0%} were all right, "
            said += f"{(flat == 0).mean():.0%} all wrong"
            p, sizes = self.groups["right"].mean(), np.arange(2, 65)
            enough = sizes[p**sizes + (1 - p) ** sizes <= 1 / 3]
            if len(enough) and enough[0] > size:
                said += f"; groups of {enough[0]} would leave a third, were all prompts alike"
        return (min(share + 0.1, 0.97) if share >= bound else 0.5) - 0.2 * self.at_top, f"{said}."

    def dead_reward(self) -> Found:
        told = (self.log.settings.get(f"reward_{n}") for n in ("funcs", "weights"))
        names, weights = (one if isinstance(one, list) else [one] for one in told)
        unpaid = {name for name, weight in zip(names, weights, strict=False) if weight == 0}
        dead = {}
        for name, values in self.parts.items():
            spread, zero = self[f"part_std/{name}"], float((np.abs(values) <= SPREAD).mean())
            within = spread.max(initial=0.0) <= SPREAD
            if name in unpaid or not self.has(values, 2 * FEWEST):
                continue
            if np.ptp(values) <= SPREAD and within:
                always = f"{name} was {values[0]:.3g} at all {len(values)} logged steps"
                dead[always] = 0.95 if len(spread) or zero == 1 else 0.7
            elif len(spread) and within:
                dead[f"{name} differed between steps and never within one"] = 0.7
            elif zero >= 0.95 and len(values) >= TREND:
                dead[f"{name} was 0 at {zero:.0%} of the steps"] = 0.75
        whole, across = self["reward_std"], self.log.steps.filter(like="part_std/")
        alike = len(whole) >= 2 * FEWEST and np.median(whole) <= 5 * SPREAD and not dead
        if alike and across.shape[1] == 1 and across.iloc[:, 0].median() > 100 * SPREAD:
            dead["The reward differs between prompts and not within a group"] = 0.75
        return surest(dead)

    def saturated_reward(self) -> Found:
        reward, spread, said = self["reward"], self["reward_std"], {}
        if self.at_top and len(reward) > FEWEST:
            late = Change(reward[len(reward) // 2 :])
            calm = not len(spread) or Change(spread).last <= 0.5 * Change(spread).first
            if calm and abs(late.gain) < 0.05 * np.ptp(reward) + Z * late.error:
                said[f"The reward stays at {late.last:.3g} for half of the run"] = 0.5
        for name, values in self.parts.items():
            best, own = values.max(), Change(values)
            high = best > SPREAD and min(np.quantile(values, 0.25) / 0.97, own.first / 0.9) >= best
            if high and len(values) >= TREND and own.spread > SPREAD:
                said[f"{name} is {values.mean():.3g} of {best:.3g} from the start"] = 0.45
        return surest(said)

    def tiny_differences(self, small: float) -> Found:
        spread, scale = self["reward_std"], np.abs(self["reward"]).max(initial=0)
        alive = spread[spread > SPREAD]
        if len(alive) < 2 * FEWEST or np.median(alive) > small * min(1.0, scale):
            return None
        return 0.6, f"The deviation in a group is {np.median(alive):.2g}, the reward {scale:.2g}."

    def no_progress(self) -> Found:
        reward, ends, own = self["reward"], self.reward, self.answer
        if ends is None or self.moved > 0 or self.improved:
            return None
        gain = max(ends.last, *(reward[-len(reward) // n :].mean() for n in (2, 3))) - ends.first
        unit = max(np.median([0.0, *self["reward_std"]]), reward.std() / 3, SPREAD)
        chance = -Z * ends.error <= gain <= (1 if ends.few else Z) * ends.error
        if (
            (ends.first >= 0.95 * reward.max() > 0 and ends.spread > 0.2 * reward.max())
            or (own and own.rose and own.gain > 0.25 * own.deviation)
            or (gain > 0 and ends.high - ends.first > max(4 * ends.error, 0.5 * unit))
            or (not chance and gain >= 0.25 * unit and gain > 0.035 * np.abs(reward).max())
        ):
            return None
        sure = (0.85 if self.has(reward, 50) else 0.6) if chance else 0.7 if gain < 0 else 0.55
        said = f"Mean reward at first {ends.first:.3g}, at the end {ends.last:.3g}, at best"
        said += f" {ends.high:.3g}; by chance two windows differ by {ends.error:.2g}."
        half = chance and np.abs(np.quantile(reward, [0.05, 0.95]) - 0.5).max() < 0.15
        if half and self["silent"].max(initial=0) <= 0.02 and not (self.judge or self.right):
            return 0.45, said, "filtered"
        end = "same" if abs(ends.gain) <= ends.error else "moved" if gain > 0 or chance else "lower"
        return sure, said, "fell" if self.fell else end

    def form_over_answer(self, form_gain: float, of_gain: float, low: float) -> Found:
        own, form, ends = self.answer, self.rest, self.reward
        if self.right and self.formed and ends and ends.gain > 0:
            (first, last), (a, b) = self.right, self.formed
            if b - a > form_gain and last < 0.5 and last - first < 0.25 * (b - a):
                return 0.85, f"Well formed {a:.0%} to {b:.0%}, right {first:.0%} to {last:.0%}."
        if own is None or form is None or ends is None:
            return None
        whole = Change(sum(self.parts.values()))
        best = max(*np.abs(sum(self.parts[name] for name in self.answers)), 1.0)
        learned = own.last - min(own.first, 0) > low * best
        if not whole.rose or form.gain < 0.5 * whole.gain or learned:
            return None
        said = f"Of a gain of {whole.gain:.2f}, answers ({', '.join(self.answers)}) made "
        said += f"{own.gain:+.2f} and end at {own.last:.2f}; the other parts {form.gain:+.2f}."
        return None if own.gain > min(of_gain * whole.gain, 0.3) else (0.85, said)

    def reward_hacking(self) -> Found:
        ends, own, rest = self.reward, self.answer, self.rest
        if ends is None or self.fell or self.answers_fell:
            return None
        if self.right and (self.moved < 0 or (ends.gain > 0.5 and self.right[1] < 0.05)):
            said = f"Right answers went from {self.right[0]:.0%} to {self.right[1]:.0%}"
            if (newest := self.newest("correct", "reward", "completion")) is not None:
                wrong = newest[newest["correct"] == 0].sort_values("reward")
                said += f"; highest paid without one: {shown(wrong['completion'].tail(3))}"
            return 0.85, f"{said}. The reward went from {ends.first:.2f} to {ends.last:.2f}."
        if (held := self.judged).sank:
            said = f"{self.judge} went from {held.first:.2f} to {held.last:.2f}, the training"
            return 0.6, f"{said} reward from {ends.first:.2f} to {ends.last:.2f}.", "held_out"
        if own is None or rest is None or not self.has(self["reward"], 2 * TREND):
            return None
        lost = own.high - own.last
        worse = lost > max(Z * own.error, 0.25 * abs(own.high)) and own.when < 0.9 and rest.rose
        said = f"Answers fell from {own.high:.2f} to {own.last:.2f}, the rest rose by"
        return (0.55, f"{said} {rest.gain:.2f}.") if worse else None

    def rate_too_high(self, growth: float, with_kl: float) -> Found:
        gradient, ends, said = self["grad_norm"], self.reward, {}
        if len(gradient) >= TREND:
            size = max(FEWEST, len(gradient) // 6)
            first, last = np.median(gradient[:size]), np.median(gradient[-size:])
            least = with_kl if self.kl_runaway(**FINDINGS["kl_runaway"]["bounds"]) else growth
            if last > 1 and last > least * first > 0:
                said[f"The gradient's norm grew from {first:.2g} to {last:.2g}"] = 0.55
        best = ends.high - min(ends.first, ends.last) if ends else 0.0
        if self.fell and ends.lost > max(0.5 * best, 0.15 * ends.spread):
            said[f"The reward fell from {ends.high:.2f} to {ends.last:.2f}"] = 0.6
        reward, spread = self["reward"], [*self["reward_std"], 0.0]  # the first: before any update
        if ends and reward[len(reward) // 2 :].max() <= 0.1 * reward[0] > 0.05 * spread[0]:
            said[f"The first step earned {reward[0]:.2f}, the second half {ends.last:.2f}"] = 0.6
        if own := self.answer if self.answers_fell else None:
            sure = 0.85 if self.moved < 0 else 0.6
            said[f"The reward of answers fell from {own.first:.2f} to {own.last:.2f}"] = sure
        if said and self.moved < 0:
            said[f"Right answers went from {self.right[0]:.0%} to {self.right[1]:.0%}"] = 0.7
        return surest(said)

    def kl_runaway(self, far: float, growth: float) -> Found:
        kl = self.log.evaluations.get("kl_from_base", pd.Series(dtype=float)).dropna().to_numpy()
        kl = kl if len(kl) > 2 else self["kl"]
        if len(kl) < 3:
            return None
        size = max(3, len(kl) // 6) if len(kl) >= 2 * FEWEST else 1
        first, last = np.median(kl[: min(size, FEWEST)]), np.median(kl[-size:])
        sure = 0.5 + 0.2 * (last > 1) + 0.2 * (last > 5) - 0.2 * self.learned
        said = f"The median KL went from {first:.2g} to {last:.2g} nats per token."
        return (sure, said) if last >= max(far, growth * first) else None

    def kl_too_strong(self, strong: float, near: float) -> Found:
        kl, loss, ends, still = self["kl"], self["loss"], self.reward, self.course(self["kl"])
        beta = self.setting("beta")
        if beta is None and len(loss) == len(kl) and (kl > 1e-6).sum() >= TREND:
            ratio = loss[kl > 1e-6] / kl[kl > 1e-6]
            beta = np.median(ratio) if ratio.std() < 0.2 * abs(np.median(ratio)) else None
        if not beta or beta < strong or not ends or ends.tells or not still:
            return None
        if (late := np.median(kl[len(kl) // 2 :])) > near and still.gain > max(still.first, SPREAD):
            return None
        said = f"At beta {beta:.2g} the reward moved by {ends.gain:+.3f}"
        return 0.7, f"{said}, and the median KL stays at {late:.2g} nats per token."

    def truncation(self, cut: float, at_cap: float, caps: list[int]) -> Found:
        length, clipped = self["length"], self["clipped"]
        if self.has(clipped, FEWEST):
            ends = Change(clipped)
            share = max(ends.last, clipped.mean())
            sure = min(0.45 + 0.5 * share, 0.97) if share >= cut or ends.first >= 2 * cut else 0.0
            said = f"At first {ends.first:.0%} were cut off, at the end {ends.last:.0%}"
        elif len(length) >= 2 * FEWEST:
            cap, top = self.setting("max_completion_length"), length.max()
            if not cap:  # a limit that the mean lengths seem to run into
                near = min((cap for cap in caps if cap >= top - 1e-6), default=0)
                often = (length >= max(top - 1e-6, caps[0])).sum() >= max(3, 0.03 * len(length))
                cap = int(top) if often else near if top >= 0.985 * near > 0 else np.inf
            at = (length >= 0.95 * cap).astype(float)
            full = at.mean()
            sure = 0.45 + 0.5 * full if full >= at_cap else 0.5 * (Change(at).first >= 0.6)
            said = f"The mean length is about {cap:.0f} tokens at {full:.0%} of the steps"
        else:
            return None
        if (newest := self.newest("truncated", "extracted", "completion")) is not None:
            ended = newest[newest["truncated"] > 0]
            unanswered = 1 - answered(ended) if len(ended) else 0.0
            sure *= unanswered >= 0.5  # a completion that is cut after its answer loses nothing
            said += f"; {unanswered:.0%} of those recorded last had no answer yet"
        return (sure, f"{said}.") if sure else None

    def length_runaway(self, longer: float) -> Found:
        length, reward, ends = self["length"], self["reward"], self.course(self["length"])
        if ends is None or len(length) != len(reward) or len(length) < 2 * FEWEST:
            return None
        rolling = pd.Series(length).rolling(FEWEST).mean()
        since, low = int(rolling.argmin()) - FEWEST + 1, rolling.min()
        if ends.last < max(longer * low, 1.3 * ends.first) or len(reward) - since < 2 * FEWEST:
            return None
        paid, said = Change(reward[since:]), f"The mean length went from {low:.0f} to"
        said += f" {ends.last:.0f} tokens, the reward from {paid.first:.2f} to {paid.last:.2f}."
        return None if paid.rose else (0.6, said)

    def length_collapse(self, shorter: float) -> Found:
        ends, own = self.course(self["length"]), self.answer or self.reward
        if ends is None or ends.last > shorter * ends.first or not ends.tells:
            return None
        said = f"The mean length went from {ends.first:.0f} to {ends.last:.0f} tokens"
        better = own is not None and own.gain > 0.3 * own.spread
        if self.right:
            better = self.right[1] >= self.right[0] + 0.05
            said += f", right answers from {self.right[0]:.0%} to {self.right[1]:.0%}"
        return None if better else (0.6, f"{said}.")

    def repetition(self, share: float) -> Found:
        if self.newest("completion") is None:
            return None
        read = repetition_penalty(3, -1.0)
        before, now = (-np.array(read([*map(str, texts["completion"])])) for texts in self.texts)
        worst = shown(self.texts[1]["completion"].iloc[np.argsort(now)[:-3:-1]])
        said = f"Repeated trigrams {before.mean():.0%} at first, now {now.mean():.0%}: {worst}."
        return (0.8, said) if now.mean() >= max(share, 1.5 * before.mean() * self.learned) else None

    def gibberish(self, new_words: float) -> Found:
        first, newest = self.texts
        if self.newest("completion") is None or len(self.log.completions) < 2 * ENOUGH:
            return None
        texts, word = [str(text) for text in newest["completion"]], re.compile(r"[^\W\d_]+")
        old = [*map(str, first["completion"]), *map(str, newest.get("prompt", []))]
        known, words = {*word.findall(" ".join(old))}, word.findall(" ".join(texts))
        new = np.mean([one not in known for one in words]) if words else 0.0
        signs = np.mean([len(re.findall(r"[^\w\s!-/:-@]", t)) / max(len(t), 1) for t in texts])
        if (new < new_words and signs < 0.3) or (self.right and self.right[1] >= self.right[0]):
            return None
        return 0.75, f"{new:.0%} of the words did not occur at first: {shown(texts[-3:])}."

    def label_collapse(self, share: float, factor: float) -> Found:
        newest, entropy = self.newest("completion"), self.course(self["entropy"])
        if newest is not None:
            given = newest.get("extracted", newest["completion"]).dropna().map(str).str.strip()
            most = (given.value_counts() / len(newest)).head(1)
            right = newest.get("answer", pd.Series(range(2))).map(str).value_counts(normalize=True)
            prompts = newest["prompt"].map(str).nunique() if "prompt" in newest else FEWEST
            said = f"{most.sum():.0%} of the newest {len(newest)} answer {shown(most.index)}"
            known = f", which is right for at most {right.iloc[0]:.0%}" * ("answer" in newest)
            one = prompts >= FEWEST and most.sum() >= max(share, factor * right.iloc[0])
            return (0.85, f"{said}{known}.") if one else None
        sure = 0.5 - 0.2 * self.learned  # what follows shows no answers
        if entropy and not self.at_top and entropy.last < min(0.1 * entropy.first, 0.05):
            return sure, f"Entropy went from {entropy.first:.2g} to {entropy.last:.2g} per token."
        low, high, silent = self["length_min"], self["length_max"], self["reward_std"] <= SPREAD
        if TREND <= len(low) == len(high) == len(silent):
            alike, quiet = Change((low == high).astype(float)), Change(silent.astype(float))
            if min(alike.last, quiet.last) > 0.5 and quiet.first < 0.4:
                return sure, "All completions of a step have one length, most groups one reward."
        return None

    def eos_never_learned(self) -> Found:
        last = self.newest("truncated", "extracted", "completion")
        cut = last["truncated"] > 0 if last is not None else pd.Series([False])
        if cut.mean() < 0.8 or answered(last[cut]) < 0.5:
            return None
        return 0.8, f"{cut.mean():.0%} cut, most after an answer: {shown(last['completion'][-2:])}."

    def evaluation_missing(self) -> Found:
        times = len(self.log.evaluations)
        if times > 1 or not self.has(self["step"], 2 * FEWEST):
            return None
        return (0.4, "There is one evaluation.") if times else (0.7, "The log has no evaluation.")

    def evaluation_too_small(self) -> Found:
        name, values = self.held_out
        few = (self.setting("evaluate_rows") or ENOUGH) < ENOUGH / 4
        if len(values) < FEWEST or (self.moved and not few):
            return None
        noise, p = np.diff(values).std() / 2**0.5, values.mean()
        gain = abs(values[-3:].mean() - values[:3].mean())
        said = f"{name} jumps by {noise:.2f} between evaluations, and changed by {gain:.2f};"
        said += f" {p * (1 - p) / 0.015**2:.0f} samples would tell a change of 4 points."
        return (0.5, said) if few or noise > max(0.03, 0.5 * gain) else None

    def loss_zero_is_fine(self) -> Found:
        loss, gradient, spread = self["loss"], self["grad_norm"], self["reward_std"]
        if len(loss) < FEWEST or np.median(np.abs(loss)) > 2e-4 or self.not_a_number():
            return None
        if len(gradient) and np.median(gradient) > 1e-3:
            return 0.8, f"The gradient's norm is {np.median(gradient):.2g}."
        alive = len(spread) and np.median(spread) > SPREAD
        return (0.4, f"A group's median deviation is {np.median(spread):.2g}.") if alive else None


def examined(see: Examined) -> list[Finding]:
    """All findings about a log, the surest first."""
    steps, found = [*see["step"][-1:], *see.log.completions.get("step", [])[-1:], 0], []
    for name, words in FINDINGS.items():
        if said := getattr(see, name)(**words.get("bounds", {})):
            words = words | words.get(said[-1], {})
            advice = f"{words['change']} To confirm: {words['confirm']}"
            sure = round(float(np.clip(said[0], 0.05, 0.98)), 2)
            found.append(Finding(name, int(max(steps)), sure, words["wrong"], said[1], advice))
    return sorted(found, key=lambda one: -one.sure)


def not_told(see: Examined) -> dict[str, str]:
    """The findings that cannot be told, and what the log would have to have."""
    texts = see.newest("completion") is not None
    extra = {"parts": see.parts, "graded": see.right, "judged": see.judge, "texts": texts}
    has = {*see.log.steps, *see.log.evaluations, *(name for name, there in extra.items() if there)}
    return {n: w["lacks"] for n, w in FINDINGS.items() if "needs" in w and not has & {*w["needs"]}}


def healthy(findings: Iterable[Finding], see: Examined) -> bool:
    """Whether one would let the run go on: what is `mild` does not stop one that clearly learns."""
    mild, told = 0.97 if see.learned else 0.7, [(one.sure, FINDINGS[one.name]) for one in findings]
    return all("remark" in w or sure < (mild if "mild" in w else 0.5) for sure, w in told)
