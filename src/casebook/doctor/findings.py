"""What can be wrong with a GRPO training: one small function for each finding.

    name(see: Seen) -> tuple[sure, evidence] | None

A run that teaches nothing prints the same tidy lines as one that does: the loss reads 0 in both.
What tells them apart stands in the logged metrics and in what the policy wrote. Each function looks
at one thing and returns how sure it is (0 to 1) and the figures; its docstring says what is wrong,
`findings.yaml` what to change, what would confirm it, and which columns it needs. The bounds were
set on nano runs and on published logs, and measured on others (docs/your_run.md).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from casebook.doctor.logs import NAMES
from casebook.doctor.seen import ENOUGH, FEWEST, TREND, WORDS, Change, Seen, Z
from casebook.rewards import repetition_penalty

SPREAD = 1e-4  # TRL's epsilon beside a group's deviation: smaller differences are no reward

SILENT = 0.5  # share of silent groups; beyond it most of what is generated teaches nothing
SILENT_STEPS = 0.38  # share of steps in which all groups were silent: a lower bound
CUT = 0.25  # share of completions cut off; healthy nano runs stay below 0.16
AT_CAP = 0.3  # share of steps whose mean length stands at the limit
FORM_SHARE = 0.4  # of the gain in reward; answers that make up less are not what was learned
FORM_GAIN = 0.15  # of well-formed completions
ANSWER_LOW = 0.35  # of the largest value seen of what is paid for answers
KL_FAR, KL_GROWTH = 0.5, 8.0  # nats per token, and times the beginning; healthy runs are near 0.1
LONGER, SHORTER = 1.8, 0.62  # of the mean length before
REPEATED = 0.4  # share of repeated word trigrams; healthy runs stay below 0.16
SAME, SAME_FACTOR = 0.6, 1.5  # share of one answer, and times that of the most common right one
NEW_WORDS = 0.6  # share of words that neither prompts nor the first completions have
BETA_STRONG = 0.3  # most published runs have 0 to 0.04
GRADIENT = 4.0, 2.5  # growth of the gradient's norm; the second where the KL runs away, too
CAPS = {100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 786, 800, 900, 1000, 1200, 1500, 2000}
CAPS |= {2**k for k in range(5, 16)} | {3 * 2**k for k in range(6, 13)}  # tokens
Found = tuple[float, str] | None


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
    short = [text if len(text) <= 90 else text[:87] + "..." for text in map(str, texts)]
    return "; ".join(repr(text) for text in short[:3])


def surest(said: Mapping[str, float]) -> Found:
    """Several pieces of evidence for one finding."""
    return (max(said.values()), ". ".join(said) + ".") if said else None


# Signal --------------------------------------------------------------------------------------


def silent_groups(see: Seen) -> Found:
    """Most of what is generated teaches nothing: all rewards of a group are equal."""
    shares, least, of = see["silent"], SILENT, "of the groups were silent"
    if not len(shares):
        shares, least = (see["reward_std"] <= SPREAD).astype(float), SILENT_STEPS
        of = "of the steps had silent groups alone"
    if not see.has(shares, FEWEST):
        return None
    ends, flat = Change(shares), see.groups["right"][see.groups["spread"] <= SPREAD]
    share, solved = max(ends.last, shares.mean()), len(flat) > 0 and (flat == 1).mean() >= 0.9
    if (share < least and ends.first < SILENT) or (solved and share < 0.75):
        return None
    said = f"At first {ends.first:.0%} {of}, at the end {ends.last:.0%}"
    if len(flat):
        said += f"; of those recorded last {(flat == 1).mean():.0%} were all right, "
        said += f"{(flat == 0).mean():.0%} all wrong"
        p, sizes = see.groups["right"].mean(), np.arange(2, 65)
        enough = sizes[p**sizes + (1 - p) ** sizes <= 1 / 3]
        if len(enough) and enough[0] > see.groups["size"].max():
            said += f"; groups of {enough[0]} would leave a third silent, were all prompts alike"
    return (min(share + 0.1, 0.97) if share >= least else 0.5) - 0.2 * see.at_top, f"{said}."


def dead_reward(see: Seen) -> Found:
    """A part of the reward teaches nothing."""
    names, weights = (see.log.settings.get(f"reward_{n}") or [] for n in ("funcs", "weights"))
    unpaid = {name for name, weight in zip(names, weights, strict=False) if weight == 0}
    dead = {}
    for name, values in see.parts.items():
        spread, zero = see[f"part_std/{name}"], float((np.abs(values) <= SPREAD).mean())
        within = spread.max(initial=0.0) <= SPREAD
        if name in unpaid or not see.has(values, 2 * FEWEST):
            continue
        if np.ptp(values) <= SPREAD and within:
            always = f"{name} was {values[0]:.3g} at all {len(values)} logged steps"
            dead[always] = 0.95 if len(spread) or zero == 1 else 0.7
        elif len(spread) and within:
            dead[f"{name} differed between steps and never within one"] = 0.7
        elif zero >= 0.95 and len(values) >= TREND:
            dead[f"{name} was 0 at {zero:.0%} of the steps"] = 0.75
    whole, across = see["reward_std"], see.log.steps.filter(like="part_std/")
    alike = len(whole) >= 2 * FEWEST and np.median(whole) <= 5 * SPREAD and not dead
    if alike and across.shape[1] == 1 and across.iloc[:, 0].median() > 100 * SPREAD:
        dead["The reward differs between prompts and not within a group"] = 0.75
    return surest(dead)


def saturated_reward(see: Seen) -> Found:
    """There is little left to learn."""
    reward, spread, said = see["reward"], see["reward_std"], {}
    if see.at_top and len(reward) > FEWEST:
        late = Change(reward[len(reward) // 2 :])
        calm = not len(spread) or Change(spread).last <= 0.5 * Change(spread).first
        if calm and abs(late.gain) < 0.05 * np.ptp(reward) + Z * late.error:
            said[f"The reward stays at {late.last:.3g} for half of the run"] = 0.5
    for name, values in see.parts.items():
        best, own = values.max(), Change(values)
        high = best > SPREAD and min(np.quantile(values, 0.25) / 0.97, own.first / 0.9) >= best
        if high and len(values) >= TREND and own.spread > SPREAD:
            said[f"{name} is {values.mean():.3g} of {best:.3g} from the start"] = 0.45
    return surest(said)


def tiny_differences(see: Seen) -> Found:
    """Differences that mean nothing are blown up to advantages."""
    spread, scale = see["reward_std"], np.abs(see["reward"]).max(initial=0)
    alive = spread[spread > SPREAD]
    if len(alive) < TREND or np.median(alive) > 0.02 * min(1.0, scale):
        return None
    return 0.6, f"The deviation within a group is {np.median(alive):.2g}, the reward {scale:.2g}."


# Learning ------------------------------------------------------------------------------------


def no_progress(see: Seen) -> Found:
    """The reward ends where it began."""
    reward, ends, own = see["reward"], see.reward, see.answer
    if ends is None or see.moved > 0:
        return None
    if ends.first >= 0.95 * reward.max() > 0 and ends.spread > 0.2 * reward.max():
        return None
    gain = max(ends.last, *(reward[-len(reward) // n :].mean() for n in (2, 3))) - ends.first
    unit = max(np.median([0.0, *see["reward_std"]]), reward.std() / 3, SPREAD)
    if own and own.rose and own.gain > 0.25 * own.deviation:
        return None
    if gain > 0 and ends.high - ends.first > max(4 * ends.error, 0.5 * unit):
        return None
    if -Z * ends.error <= gain <= (1 if ends.few else Z) * ends.error:
        sure = 0.85 if see.has(reward, 50) else 0.6
    elif gain < 0:
        sure = 0.7
    elif gain < 0.25 * unit or gain <= 0.035 * np.abs(reward).max():
        sure = 0.55
    else:
        return None
    said = f"Mean reward at first {ends.first:.3g}, at the end {ends.last:.3g}, at best"
    return sure, f"{said} {ends.high:.3g}; by chance two windows differ by {ends.error:.2g}."


def form_over_answer(see: Seen) -> Found:
    """The form is learned, and hardly the answer."""
    own, form, ends = see.answer, see.rest, see.reward
    if see.right and see.formed and ends and ends.gain > 0:
        (first, last), (a, b) = see.right, see.formed
        if b - a > FORM_GAIN and last < 0.5 and last - first < 0.25 * (b - a):
            return 0.85, f"Well formed {a:.0%} to {b:.0%}, right {first:.0%} to {last:.0%}."
    if own is None or form is None or ends is None:
        return None
    whole = Change(sum(see.parts.values()))
    best = max(*np.abs(sum(see.parts[name] for name in see.answers)), 1.0)
    if not whole.rose or form.gain < 0.5 * whole.gain:
        return None
    learned = own.last - min(own.first, 0) > ANSWER_LOW * best
    if learned or own.gain > min(FORM_SHARE * whole.gain, 0.3):
        return None
    return 0.85, (
        f"Of a gain of {whole.gain:.2f}, answers ({', '.join(see.answers)}) made {own.gain:+.2f} "
        f"and end at {own.last:.2f}; the other parts made {form.gain:+.2f}."
    )


def reward_hacking(see: Seen) -> Found:
    """Answers get worse, and the reward does not fall."""
    ends, own, rest = see.reward, see.answer, see.rest
    if ends is None or ends.fell or see.answers_fell:
        return None
    if see.right and (see.moved < 0 or (ends.gain > 0.5 and see.right[1] < 0.05)):
        said = f"Right answers went from {see.right[0]:.0%} to {see.right[1]:.0%}"
        newest = see.newest("correct", "reward", "completion")
        if newest is not None:
            wrong = newest[newest["correct"] == 0].sort_values("reward")
            said += f"; highest paid without one: {shown(wrong['completion'].tail(3))}"
        return 0.85, f"{said}. The reward went from {ends.first:.2f} to {ends.last:.2f}."
    if own is None or not see.has(see["reward"], 2 * TREND):
        return None
    lost = own.high - own.last
    worse = lost > Z * own.error and lost > 0.25 * abs(own.high) and own.when < 0.9
    if not (worse and rest and rest.rose):
        return None
    said = f"Answers fell from {own.high:.2f} to {own.last:.2f}, the rest rose by {rest.gain:.2f}."
    return 0.55, said


def rate_too_high(see: Seen) -> Found:
    """The steps are too large: the policy loses what it could do."""
    gradient, ends, said = see["grad_norm"], see.reward, {}
    if len(gradient) >= TREND:
        size = max(FEWEST, len(gradient) // 6)
        first, last = np.median(gradient[:size]), np.median(gradient[-size:])
        if last > 1 and last > GRADIENT[kl_runaway(see) is not None] * first > 0:
            said[f"The gradient's norm grew from {first:.2g} to {last:.2g}"] = 0.55
    if ends and ends.fell > max(0.5 * (ends.high - min(ends.first, ends.last)), 0.15 * ends.spread):
        said[f"The reward fell from {ends.high:.2f} to {ends.last:.2f}"] = 0.6
    if own := see.answer if see.answers_fell else None:
        sure = 0.85 if see.moved < 0 else 0.6
        said[f"The reward of answers fell from {own.first:.2f} to {own.last:.2f}"] = sure
    if said and see.moved < 0:
        said[f"Right answers went from {see.right[0]:.0%} to {see.right[1]:.0%}"] = 0.7
    return surest(said)


def kl_runaway(see: Seen) -> Found:
    """The policy has left its base far behind."""
    kl = see.log.evaluations.get("kl_from_base", pd.Series(dtype=float)).dropna().to_numpy()
    kl = kl if len(kl) > 2 else see["kl"]
    if len(kl) < 3:
        return None
    size = max(3, len(kl) // 6) if len(kl) >= 2 * FEWEST else 1
    first, last = np.median(kl[: min(size, FEWEST)]), np.median(kl[-size:])
    if last < max(KL_FAR, KL_GROWTH * first):
        return None
    sure = 0.5 + 0.2 * (last > 1) + 0.2 * (last > 5) - 0.2 * see.learned
    return sure, f"The median KL went from {first:.2g} to {last:.2g} nats per token."


def kl_too_strong(see: Seen) -> Found:
    """The KL term lets nothing else happen."""
    kl, loss, ends, still = see["kl"], see["loss"], see.reward, see.course(see["kl"])
    beta = see.log.settings.get("beta")
    if beta is None and len(loss) == len(kl) and (kl > 1e-6).sum() >= TREND:
        ratio = loss[kl > 1e-6] / kl[kl > 1e-6]
        beta = np.median(ratio) if ratio.std() < 0.2 * abs(np.median(ratio)) else None
    if not beta or beta < BETA_STRONG or ends is None or still is None:
        return None
    if ends.tells or still.gain > max(still.first, SPREAD):
        return None
    said = f"At beta {beta:.2g} the reward moved by {ends.gain:+.3f}"
    return 0.7, f"{said}, and the KL stays at {still.last:.2g} nats per token."


# Text ----------------------------------------------------------------------------------------


def truncation(see: Seen) -> Found:
    """Completions are cut off before they end, so length is punished as a mistake."""
    length, clipped, newest = see["length"], see["clipped"], see.newest("truncated", "extracted")
    if see.has(clipped, FEWEST):
        ends = Change(clipped)
        share = max(ends.last, clipped.mean())
        sure = min(0.45 + 0.5 * share, 0.97) if share >= CUT or ends.first >= 2 * CUT else 0.0
        said = f"At first {ends.first:.0%} were cut off, at the end {ends.last:.0%}"
    elif len(length) >= 2 * FEWEST:
        cap = see.log.settings.get("max_completion_length") or _cap(length)
        at = (length >= 0.95 * (cap or np.inf)).astype(float)
        share = at.mean()
        sure = 0.45 + 0.5 * share if share >= AT_CAP else 0.5 * (Change(at).first >= 0.6)
        said = f"The mean length is about {cap} tokens at {share:.0%} of the steps"
    else:
        return None
    if newest is not None:
        cut = newest[newest["truncated"] > 0]
        unanswered = cut["extracted"].isna().mean() if len(cut) else 0.0
        sure *= unanswered >= 0.5  # a completion that is cut after its answer loses nothing
        said += f"; {unanswered:.0%} of those recorded last had no answer yet"
    return (sure, f"{said}.") if sure else None


def _cap(length: np.ndarray) -> int | None:
    """The limit of tokens that a series of mean lengths seems to run into."""
    top = length.max()
    if max(3, 0.03 * len(length)) <= (length >= top - 1e-6).sum():
        return int(top)
    near = min((cap for cap in CAPS if cap >= top - 1e-6), default=0)
    return near if top >= 0.985 * near > 0 else None


def length_runaway(see: Seen) -> Found:
    """Completions grow, and the reward does not."""
    length, reward, ends = see["length"], see["reward"], see.course(see["length"])
    if ends is None or len(length) != len(reward) or len(length) < 2 * FEWEST:
        return None
    rolling = pd.Series(length).rolling(FEWEST).mean()
    since, low = int(rolling.argmin()) - FEWEST + 1, rolling.min()
    if ends.last < max(LONGER * low, 1.3 * ends.first) or len(reward) - since < 2 * FEWEST:
        return None
    paid, said = Change(reward[since:]), f"The mean length went from {low:.0f} to {ends.last:.0f}"
    said += f" tokens, the reward in that time from {paid.first:.2f} to {paid.last:.2f}."
    return None if paid.rose else (0.6, said)


def length_collapse(see: Seen) -> Found:
    """Completions have become much shorter, and not better."""
    ends, own = see.course(see["length"]), see.answer or see.reward
    if ends is None or ends.last > SHORTER * ends.first or not ends.tells:
        return None
    said = f"The mean length went from {ends.first:.0f} to {ends.last:.0f} tokens"
    better = own is not None and own.gain > 0.3 * own.spread
    if see.right:
        better = see.right[1] >= see.right[0] + 0.05
        said += f", right answers from {see.right[0]:.0%} to {see.right[1]:.0%}"
    return None if better else (0.6, f"{said}.")


def repetition(see: Seen) -> Found:
    """Completions repeat themselves."""
    if see.newest("completion") is None:
        return None
    repeated = repetition_penalty(3, -1.0)
    before, now = (-np.array(repeated([*map(str, texts["completion"])])) for texts in see.texts)
    if now.mean() < max(REPEATED, 1.5 * before.mean() * see.learned):
        return None
    worst = shown(see.texts[1]["completion"].iloc[np.argsort(now)[:-3:-1]])
    return 0.8, f"Repeated trigrams {before.mean():.0%} at first, now {now.mean():.0%}: {worst}."


def gibberish(see: Seen) -> Found:
    """The policy no longer writes what it was asked for."""
    first, newest = see.texts
    if see.newest("completion") is None or len(see.log.completions) < 2 * ENOUGH:
        return None
    texts, word = [str(text) for text in newest["completion"]], re.compile(r"[^\W\d_]+")
    old = [*map(str, first["completion"]), *map(str, newest.get("prompt", []))]
    known, words = {*word.findall(" ".join(old))}, word.findall(" ".join(texts))
    new = np.mean([one not in known for one in words]) if words else 0.0
    signs = np.mean([len(re.findall(r"[^\w\s!-/:-@]", t)) / max(len(t), 1) for t in texts])
    if (new < NEW_WORDS and signs < 0.3) or (see.right and see.right[1] >= see.right[0]):
        return None
    return 0.75, f"{new:.0%} of the words did not occur at first: {shown(texts[-3:])}."


def label_collapse(see: Seen) -> Found:
    """One answer is given whatever the prompt."""
    newest, entropy = see.newest("completion"), see.course(see["entropy"])
    if newest is not None:
        given = newest.get("extracted", newest["completion"]).dropna().map(str).str.strip()
        share = (given.value_counts() / len(newest)).head(1)
        right = newest.get("answer", pd.Series(range(2))).map(str).value_counts(normalize=True)
        prompts = newest["prompt"].map(str).nunique() if "prompt" in newest else FEWEST
        if prompts < FEWEST or share.sum() < max(SAME, SAME_FACTOR * right.iloc[0]):
            return None
        said = f"{share.sum():.0%} of the newest {len(newest)} answer {shown(share.index)}"
        return 0.85, f"{said}, which is right for at most {right.iloc[0]:.0%}."
    if entropy and not see.at_top and entropy.last < min(0.1 * entropy.first, 0.05):
        return 0.5, f"Entropy went from {entropy.first:.2g} to {entropy.last:.2g} nats per token."
    low, high, silent = see["length_min"], see["length_max"], see["reward_std"] <= SPREAD
    if TREND <= len(low) == len(high) == len(silent):
        alike, quiet = Change((low == high).astype(float)), Change(silent.astype(float))
        if min(alike.last, quiet.last) > 0.5 and quiet.first < 0.4:
            return 0.5, "All completions of a step have one length, and most groups one reward."
    return None


def eos_never_learned(see: Seen) -> Found:
    """Completions go on after their answer until they are cut off."""
    newest = see.newest("truncated", "extracted", "completion")
    cut = newest["truncated"] > 0 if newest is not None else pd.Series([False])
    if cut.mean() < 0.8 or newest.loc[cut, "extracted"].notna().mean() < 0.5:
        return None
    last = shown(newest["completion"][-2:])
    return 0.8, f"{cut.mean():.0%} are cut, most of them after an answer: {last}."


# Measuring -----------------------------------------------------------------------------------


def evaluation_missing(see: Seen) -> Found:
    """Whether more than the training prompts was learned cannot be told."""
    if len(see.log.evaluations) > 1 or not see.has(see["step"], 2 * FEWEST):
        return None
    once = len(see.log.evaluations) == 1
    return (0.4, "There is one evaluation.") if once else (0.7, "The log has no evaluation.")


def evaluation_too_small(see: Seen) -> Found:
    """The evaluation is too small to tell a change."""
    name, values = see.held_out
    if len(values) < FEWEST or see.moved:
        return None
    noise, p = np.diff(values).std() / 2**0.5, values.mean()
    gain = abs(values[-3:].mean() - values[:3].mean())
    said = f"{name} jumps by {noise:.2f} from one evaluation to the next, as "
    said += f"{max(p * (1 - p), 0.01) / max(noise, 0.01) ** 2:.0f} samples would, and changed by "
    said += f"{gain:.2f}; about {p * (1 - p) / 0.015**2:.0f} would tell a change of 4 points."
    return (0.5, said) if noise > max(0.03, 0.5 * gain) else None


def loss_zero_is_fine(see: Seen) -> Found:
    """The loss reads 0, and that is no fault."""
    loss, gradient, spread = see["loss"], see["grad_norm"], see["reward_std"]
    if len(loss) < FEWEST or np.median(np.abs(loss)) > 2e-4:
        return None
    if len(gradient) and np.median(gradient) > 1e-3:
        return 0.8, f"The gradient's norm is {np.median(gradient):.2g}."
    alive = len(spread) and np.median(spread) > SPREAD
    return (0.4, f"The median deviation of a group is {np.median(spread):.2g}.") if alive else None


FINDINGS: Mapping[str, Callable[[Seen], Found]] = {
    name: globals()[name] for name in WORDS if name != "parts"
}


def examined(see: Seen) -> list[Finding]:
    """All findings about a log, the surest first."""
    steps = [*see["step"][-1:], *see.log.completions.get("step", pd.Series(dtype=int))[-1:]]
    found = []
    for name, one in FINDINGS.items():
        if said := one(see):
            advice = f"{WORDS[name]['change']} To confirm: {WORDS[name]['confirm']}"
            sure = round(float(np.clip(said[0], 0.05, 0.98)), 2)
            step = int(max(steps, default=0))
            found.append(Finding(name, step, sure, one.__doc__, said[1], advice))
    return sorted(found, key=lambda one: -one.sure)


def not_told(see: Seen) -> dict[str, str]:
    """The findings that cannot be told, and what the log would have to have."""
    named = {"texts": f"{ENOUGH} recorded completions", "graded": "a held-out accuracy"}
    named |= {"parts": "a column for each part of the reward", "kl_from_base": "kl_from_base"}
    named |= {name: patterns[0] for name, patterns in NAMES.items()}
    has = {*see.log.steps, *see.log.evaluations, *(["parts"] if see.parts else [])}
    has |= {
        n for n, c in (("texts", "completion"), ("graded", "correct")) if see.newest(c) is not None
    }
    has |= {"graded"} if see.right else set()
    lacks = {
        n: words["needs"] for n, words in WORDS.items() if not has & {*words.get("needs", has)}
    }
    return {name: " or ".join(named[need] for need in needs) for name, needs in lacks.items()}


def healthy(findings: Iterable[Finding], see: Seen) -> bool:
    """Whether one would let the run go on: what is `mild` does not stop one that clearly learns."""
    for one in findings:
        words = WORDS[one.name]
        soft = "mild" in words or (one.name == "label_collapse" and one.sure < 0.6)
        if "remark" in words or (soft and see.learned and one.sure < 0.97):
            continue
        if one.sure >= (0.7 if "mild" in words else 0.5):
            return False
    return True
