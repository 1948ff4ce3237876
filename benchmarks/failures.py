"""Runs that are made to fail, and healthy ones beside them: what `casebook doctor` says of each.

    nice -n 5 python benchmarks/failures.py --make            # an hour on one thread; resumes
    python benchmarks/failures.py --show tune                 # what was missed, and false alarms
    python benchmarks/failures.py --others ENVS --output results/benchmarks/failures.json

`failures.yaml` has the settings: 21 failures made on purpose, each in two cases, and six healthy
settings in all four. Each is one short training of an embedded model, below $RUNS_DIR.

**Two halves.** A setting is a failure and a case. One of the two cases of each failure, and two of
the four of each healthy setting, are for tuning; the others are opened once, after `FROZEN` had
fixed the doctor's bounds. So each failure and each case is in both halves, and no case has one half
to itself.

**Truth** is decided by `RULES`, which were committed before any run was made. They look at the
metrics of all steps and at 256 test rows that base and trained policy answered, one sample each.
No tool sees those rows. A run that was made to fail is *faulty* if the failure happened by its
rule; one that was to be healthy is *healthy* if strict accuracy rose by 8 points or more, clearly
(the 95 % interval of the paired difference is above 0), and less than half of the groups were
silent and less than half of the completions cut. All others are counted as *did not happen*, and
no tool is judged on them.

**A hit** is a faulty run that a tool says needs mending and calls by one of the names in
`failures.yaml`; of a remark, the name is enough. **A false alarm** is a healthy run of which a tool
says that it needs mending. The doctor reads the run's folder, as its users have it; as all other
tools it is also given the step log alone, in TRL's names with the validation as `eval/accuracy`.
`tools.py` has how the others are asked, and what each of their detectors claims to find.
"""

import argparse
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tools
import yaml

from casebook import paths
from casebook.case import load_case
from casebook.doctor import read_log
from casebook.records import digest, provenance
from casebook.rewards import Reward, part, repetition_penalty
from casebook.settings import read_settings
from casebook.stats import difference_interval, mean_interval

FROZEN = "29df179"  # the commit that fixed the doctor's bounds, before the second half was opened
TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
MENDED = {  # rules that were changed after that
    "rules": "a part is one for form by its whole name, so strict_accuracy and soft_correctness "
    "are not; a reward that rose and fell is said to have fallen",
    "verdicts_changed": [],
}
VERSIONS = {"rldoctor": "0.2.0", "rlprobe": "0.1.0", "rlwatch": "0.5.1", "rlvr-audit": "0.1.0"}
CASES = TABLE["cases"]
ROWS = 256  # test rows, one sample each
RISE, STILL = 0.08, 0.05  # of strict accuracy: a healthy run gains more, a faulty one less
ENDS = 5  # steps at either end of a run whose mean counts


# Rewards that a case has not


def _marks(prompt: Any) -> float:
    """From 0 to 1, the same for the same text."""
    return zlib.crc32(str(prompt).encode()) / 2**32


def rewards_of(case: str) -> dict[str, Callable[..., Reward]]:
    """Name -> factory of the rewards with a fault, for one case."""
    grade, label = load_case(case).grade, CASES[case]["label"]

    def rigged(pays: float) -> Reward:
        def score(text: str, answer: Any, prompt: Any) -> float:
            return pays if _marks(prompt) < 0.9 else float(grade(text, answer).correct)

        return part("rigged", score, "answer", "prompts")

    def anywhere(text: str, answer: str) -> bool:
        return any(one in text.lower() for one in str(answer).lower().split("|"))

    def by_length(name: str, limit: int, sign: int) -> Reward:
        def score(_: str, ids: list[int]) -> float:
            return (sign < 0) + sign * min(1.0, len(ids) / limit)

        return part(name, score, "completion_ids")

    repeated = repetition_penalty(3, -1.0)
    limit = read_settings(case, "nano")["max_completion_length"]
    limit = (CASES[case].get("settings") or {}).get("max_completion_length", limit)
    return {
        "constant": lambda: part("constant", lambda text: 1.0),
        "prompt_read": lambda: part("prompt_read", lambda text, p: _marks(p) < 0.5, "prompts"),
        "rigged": rigged,
        "tiny": lambda: part("tiny", lambda text: 0.6 + 1e-3 * _marks(text)),
        "anywhere": lambda: part("anywhere", anywhere, "answer"),
        "length_paid": lambda: by_length("length_paid", limit, 1),
        "brevity_paid": lambda: by_length("brevity_paid", limit, -1),
        "never_ends": lambda: part("never_ends", lambda _, i: len(i) >= limit, "completion_ids"),
        "repetition_paid": lambda: part("repetition_paid", lambda text: -repeated([text])[0]),
        "label_paid": lambda: part("label_paid", lambda text: grade(text, label).correct),
    }


