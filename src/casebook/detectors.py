"""What is wrong with a run: one small function for each way a GRPO training fails in silence.

A run that teaches nothing prints the same tidy lines as one that does: the loss reads 0 in both.
What tells them apart stands in the logged metrics and in what the policy wrote, if one looks. A
detector looks at one thing, and either says nothing or says what it saw, with the numbers, and
what would help:

    detector(metrics, completions, settings) -> Finding | None

`metrics` are the logged steps in TRL's names (`Run.metrics()`; rows of `Run.validation()` may
follow, their drift from the base is read), `completions` the recorded ones (`Run.completions()`),
`settings` what was asked for (`Run.settings()`). Any of them may be empty or lack what a detector
needs: then it keeps silent, because a false alarm costs trust in all the others. `diagnose` asks
all of `DETECTORS`, a `RunWatch` asks them while a run goes on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from casebook.case import KL_PART, Settings
from casebook.rewards import repetition_penalty

Frame = pd.DataFrame

# How much is looked at before anything is said.
WINDOW = 10  # logged steps: one step of 12 groups knows a share to ±0.14, ten to ±0.05
FEWEST = 5  # logged steps: with 16 completions each still 80, so a share is known to ±0.06
ENOUGH = 100  # completions: never seen in 100 means rarer than 3 in 100 (rule of three)

# Above the healthy runs these were set on, below the broken ones; see tests/test_detectors.py.
NO_GRADIENT = 0.5  # share of groups; beyond it most of what is generated teaches nothing
WANTED = 0.33  # share of groups without gradient that a better group size should leave
SOLVED = 0.75  # the same bound where the groups are all right: a good end looks like that
MOSTLY = 2 / 3  # share of one kind among the groups without gradient, to name it the cause
SURE = 0.9  # share of all-right ones among them; beyond it the prompts are simply solved
LARGEST_GROUP = 64  # DeepSeekMath's group; larger ones are not what a person can pay for
CLIPPED = 0.25  # share of completions cut off; the healthy base model cuts 0.11 to 0.16
UNANSWERED = 0.5  # share of the cut ones in which no answer is found
LENGTH_FACTOR = 2.0  # tokens against the start; the healthy runs stay within 1.2
GAIN = 0.05  # what right answers must have gained for a new length to be progress, not collapse
SAME_TEXT = 0.75  # share of one text among all completions, whatever the prompt
SAME_FACTOR = 1.5  # and so many times the share of the commonest right answer
REPEATED = 0.4  # share of repeated word trigrams; the healthy runs stay below 0.16
KL_FAR = 2.0  # nats a token; eight labels of two tokens explain log(8) / 2 = 1.04, broken runs 6
REWARD_STILL = 0.25  # deviations of the reward; two windows of 80 completions differ by 0.16
KL_STRONG = 1 / REWARD_STILL  # beta; under it the reward gains its deviation / beta at most
KL_STILL = 1.5  # growth of the KL from one window to the next; a run that moves has 3 and more
SPREAD = 1e-4  # TRL's epsilon beside a group's deviation: smaller differences are no reward


@dataclass(frozen=True)
class Finding:
    """What one detector saw."""

    detector: str  # its name in `DETECTORS`
    step: int  # the newest training step it looked at
    message: str  # what was seen, with the numbers
    advice: str  # what would help, in one sentence

    def __str__(self) -> str:
        return f"step {self.step}, {self.detector}: {self.message} {self.advice}"


def no_gradient(metrics: Frame, completions: Frame, settings: Settings) -> Finding | None:
    """Most groups have one reward for all their completions, so nothing is learned from them.

    Of a prompt that is solved with probability p, a group of G has no gradient with probability
    p^G + (1 - p)^G. Which G would do follows from the share of right answers, as if all prompts
    were alike; where that cannot be the reason, the groups' contents say what is. Groups that
    are all right are tolerated for longer (`SOLVED`): they are how a good run ends.
    """
    shares = _window(metrics, "frac_reward_zero_std")
    if shares is None or shares.mean() < NO_GRADIENT:
        return None
    share = shares.mean()
    message = f"In the last {len(shares)} logged steps {share:.0%} of the groups had no gradient"
    newest = _newest(completions)
    groups = _groups(newest)
    flat = groups[groups["spread"] <= SPREAD]
    if flat.empty:
        advice = "Larger groups help where some completions are right, other prompts where none is."
        return _finding("no_gradient", metrics, completions, f"{message}.", advice)
    right = float((flat["right"] == flat["size"]).mean())
    wrong = float((flat["right"] == 0).mean())
    if right >= SURE and share < SOLVED:
        return None
    message += f"; of the recorded ones {right:.0%} were all right and {wrong:.0%} all wrong."
    first, last = _right_answers(completions)
    rewards = _values(metrics, "reward")
    if wrong < MOSTLY or first < GAIN or not last <= first / 2:
        advice = _advice_for_groups(groups, right, wrong, float(flat["alike"].mean()))
    elif len(rewards) and rewards[-FEWEST:].mean() >= rewards[:FEWEST].mean():
        advice = "Right answers were lost, but no reward: it pays for something else, mend it."
    else:
        advice = "The policy has lost what it could do at the start: take smaller steps."
    return _finding("no_gradient", metrics, completions, message, advice)


def truncation(metrics: Frame, completions: Frame, settings: Settings) -> Finding | None:
    """Completions are cut off before they give an answer, so length is punished as a mistake.

    A completion that is cut after its answer loses nothing and does not count. Cut ones that
    repeat themselves would not come to an end in a longer space either.
    """
    clipped = _window(metrics, "completions/clipped_ratio")
    newest = _newest(completions)
    if clipped is None or not {"truncated", "extracted", "completion"} <= set(newest):
        return None
    cut = newest[_numbers(newest, "truncated") > 0]
    if clipped.mean() < CLIPPED or cut.empty:
        return None
    unanswered = float(cut["extracted"].isna().mean())
    if unanswered < UNANSWERED:
        return None
    limit = settings.get("max_completion_length")
    at = f" of {limit} tokens" if isinstance(limit, int) else ""
    message = (
        f"In the last {len(clipped)} logged steps {clipped.mean():.0%} of the completions were "
        f"cut off at the limit{at}, {unanswered:.0%} of them before any answer."
    )
    if _values(metrics, "completions/clipped_ratio")[0] <= clipped.mean() / 2:
        advice = "The limit was enough at the start: find what made the completions grow."
    elif _repetition(cut["completion"]).mean() >= REPEATED:
        advice = "They repeat themselves: a longer limit would not help, rewarding an end would."
    else:
        advice = "Raise max_completion_length, or ask for less before the answer."
    return _finding("truncation", metrics, completions, message, advice)


def dead_reward(metrics: Frame, completions: Frame, settings: Settings) -> Finding | None:
    """A reward part has the same value for every completion, or for every one of each prompt.

    Either way it cancels when the group's mean is subtracted. The whole run counts: a part that
    has been learned was different once. Parts of weight 0 are only logged, and left out.
    """
    weights, dead = _weights(settings), []
    names = [c.split("/")[1] for c in metrics if c.startswith("rewards/") and c.endswith("/mean")]
    names += [c.removeprefix("reward/") for c in completions if c.startswith("reward/")]
    for name in dict.fromkeys(names):
        said = _constant(name, metrics, completions, settings)
        said = said or _constant_in_groups(name, completions)
        if said and weights.get(name) != 0:
            dead.append(f"{name} {said}")
    if not dead:
        return None
    message = f"Reward parts that teach nothing: {'; '.join(dead)}."
    advice = "Try such a part on a few completions by hand, then mend it or leave it out."
    return _finding("dead_reward", metrics, completions, message, advice)


def degenerate_text(metrics: Frame, completions: Frame, settings: Settings) -> Finding | None:
    """Completions have become far shorter or longer, all the same, or repeat themselves.

    A new length is no fault where right answers came with it: rambling may be unlearned, and
    reasoning grows. One text for all prompts is one only beyond what their answers explain; the
    completions of *one* prompt may well be alike, that is what a sure policy writes.
    """
    signs = _new_length(metrics, completions), _one_text(completions), _repeating(completions)
    message = "; ".join(sign for sign in signs if sign is not None)
    if not message:
        return None
    advice = "Read the newest completions: a reward part pays for this, or the steps are too large."
    return _finding("degenerate_text", metrics, completions, f"{message}.", advice)


def kl(metrics: Frame, completions: Frame, settings: Settings) -> Finding | None:
    """The policy has left its base altogether, or a KL penalty lets nothing else happen.

    Three signs. *Far*: the KL in nats a token, `kl` of the steps (logged with beta > 0) or
    `kl_from_base` of an evaluation. *Held*: beta is large, and neither reward nor KL moves. At
    the optimum log(policy / base) is A / beta less a constant (Korbak et al. 2022, arXiv
    2205.11275); with advantages A of deviation 1 the reward gains its deviation / beta, to first
    order. *Drowned*: the KL is a part of the reward, and in most groups differs more than all
    else; divided by the group's deviation its noise is the advantage, whatever its weight.
    """
    if said := _too_far(metrics):
        advice = "Lower the learning rate, or hold the policy by a KL term (beta)."
    elif said := _held(metrics, settings):
        advice = "Take a smaller beta: most published runs have 0 to 0.04."
    elif said := _drowned(completions, settings):
        advice = "Put the KL into the loss (beta), where the group's deviation does not scale it."
    else:
        return None
    return _finding("kl", metrics, completions, said, advice)


DETECTORS: Mapping[str, Callable[..., Finding | None]] = {
    detector.__name__: detector
    for detector in (no_gradient, truncation, dead_reward, degenerate_text, kl)
}


def diagnose(metrics: Frame, completions: Frame, settings: Settings | None = None) -> list[Finding]:
    """What all detectors have to say about a run, in the order of `DETECTORS`.

    Args:
        metrics, completions: oldest first; may be empty, or lack columns.
        settings: those of the run; without them detectors that need one keep silent.

    >>> stuck = pd.DataFrame({"step": range(1, 11), "frac_reward_zero_std": 1.0})
    >>> [finding.detector for finding in diagnose(stuck, pd.DataFrame())]
    ['no_gradient']
    """
    return RunWatch(settings or {}).look(metrics, completions)


@dataclass
class RunWatch:
    """Looks at a run while it goes on; each detector speaks once, then is not asked again."""

    settings: Settings  # those of the run
    findings: list[Finding] = field(default_factory=list)  # what was said so far

    def look(self, metrics: Frame, completions: Frame) -> list[Finding]:
        """The findings that are new; cheap enough to be asked after every logged step."""
        spoken = {finding.detector for finding in self.findings}
        asked = [detector for name, detector in DETECTORS.items() if name not in spoken]
        found = [detector(metrics, completions, self.settings) for detector in asked]
        new = [finding for finding in found if finding is not None]
        self.findings += new
        return new


def _advice_for_groups(groups: Frame, right: float, wrong: float, alike: float) -> str:
    """One sentence; the shares are those of the groups without gradient."""
    if right + wrong <= MOSTLY:
        return "Right and wrong completions got the same reward: no group size helps, mend it."
    if alike >= MOSTLY and right < SURE:
        return "The completions of a group are one text: sample at a higher temperature."
    if right >= MOSTLY:
        return "Take harder prompts, or stop: these are solved."
    p, sizes = groups["right"].sum() / groups["size"].sum(), np.arange(2, LARGEST_GROUP + 1)
    enough = sizes[p**sizes + (1 - p) ** sizes <= WANTED]
    if not len(enough):
        return (
            f"Not even groups of {LARGEST_GROUP} would help with {p:.0%} right answers: begin "
            "with easier prompts, or with a model that solves some."
        )
    if enough[0] > groups["size"].max():
        return f"Groups of {enough[0]} would leave about {WANTED:.0%}, were all prompts alike."
    return "Groups of this size would do for prompts that are solved now and then: choose such."


# Each sign: what was seen, or `None` ---------------------------------------------------------


def _constant(name: str, metrics: Frame, completions: Frame, settings: Settings) -> str | None:
    means = _values(metrics, f"rewards/{name}/mean")
    spreads = _values(metrics, f"rewards/{name}/std")
    values = _values(completions, f"reward/{name}")
    batch = settings.get("per_device_train_batch_size", 0)
    batch *= settings.get("gradient_accumulation_steps", 1)
    if "step" in completions and len(completions):  # what was written tells better
        batch = int(completions["step"].value_counts().iloc[0])
    seen = len(means) * batch
    if len(means) >= FEWEST and len(spreads) == len(means) and seen >= ENOUGH:
        constant = max(np.ptp(means), spreads.max()) <= SPREAD
        value = means[0]
    elif len(values) >= ENOUGH:
        constant, value, seen = np.ptp(values) <= SPREAD, values[0], len(values)
    else:
        return None
    if not constant:
        return None
    never = abs(value) <= SPREAD
    return f"never fired in {seen} completions" if never else f"was {value:.3g} for all {seen}"


def _constant_in_groups(name: str, completions: Frame) -> str | None:
    part = f"reward/{name}"
    if not {"step", "prompt", part} <= set(completions):
        return None
    values = _numbers(completions, part).groupby(_group_ids(completions))
    groups = values.agg(["count", "min", "max"]).query("count > 1")
    if groups["count"].sum() < ENOUGH or (groups["max"] - groups["min"]).max() > SPREAD:
        return None
    return f"was the same within each of {len(groups)} groups"


def _new_length(metrics: Frame, completions: Frame) -> str | None:
    lengths = _values(metrics, "completions/mean_length")
    if len(lengths) < 2 * FEWEST:
        return None
    before, now = lengths[:FEWEST].mean(), lengths[-FEWEST:].mean()
    if before <= 0 or 1 / LENGTH_FACTOR < now / before < LENGTH_FACTOR:
        return None
    said = f"the mean length went from {before:.0f} to {now:.0f} tokens"
    first, last = _right_answers(completions)
    if last - first >= GAIN:
        return None
    if np.isnan(last - first):
        return said
    return f"{said} while right answers went from {first:.0%} to {last:.0%}"


def _one_text(completions: Frame) -> str | None:
    newest = _newest(completions)
    if not {"completion", "answer"} <= set(newest) or len(newest) < ENOUGH:
        return None
    texts = newest["completion"].map(str).str.strip().value_counts(normalize=True)
    answers = newest["answer"].map(str).value_counts(normalize=True)
    share = texts.iloc[0]
    if share < SAME_TEXT or share < SAME_FACTOR * answers.iloc[0]:
        return None
    text = texts.index[0]
    shown = repr(text if len(text) <= 40 else text[:37] + "...")
    return f"{share:.0%} of the newest {len(newest)} completions read {shown}"


def _repeating(completions: Frame) -> str | None:
    newest = _newest(completions)
    if "completion" not in newest or len(newest) < ENOUGH:
        return None
    repeated = _repetition(newest["completion"]).mean()
    if repeated < REPEATED:
        return None
    return f"{repeated:.0%} of the word trigrams in a completion occurred before in it"


def _too_far(metrics: Frame) -> str | None:
    steps, evaluations = _values(metrics, "kl"), _values(metrics, "kl_from_base")
    # k3 has a long upper tail: one token can lift one step's mean, hence the median of steps
    seen = [np.median(steps[-FEWEST:])] if len(steps) >= FEWEST else []
    far = [nats for nats in (*seen, *evaluations[-1:]) if nats >= KL_FAR]
    if not far:
        return None
    return f"The policy is {far[0]:.1f} nats a token away from its base, far beyond learning."


def _held(metrics: Frame, settings: Settings) -> str | None:
    beta = settings.get("beta") or 0.0
    steps, rewards = _values(metrics, "kl"), _values(metrics, "reward")
    spreads = _values(metrics, "reward_std")
    if not beta >= KL_STRONG or min(len(steps), len(rewards), len(spreads)) < 2 * WINDOW:
        return None
    before, now = np.median(steps[-2 * WINDOW : -WINDOW]), np.median(steps[-WINDOW:])
    gained, spread = rewards[-WINDOW:].mean() - rewards[:WINDOW].mean(), spreads.mean()
    if not 0 < now <= KL_STILL * before or abs(gained) >= REWARD_STILL * spread or spread <= SPREAD:
        return None
    return (
        f"At beta {beta:g} the reward moved by {gained:+.3f}, {abs(gained) / spread:.2f} of its "
        f"deviation, and the KL stays at {now:.2g} nats a token."
    )


def _drowned(completions: Frame, settings: Settings) -> str | None:
    weights, part = _weights(settings), f"reward/{KL_PART}"
    newest = _newest(completions)
    if not weights.get(KL_PART) or not {"step", "prompt", part, "reward"} <= set(newest):
        return None
    penalty = _numbers(newest, part) * weights[KL_PART]
    table = pd.DataFrame({"penalty": penalty, "rest": _numbers(newest, "reward") - penalty})
    groups = table.groupby(_group_ids(newest)).std().dropna()
    groups = groups[groups.max(axis=1) > SPREAD]
    share = (groups["penalty"] > groups["rest"]).mean() if len(groups) else 0.0
    if len(newest) < ENOUGH or share < NO_GRADIENT:
        return None
    return (
        f"In {share:.0%} of the {len(groups)} newest groups with a gradient the KL inside the "
        "reward differs more than all other parts together."
    )


# Reading the frames -----------------------------------------------------------------------


def _finding(detector: str, metrics, completions, message: str, advice: str) -> Finding:
    steps = np.concatenate([_values(metrics, "step"), _values(completions, "step")])
    message = message[:1].upper() + message[1:]
    return Finding(detector, int(steps.max()) if len(steps) else 0, message, advice)


def _numbers(frame: Frame, column: str) -> pd.Series:
    """A column as floats; NaN is what is no finite number, and all of it where there is none."""
    if column not in frame:
        return pd.Series(np.nan, frame.index)
    return pd.to_numeric(frame[column], errors="coerce").astype(float).replace(np.inf, np.nan)


def _values(frame: Frame, column: str) -> np.ndarray:
    """The numbers of a column, oldest first."""
    return _numbers(frame, column).dropna().to_numpy()


def _window(metrics: Frame, column: str) -> np.ndarray | None:
    """The last `WINDOW` values of a metric, or `None` where there are not `FEWEST`."""
    values = _values(metrics, column)[-WINDOW:]
    return values if len(values) >= FEWEST else None


def _right_answers(completions: Frame) -> tuple[float, float]:
    """The share of right answers among the oldest and the newest; NaN where it is unknown."""
    if "correct" not in completions:
        return np.nan, np.nan
    return tuple(_newest(completions, oldest)["correct"].mean() for oldest in (True, False))


def _newest(completions: Frame, oldest: bool = False) -> Frame:
    """The newest recorded steps, or the oldest, so many that they hold `ENOUGH` completions."""
    if "step" not in completions:
        return completions
    counts = completions["step"].value_counts().sort_index(ascending=oldest).cumsum()
    wanted = counts.index[: int((counts < ENOUGH).sum()) + 1]
    return completions[completions["step"].isin(wanted)].reset_index(drop=True)


def _group_ids(completions: Frame) -> np.ndarray:
    """The group of each completion: those of one prompt at one step."""
    keys = completions[["step", "prompt"]].map(str)  # a chat's prompt is a list
    return keys.groupby(["step", "prompt"], sort=False).ngroup().to_numpy()


def _groups(completions: Frame) -> Frame:
    """For each group: `size`, `right`, `spread` of the reward, `alike` (one text)."""
    if not {"step", "prompt", "completion", "correct", "reward"} <= set(completions):
        return pd.DataFrame(columns=["size", "right", "spread", "alike"], dtype=float)
    groups = completions.groupby(_group_ids(completions)).agg(
        size=("step", "size"),
        right=("correct", "sum"),
        spread=("reward", lambda rewards: rewards.max() - rewards.min()),
        alike=("completion", lambda texts: texts.map(str).nunique() == 1),
    )
    return groups[groups["size"] > 1]


def _weights(settings: Settings) -> dict[str, float]:
    names = settings.get("reward_funcs") or []
    return dict(zip(names, settings.get("reward_weights") or [1.0] * len(names), strict=True))


def _repetition(completions: pd.Series) -> np.ndarray:
    """The share of repeated word trigrams in each completion."""
    return -np.array(repetition_penalty(3, -1.0)([str(text) for text in completions]))
