"""Ask a trained policy one prompt: its completion, the grade, and what its training pays for it.

A prompt goes the way of a measured row: the same tokens, decoding and grader, and the rewards of
the training. A policy is named by its run's folder, by its own, or by an arm whose adapter is
committed, as in `poker/nano/grpo`.

The library that loads models is imported when a model is loaded, so that mistakes are told first.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from casebook import paths
from casebook.case import PROFILES, SPLITS, CasebookError, check_name, known_cases, load_case
from casebook.paths import read_json
from casebook.records import read_record
from casebook.rewards import KL_PART
from casebook.settings import read_arms, read_settings, read_yaml

if TYPE_CHECKING:
    import pandas as pd

CARD = "casebook.json"  # in a saved policy's folder, as `casebook.models` writes it
COMMITTED_ARM = "grpo"  # whose first seed's adapter is committed
ROWS_OF_A_FORM = 128  # that tell what all prompts of a case begin and end with


@dataclass(frozen=True)
class Policy:
    """A saved policy and what it was trained with.

    Attributes:
        folder: of the adapter or model.
        settings: of its training; where they are not known those of its case and profile.
        note: what a reader should know of it, or nothing.
    """

    folder: Path
    settings: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True)
class Attempt:
    """One completion.

    Attributes:
        model: `policy`, or `base` for the same model before its training.
        decoding: `greedy`, or `sample`.
        completion: its text.
        tokens: how many it took, with the one that ends it.
        truncated: whether it was cut at `max_completion_length`.
        grade: `well_formed`, `answer`, `correct`, `strict`; the last two are `None` without a right
            answer to hold it against.
        rewards: reward part -> value, or `None` where it needs a column that the prompt lacks.
        reward: the weighted sum, or `None` where a part is missing.
    """

    model: str
    decoding: str
    completion: str
    tokens: int
    truncated: bool
    grade: dict[str, Any]
    rewards: dict[str, float | None]
    reward: float | None


@dataclass(frozen=True)
class Tried:
    """What was asked of a policy, and what it wrote.

    Attributes:
        prompt: as the model was asked, a text or messages.
        answer: the right one, or `None`.
        row: of the split, where a row was asked.
        attempts: the completions, those of the policy first.
        notes: what a reader should know, in sentences.
    """

    case: str
    profile: str
    policy: str
    prompt: str | list[dict[str, str]]
    answer: str | None
    row: int | None
    split: str | None
    attempts: list[Attempt]
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        return asdict(self)

    def table(self) -> "pd.DataFrame":
        """One line a completion: text, grade, reward and its parts."""
        import pandas as pd

        lines = []
        for attempt in self.attempts:
            line = {"model": attempt.model, "decoding": attempt.decoding}
            line |= {"completion": attempt.completion, **attempt.grade}
            parts = {f"reward/{name}": value for name, value in attempt.rewards.items()}
            lines.append(line | {"reward": attempt.reward, **parts})
        return pd.DataFrame(lines)


def find_policy(run: str | Path) -> Policy:
    """The policy of a run's folder, of its own folder, or of an arm, as in `poker/nano/grpo`.

    Raises:
        CasebookError: there is none, the training has not come to its end, or the arm's adapter is
            not committed.
    """
    folder = Path(run)
    if folder.is_dir():
        if (folder / CARD).exists():
            return Policy(folder, _settings(folder))
        if (folder / "adapter" / CARD).exists():
            unmeasured = not (folder / "record.json").exists()
            note = "the run was trained to its end, and not yet measured" if unmeasured else ""
            return Policy(folder / "adapter", _settings(folder / "adapter"), note)
        if (folder / "config.yaml").exists():
            raise CasebookError(
                f"the training in {folder} has not come to its end and has no policy yet: "
                "go on with it by --resume"
            )
        raise CasebookError(f"{folder} holds neither a run nor a policy that was saved here")
    parts = str(run).strip("/").split("/")
    if len(parts) == 3 and parts[0] in known_cases():
        return _committed(*parts)
    raise CasebookError(
        f"there is no folder at {run}: name a run's folder, that of an adapter, or an arm such as "
        "poker/nano/grpo"
    )


def _settings(folder: Path) -> Mapping[str, Any]:
    """What a policy was trained with; how it is loaded and writes is for its card to say."""
    card = read_json(folder / CARD)
    try:
        settings = read_settings(card["case"], card["profile"])
    except (KeyError, TypeError) as error:
        raise CasebookError(f"{folder / CARD} names no case and profile: it is damaged") from error
    config = folder.parent / "config.yaml"
    if config.exists():
        settings |= read_yaml(config, aliases=True)
    return settings | card


def _committed(case: str, profile: str, arm: str) -> Policy:
    check_name("profile", profile, PROFILES)
    check_name(f"arm of {case}", arm, read_arms(case))
    folder = paths.RESULTS / case / profile / "adapter"
    if arm != COMMITTED_ARM or not (folder / CARD).exists():
        raise CasebookError(
            f"the adapter of {case}/{profile}/{arm} is not committed: casebook experiments {case} "
            f"--profile {profile} --arm {arm} makes it, and its folder can be named then"
        )
    records = sorted((folder.parent / arm).glob("seed*.json"))
    trained_with = read_record(records[0])["config"] if records else {}
    return Policy(folder, {**_settings(folder), **trained_with, **read_json(folder / CARD)})


def try_policy(
    run: str | Path,
    prompt: str | None = None,
    *,
    row: int | None = None,
    split: str = "test",
    answer: str | None = None,
    base: bool = False,
    samples: int = 0,
    seed: int = 0,
    as_is: bool = False,
) -> Tried:
    """Ask a policy one prompt; what it writes, how that is graded, and what its training paid.

    Args:
        run: as for `find_policy`.
        prompt: a text of one's own. What all prompts of the training begin and end with is put
            around it, unless it is there: for poker the five cards are enough.
        row: of `split`, in place of a prompt; it is asked and graded as it was measured.
        split: `train`, `validation` or `test`.
        answer: the right answer to a prompt of one's own; without it only the form is graded.
        base: whether to ask the model before its training as well.
        samples: completions that are sampled at the training's temperature, beside the greedy one.
        seed: of the samples; with 0 those of a row are the ones that its run measured.
        as_is: ask `prompt` exactly as it is.

    Raises:
        CasebookError: as `find_policy`; neither or both of prompt and row, an empty prompt, no such
            row, a prompt that leaves no room for a completion, or a base that is not here.
    """
    _check_asked(prompt, row, answer, split, samples)
    policy = find_policy(run)
    settings, notes = policy.settings, [policy.note] if policy.note else []
    case = load_case(settings["case"])
    if row is None:
        columns = {} if answer is None else {"answer": answer}
        asked = prompt if as_is else _in_form(case, settings, prompt, notes)
    else:
        columns = _row(case, settings, split, row)
        asked = columns.pop("prompt")
    attempts = []
    for name, model, tokenizer in _models(policy, base):
        pay = _rewards(case, settings, model, tokenizer, notes)
        for decoding, completion in _written(
            model, tokenizer, case, settings, asked, (seed, row or 0), samples, notes
        ):
            grade = _grade(case, settings, completion["completion"], columns.get("answer"))
            parts = {part: paid(asked, completion, columns) for part, paid in pay.items()}
            text, tokens, cut = (completion[n] for n in ("completion", "tokens", "truncated"))
            reward = _sum(parts, settings)
            attempts.append(Attempt(name, decoding, text, tokens, cut, grade, parts, reward))
    return Tried(
        case=case.name,
        profile=settings["profile"],
        policy=str(run),
        prompt=asked,
        answer=columns.get("answer"),
        row=row,
        split=None if row is None else split,
        attempts=attempts,
        notes=list(dict.fromkeys(notes)),
    )


def _check_asked(
    prompt: str | None, row: int | None, answer: str | None, split: str, samples: int
) -> None:
    check_name("split", split, SPLITS)
    if (prompt is None) == (row is None):
        raise CasebookError("name a prompt or a row of the case, and not both")
    if prompt is not None and not prompt.strip():
        raise CasebookError("the prompt is empty")
    if row is not None and answer is not None:
        raise CasebookError(f"row {row} has an answer of its own: leave out the other one")
    if samples < 0:
        raise CasebookError(f"{samples} samples cannot be drawn")


def _row(case: Any, settings: Mapping[str, Any], split: str, row: int) -> dict[str, Any]:
    seed = settings.get("seed", 0) if split == "train" else 0  # a seed has training rows of its own
    rows = case.load(split, settings["profile"], seed, settings["variant"])
    if not 0 <= row < len(rows):
        raise CasebookError(
            f"there is no row {row}: {case.name}/{settings['profile']} has the {split} rows 0 to "
            f"{len(rows) - 1}"
        )
    return dict(rows[row])


def _in_form(case: Any, settings: Mapping[str, Any], text: str, notes: list[str]) -> Any:
    """A text of one's own as a prompt of the training: what all of these share is put around it."""
    try:
        rows = case.load("test", settings["profile"], variant=settings["variant"])
    except CasebookError as error:
        notes.append(f"the prompt was asked as it is, the case's own are not here: {error}")
        return [{"role": "user", "content": text}] if PROFILES[settings["profile"]].chat else text
    known = rows.select(range(min(ROWS_OF_A_FORM, len(rows))))["prompt"]
    if isinstance(known[0], str):
        return wrapped(text, known)
    contents = [messages[-1]["content"] for messages in known]
    return [*known[0][:-1], {**known[0][-1], "content": wrapped(text, contents)}]