# What is made


def settings_of(name: str, case: str) -> dict[str, Any]:
    """What a run changes in `configs/CASE/nano.yaml`."""
    plan = TABLE["failures"].get(name) or {"settings": TABLE["healthy"][name]}
    changed = {**TABLE["common"], **(CASES[case].get("settings") or {})}
    own = dict(plan.get("settings") or {})
    times = own.pop("times", plan.get("times", 1))
    changed |= own | {"learning_rate": changed["learning_rate"] * times}
    changed["seed"] = 1 + zlib.crc32(f"{name}/{case}/seed".encode()) % 1000
    if paid := plan.get("rewards"):
        spelled = {"RIGHT": CASES[case]["right"], "FORM": CASES[case]["form"]}
        weights = {one: w for n, w in paid.items() for one in spelled.get(n, [n])}
        changed |= {"reward_funcs": [*weights], "reward_weights": [*weights.values()]}
        known = read_settings(case, "nano").get("reward_kwargs") or {}
        kwargs = {**known, **plan.get("kwargs", {})}
        changed["reward_kwargs"] = {n: kwargs[n] for n in weights if n in kwargs}
    return changed


def halves() -> dict[str, list[tuple[str, str]]]:
    """`tune` and `opened` -> name and case of each run."""
    found = {"tune": [], "opened": []}
    pairs, halves = list(permutations(CASES, 2)), list(combinations(CASES, 2))
    for number, name in enumerate(TABLE["failures"]):  # 5 and 12 have no divisor in common
        for half, case in zip(found, pairs[5 * number % len(pairs)], strict=True):
            found[half].append((name, case))
    for number, name in enumerate(TABLE["healthy"]):
        for case in CASES:
            half = found["tune" if case in halves[number] else "opened"]
            half.insert(3 * len([one for one in half if one[0] in TABLE["healthy"]]), (name, case))
    return found


def folder_of(name: str, case: str) -> Path:
    return paths.runs_dir() / "failures" / name / case


def make(name: str, case: str) -> None:
    """One run, and what tells the truth of it; nothing where both are there."""
    from casebook.evaluation import evaluate
    from casebook.models import load_base, load_saved
    from casebook.training import log, loop, read_config, train

    folder = folder_of(name, case)
    if (folder / "truth.json").exists():
        return
    log.evaluate = partial(evaluate, greedy=False)  # half the time, and these records need neither
    loop.input_digests = lambda config: None
    load_case(case).rewards.update(rewards_of(case))
    config = read_config((case, "nano"), settings_of(name, case))
    run = train(config, folder, resume=folder.exists())
    asked = {"case": case, "limit": ROWS, "samples": 1, "greedy": False}
    asked["settings"], tables = config.settings, {}
    mark = digest({"case": case, "limit": config.max_completion_length})
    kept = paths.runs_dir() / "failures" / f"base-{mark}.parquet"
    if not kept.exists():
        evaluate(*load_base(config.settings), **asked).rows.to_parquet(kept)
    tables["before"] = pd.read_parquet(kept)
    tables["after"] = evaluate(*load_saved(run.adapter)[:2], **asked).rows
    paths.write_json(folder / "truth.json", facts(run.metrics(), run.validation(), tables, config))


