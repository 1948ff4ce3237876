"""What the record of the museum says in numbers: `python benchmarks/museum/counts.py RECORD.json`.

Our findings are judged by `judged` of `museum.yaml`. Another tool names a fault if it complains of
something that it claims to find in faults of that group (`CLAIMS`), and does not complain of it in
half or more of the sound exhibits that judge the same thing. An alarm is a sound reward for answers
that does not pass the check it offers for continuous integration. Intervals: Wilson, 95 %.
"""

import json
import sys
from pathlib import Path

from check import MUSEUM
from scipy.stats import binomtest

CLAIMS = {  # tool -> the start of a complaint's name -> the group of faults that it is for
    "falsepass": {
        **dict.fromkeys(("P1 ", "P2 ", "P14", "S2"), "right refused"),
        **dict.fromkeys(("P6", "P7", "P13", "X1"), "wrong paid"),
        **dict.fromkeys(("P5", "P9", "P15", "S3", "P17"), "several or denied paid"),
        **dict.fromkeys(("P3", "P4", "A1", "S1", "P10", "P16"), "no answer paid"),
        "P11": "other pay at another time",
    },
    "reward-doctor": {
        **dict.fromkeys(("eq.", "fmt."), "right refused"),
        "ne.": "wrong paid",
        **dict.fromkeys(
            ("x.shotgun", "x.contradiction", "x.negation", "x.format.nested"),
            "several or denied paid",
        ),
        **dict.fromkeys(("x.empty", "x.echo", "x.format.tags_only", "x.judge"), "no answer paid"),
        "x.padding": "length paid",
    },
    "rewardprobe": {
        **dict.fromkeys(
            ("multiple_tags", "regex_greed", "duplicate_answers", "answer_in", "common_prefix"),
            "several or denied paid",
        ),
        **dict.fromkeys(
            ("empty", "format_only", "whitespace", "echo", "trivial", "random", "basic", "early"),
            "no answer paid",
        ),
        **dict.fromkeys(("wrong_sign", "constant_output"), "wrong paid"),
        "format_variation": "right refused",
        **dict.fromkeys(("batch", "determinism", "state", "stale"), "other pay at another time"),
    },
    "gradecheck": {
        **dict.fromkeys(
            ("empty", "prompt-echo", "garbage", "flattery", "format-only"), "no answer paid"
        ),
        "answer-leak": "several or denied paid",
    },
}


def rate(count: int, of: int) -> dict:
    """A count with the interval of its share."""
    found = binomtest(count, of).proportion_ci(method="wilson") if of else (0.0, 1.0)
    return {"count": count, "of": of} | {
        name: round(float(bound), 3) for name, bound in zip(("low", "high"), found, strict=True)
    }


def ours(run: dict, judged: dict) -> dict:
    """Known faults that were named, by group; further findings as judged; alarms on sound ones."""
    named, said, further, alarms, missed = {}, 0, {}, [], []
    for exhibit in MUSEUM["exhibits"]:
        it = run["exhibits"][exhibit["name"]]
        known = set()
        for fault in it["faults"]:
            known |= set(fault["named"])
            habit = MUSEUM["said_as_habit"].get(fault["fault"])
            told = it.get("habits", {}).get(habit) in ("paid", "paid in part")
            said += told and not fault["named"]
            if fault["listed"]:
                group = named.setdefault(MUSEUM["groups"][fault["fault"]], [0, 0])
                group[0] += bool(fault["named"])
                group[1] += 1
                said_so = " (said as a habit)" if told else ""
                if not fault["named"]:
                    missed.append(f"{exhibit['name']}: {fault['fault']}{said_so}")
        for kind in sorted(set(it["findings"]) - known):
            verdict = judged.get(exhibit["name"], {}).get(kind, "unjudged")
            further[str(verdict).lower()] = further.get(str(verdict).lower(), 0) + 1
            if not exhibit["faults"] and verdict is not True:
                alarms.append(f"{exhibit['name']}: {kind}")
    sound = [it["name"] for it in MUSEUM["exhibits"] if not it["faults"]]
    sound = [name for name in sound if name not in MUSEUM["found_faulty_later"]]
    loud = {it.partition(":")[0] for it in alarms}
    pairs = named.values()
    return {
        "named": rate(sum(n for n, _ in pairs), sum(of for _, of in pairs)),
        "by_group": {group: rate(*pair) for group, pair in named.items()},
        "said_as_habit": said,
        "unlisted": sum(not f["listed"] for it in run["exhibits"].values() for f in it["faults"]),
        "missed": missed,
        "further": further,
        "alarms": rate(len(loud), len(sound)) | {"rewards": sorted(loud), "findings": len(alarms)},
        "not_in_time": [k for k, it in run["exhibits"].items() if not it["complete"]],
        "seconds": round(sum(it["seconds"] for it in run["exhibits"].values())),
    }


def others(tool: str, run: dict) -> dict:
    """The same of another tool, of the groups that it claims."""
    exhibits, claims = MUSEUM["exhibits"], CLAIMS[tool]
    if tool == "reward-doctor":  # it has problems of its own, and hands over no column but `answer`
        other = [it["name"] for it in exhibits if set(it.get("columns") or {}) - {"answer"}]
        run = run | {"exhibits": run["exhibits"] | dict.fromkeys(other)}
    usual = {}
    for of in ("answer", "form"):
        sound = [it["name"] for it in exhibits if not it["faults"] and it["of"] == of]
        told = [set((run["exhibits"][name] or [[]])[0]) for name in sound]
        usual[of] = {c for said in told for c in said if 2 * sum(c in s for s in told) >= len(told)}
    named = {group: [0, 0] for group in claims.values()}
    for exhibit in exhibits:
        said = set((run["exhibits"][exhibit["name"]] or [[]])[0]) - usual[exhibit["of"]]
        groups = {group for start, group in claims.items() for c in said if c.startswith(start)}
        for fault in exhibit["faults"]:
            group = MUSEUM["groups"][fault["plain"]]
            if fault["kinds"] and group in named:
                named[group][0] += group in groups
                named[group][1] += 1
    sound = [it["name"] for it in exhibits if not it["faults"] and it["of"] == "answer"]
    later = MUSEUM["found_faulty_later"]
    answered = [name for name in sound if run["exhibits"][name] and name not in later]
    loud = [name for name in answered if not run["exhibits"][name][1]]
    pairs = named.values()
    return {
        "version": run["version"],
        "date": run["date"],
        "named": rate(sum(n for n, _ in pairs), sum(of for _, of in pairs)),
        "by_group": {group: rate(*pair) for group, pair in named.items() if pair[1]},
        "alarms": rate(len(loud), len(answered)) | {"rewards": loud},
        "no_answer": [name for name, it in run["exhibits"].items() if it is None],
    }


def counts(museum: dict) -> dict:
    """All of it, for the record."""
    runs = [name for name in ("opening", "now") if name in museum]
    found = {name: ours(museum[name], MUSEUM["judged"].get(name) or {}) for name in runs}
    return found | {"tools": {t: others(t, run) for t, run in museum.get("tools", {}).items()}}


if __name__ == "__main__":
    path = Path(sys.argv[1])
    record = json.loads(path.read_text())
    record["museum"]["counts"] = counts(record["museum"])
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    print(json.dumps(record["museum"]["counts"], indent=1))