def wrapped(text: str, known: Sequence[str]) -> str:
    """A text between what all `known` texts begin and end with, as far as it lacks that.

    >>> wrapped("2H 2D", ["Hand: 8C AS\\n", "Hand: 3D 5H\\n"])
    'Hand: 2H 2D\\n'
    >>> wrapped("Hand: 2H 2D", ["Hand: 8C AS\\n", "Hand: 3D 5H\\n"])
    'Hand: 2H 2D\\n'
    >>> wrapped("How many?", ["Who has 3?\\n", "What is left?\\n"])
    'How many?\\n'
    """
    # A word that all happen to begin with in part, as "Wh" of "Who" and "What", is no form.
    begin = re.sub(r"\w+$", "", os.path.commonprefix(list(known)))  # noqa: RUF071, no paths
    rest = [one[len(begin) :][::-1] for one in known]
    end = re.sub(r"^\w+", "", os.path.commonprefix(rest)[::-1])  # noqa: RUF071
    there = max(n for n in range(len(begin) + 1) if text.startswith(begin[len(begin) - n :]))
    done = max(n for n in range(len(end) + 1) if text.endswith(end[:n]))
    return begin[: len(begin) - there] + text + end[done:]


def _models(policy: Policy, base: bool) -> Iterator[tuple[str, Any, Any]]:
    """The policy and, where it is asked for, its base: the same model with its adapter off, or
    one loaded beside it."""
    from casebook.models import load_base, load_saved

    model, tokenizer, _ = load_saved(policy.folder)
    yield "policy", model.eval(), tokenizer
    if base and hasattr(model, "disable_adapter"):
        with model.disable_adapter():
            yield "base", model, tokenizer
    elif base:
        model, tokenizer = load_base(dict(policy.settings))
        yield "base", model.eval(), tokenizer