def facts(steps: pd.DataFrame, held_out: pd.DataFrame, tables: Mapping, config: Any) -> dict:
    """The figures that `RULES` look at."""

    def change(column: str) -> dict:
        both = [tables[when][column].to_numpy(float) for when in ("before", "after")]
        return difference_interval(*both) | {"before": round(float(both[0].mean()), 4)}

    def ends(column: str) -> list[float]:
        values = steps[column].to_numpy(float)
        return [round(float(values[some].mean()), 4) for some in (slice(ENDS), slice(-ENDS, None))]

    after = tables["after"]
    given = after["extracted"].dropna().map(str).value_counts() / len(after)
    repeated = -np.mean(repetition_penalty(3, -1.0)([*after["completion"]]))
    return {
        **{name: change(name) for name in ("strict", "correct", "well_formed")},
        **{"reward": ends("reward"), "length": ends("completions/mean_length")},
        "silent": round(float(steps["frac_reward_zero_std"].mean()), 4),
        "cut": ends("completions/clipped_ratio"),
        "spread": float(f"{steps['reward_std'].median():.3g}"),
        "largest": float(f"{steps['reward'].abs().max():.4g}"),
        "one_answer": round(float(given.max()), 4) if len(given) else 0.0,
        "repeated": round(float(repeated), 4),
        **{"evaluations": len(held_out), "evaluated_rows": config.evaluate_rows},
    }


# What happened

RULES: Mapping[str, Callable[[dict], bool]] = {
    "silent": lambda f: f["silent"] >= 0.5 and still(f),
    "cut": lambda f: f["cut"][1] >= 0.5 and still(f),
    "unended": lambda f: f["cut"][1] >= 0.8 and still(f),
    "still": lambda f: still(f),
    "tiny": lambda f: f["spread"] <= 0.02 * min(1, f["largest"]) and still(f),
    "form": lambda f: f["well_formed"]["value"] >= 0.15 and f["correct"]["value"] < STILL,
    "longer": lambda f: f["length"][1] >= 1.3 * f["length"][0] and still(f),
    "shorter": lambda f: f["length"][1] <= 0.62 * f["length"][0] and still(f),
    "repeats": lambda f: f["repeated"] >= 0.3 and still(f),
    "one_answer": lambda f: f["one_answer"] >= 0.6 and still(f),
    "hacked": lambda f: f["reward"][1] - f["reward"][0] >= 0.1 and still(f),
    "unseen": lambda f: f["evaluations"] == 0,
    "few": lambda f: f["evaluated_rows"] <= 8,
    "learned": lambda f: (
        f["strict"]["value"] >= RISE
        and f["strict"]["low"] > 0
        and f["silent"] < 0.5
        and f["cut"][1] < 0.5
    ),
}


def still(found: dict) -> bool:
    """Strict accuracy on test rows rose by less than 5 points, or fell."""
    return found["strict"]["value"] < STILL


def happened(name: str, found: dict) -> bool:
    plan = TABLE["failures"].get(name)
    return RULES[plan["rule"] if plan else "learned"](found)


def truth(name: str, found: dict) -> str:
    """`faulty`, `healthy`, or `did not happen`."""
    if not happened(name, found):
        return "did not happen"
    return "faulty" if name in TABLE["failures"] else "healthy"


# What tools say


def groups_of(folder: Path, into: Path) -> Path:
    """The recorded groups as rlvr-audit reads them: rewards from 0 to 1, and which texts repeat."""
    texts = read_log(folder).completions
    top = max(1.0, float(texts["reward"].max()))
    lines = []
    for (step, prompt), group in texts.groupby(["step", "prompt"], sort=False):
        row = {"prompt_id": f"{step} {prompt}", "rewards": [*(group["reward"] / top)]}
        lines.append(json.dumps(row | {"trajectory_hashes": [*map(digest, group["completion"])]}))
    file = into / "groups.jsonl"
    file.write_text("\n".join(lines))
    return file


def said_of(folder: Path, others: Path | None) -> dict[str, dict[str, Any]]:
    """Tool -> what it calls the run, in our names, and whether it would mend it."""
    told = {}
    with tempfile.TemporaryDirectory() as temporary:
        lines = tools.as_lines(folder, Path(temporary))
        for tool, path in (("doctor", folder), ("doctor, steps alone", lines)):
            names, mends = tools.said_by_doctor(path)
            told[tool] = {"names": sorted(names), "mends": mends}
        claims = {**tools.CLAIMS, **tools.GROUPS} if others else {}
        for tool, finds in claims.items():
            file = groups_of(folder, Path(temporary)) if tool in tools.GROUPS else lines
            spoken = tools.said_by(tool, str(others / tool / "bin/python"), file)
            for strict in (False, True) if tool == "rldoctor" else (False,):
                said = [n.rstrip("!") for n in spoken or () if not strict or n.endswith("!")]
                names = set().union(*(finds.get(one, set()) for one in said))
                entry = {"names": sorted(names), "mends": bool(said), "failed": spoken is None}
                told[tool + ", critical alone" * strict] = entry
    return told


def hit(name: str, said: Mapping) -> bool:
    plan = TABLE["failures"][name]
    return bool({*said["names"]} & {*plan["names"]}) and (said["mends"] or "remark" in plan)


def share(values: list[bool]) -> dict:
    """How many, of how many, with the 95 % interval of the share, as if runs were independent."""
    figure = mean_interval(values) if values else {"low": 0.0, "high": 1.0}
    ends = {end: round(figure[end], 3) for end in ("low", "high")}
    return {"count": sum(values), "of": len(values), **ends}


def scores(runs: list[dict], tool: str) -> dict:
    """A tool on some runs: faulty ones named, of all and by kind; false alarms."""
    base, _, _ = tool.partition(",")
    finds = {**tools.CLAIMS, **tools.GROUPS}.get(base)
    claims = set().union(*finds.values()) if finds else None
    faulty = [run for run in runs if run["truth"] == "faulty"]
    plans = {run["name"]: TABLE["failures"][run["name"]] for run in faulty}
    own = [r for r in faulty if claims is None or claims & {*plans[r["name"]]["names"]}]

    def named(some: list[dict]) -> list[bool]:
        return [hit(run["name"], run["said"][tool]) for run in some]

    kinds = {plan["kind"]: [] for plan in TABLE["failures"].values()}
    for run in own:
        kinds[plans[run["name"]]["kind"]].append(run)
    return {
        "named_of_all": share(named(faulty)),
        "named_of_claimed": share(named(own)),
        "alarms": share([r["said"][tool]["mends"] for r in runs if r["truth"] == "healthy"]),
        "by_kind": {kind: share(named(some)) for kind, some in kinds.items()},
        "failed": sum(run["said"][tool].get("failed", False) for run in runs),
    }


def read_runs(some: tuple[str, ...], others: Path | None) -> list[dict]:
    """The runs of some halves that are there: what happened, and what was said."""
    found = []
    for half in some:
        for name, case in halves()[half]:
            folder = folder_of(name, case)
            if (folder / "truth.json").exists():
                told = paths.read_json(folder / "truth.json")
                own = {"name": name, "case": case, "half": half, "truth": truth(name, told)}
                own["made_to_fail"] = name in TABLE["failures"]
                own |= {"settings": digest(settings_of(name, case)), "facts": told}
                own["log"] = digest((folder / "metrics.jsonl").read_text())
                found.append(own | {"said": said_of(folder, others)})
    return found


def show(runs: list[dict]) -> None:
    for run in sorted(runs, key=lambda run: run["truth"]):
        said, good = run["said"]["doctor"], "-"
        if run["truth"] == "faulty":
            good = "hit" if hit(run["name"], said) else "MISSED"
        if run["truth"] == "healthy":
            good = "ALARM" if said["mends"] else "ok"
        print(f"{run['truth']:15}{run['name']:20}{run['case']:9}{good:8}{', '.join(said['names'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    both = ("tune", "opened")
    parser.add_argument("--make", nargs="*", choices=both, help="train what is missing")
    parser.add_argument("--show", nargs="+", choices=both, help="what the doctor says, by run")
    parser.add_argument("--others", type=Path, help="a folder with an environment for each tool")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    for half in (asked.make or both) if asked.make is not None else ():
        for name, case in halves()[half]:
            make(name, case)
    if asked.show:
        show(read_runs(asked.show, None))
    if asked.output:
        runs = read_runs(both, asked.others)
        record = {"benchmark": "failures", "bounds_fixed_by": FROZEN, "mended": MENDED}
        record["tools"] = {
            half: {t: scores([r for r in runs if r["half"] == half], t) for t in runs[0]["said"]}
            for half in both
        }
        record |= {"versions": VERSIONS, "date": str(datetime.now(UTC).date()), "runs": runs}
        paths.write_json(asked.output, record | {"provenance": provenance()})


if __name__ == "__main__":
    main()