def _written(
    model: Any,
    tokenizer: Any,
    case: Any,
    settings: Mapping[str, Any],
    asked: Any,
    key: tuple[int, int],
    samples: int,
    notes: list[str],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The greedy completion and the sampled ones, as `generate` gives them."""
    from casebook.models.decoding import constraint_for
    from casebook.models.generation import decoding_of, generate_all, token_ids

    ids = token_ids(tokenizer, asked)
    _check_room(model, len(ids), settings, notes)
    rule = constraint_for(settings.get("constraint", "none"), case.labels, tokenizer)
    for decoding, count in (("greedy", 1), ("sample", samples)):
        written = {}
        for _, numbers, completions in generate_all(
            model,
            tokenizer,
            [ids] * count,
            keys=[(*key, number) for number in range(count)],
            constraint=rule,
            **decoding_of(settings, greedy=decoding == "greedy"),
        ):
            written |= dict(zip(numbers, completions, strict=True))
        yield from ((decoding, written[number]) for number in range(count))


def _check_room(model: Any, length: int, settings: Mapping[str, Any], notes: list[str]) -> None:
    kept, positions = settings["max_completion_length"], model.config.max_position_embeddings
    if length + kept > positions:
        raise CasebookError(
            f"the prompt is too long: it has {length} tokens, and of the model's {positions} "
            f"positions {kept} are kept for the completion"
        )
    if length + kept > settings["max_seq_length"]:
        notes.append(
            f"the prompt has {length} tokens: prompts of its training had at most "
            f"{settings['max_seq_length'] - kept}"
        )


def _grade(case: Any, settings: Mapping[str, Any], text: str, answer: str | None) -> dict[str, Any]:
    grade = case.grade(text, answer, variant=settings["variant"])
    known = answer is not None
    return {
        "well_formed": grade.well_formed,
        "answer": grade.answer,
        "correct": grade.correct if known else None,
        "strict": grade.strict if known else None,
    }


Pay = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], float | None]


def _rewards(
    case: Any, settings: Mapping[str, Any], model: Any, tokenizer: Any, notes: list[str]
) -> dict[str, Pay]:
    """Reward part -> what pays for a completion, with the parameters of the training."""
    parameters = settings.get("reward_kwargs") or {}
    pay: dict[str, Pay] = {}
    for name in settings["reward_funcs"]:
        if name == KL_PART:
            reward = _kl_part(settings, model, tokenizer)
        else:
            reward = case.rewards[name](**parameters.get(name, {}))
        pay[name] = _payer(name, reward, notes)
    return pay


def _kl_part(settings: Mapping[str, Any], model: Any, tokenizer: Any) -> Any:
    """The reward that looks at the policy; `None` where its base is not in the same model."""
    if not hasattr(model, "disable_adapter"):
        return None
    from casebook.training.kl_penalty import KlPenalty

    penalty = KlPenalty()
    penalty.bind(model, tokenizer, bool(settings.get("prompts_once")))
    return penalty


def _payer(name: str, reward: Any, notes: list[str]) -> Pay:
    def pay(asked: Any, completion: Mapping[str, Any], columns: Mapping[str, Any]) -> float | None:
        text: Any = completion["completion"]
        if not isinstance(asked, str):
            text = [{"role": "assistant", "content": text}]
        given = {
            "prompts": [asked],
            "completions": [text],
            "completion_ids": [completion["ids"][1]],
        }
        given |= {column: [value] for column, value in columns.items()}
        lacking = reward is None or _lacking(reward, given)
        try:
            value = None if lacking else reward(**given)[0]
        except CasebookError as error:  # a column that it looks for by itself
            lacking, value = str(error), None
        if lacking:
            why = "its base is another model" if reward is None else lacking
            notes.append(f"the reward {name} was not computed: {why}")
        return None if value is None else float(value)

    return pay


def _lacking(reward: Callable, given: Mapping[str, Any]) -> str:
    """What a reward function asks for and is not there, in words."""
    asks = inspect.signature(reward).parameters.values()
    named = [p.name for p in asks if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    missing = [name for name in named if name not in given]
    return f"it needs the column {' and '.join(missing)}" if missing else ""


def _sum(parts: Mapping[str, float | None], settings: Mapping[str, Any]) -> float | None:
    weights = settings.get("reward_weights") or [1.0] * len(parts)
    if any(value is None for value in parts.values()):
        return None
    return sum(w * value for w, value in zip(weights, parts.values(), strict=True))


def show(tried: Tried, console: Any = None) -> None:
    """Print what was tried for a person: the prompt, then each completion with its grade."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    console = console or Console()
    place = f"row {tried.row} of {tried.split}" if tried.row is not None else "prompt"
    title = f"{tried.case}/{tried.profile}, {place}"
    known = tried.answer is not None
    said = f"right answer: {_visible(tried.answer)}" if known else "no right answer given"
    console.print(Panel(Text(_visible(_text(tried.prompt))), title=title, subtitle=Text(said)))
    for attempt in tried.attempts:
        title = f"{attempt.model}, {attempt.decoding}"
        text = Text(_visible(attempt.completion))
        console.print(Panel(text, title=title, subtitle=Text(_visible(_verdict(attempt)))))
        if attempt.rewards:
            console.print(Text(_paid(attempt)), soft_wrap=True)
    for note in tried.notes:
        console.print(Text(f"Note: {note}."), soft_wrap=True)


def _text(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in prompt)


def _visible(text: str) -> str:
    """A text whose control characters are shown: what a model writes does not steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _verdict(attempt: Attempt) -> str:
    grade = attempt.grade
    words = ["well formed" if grade["well_formed"] else "not well formed"]
    words.append("no answer" if grade["answer"] is None else f"answer: {grade['answer']}")
    if grade["correct"] is not None:
        words.append("right" if grade["correct"] else "wrong")
    words.append(f"{attempt.tokens} tokens{', cut off' if attempt.truncated else ''}")
    return "; ".join(words)


def _paid(attempt: Attempt) -> str:
    parts = ", ".join(f"{n} {'-' if v is None else f'{v:g}'}" for n, v in attempt.rewards.items())
    return f"reward {'-' if attempt.reward is None else f'{attempt.reward:g}'} ({parts})"
