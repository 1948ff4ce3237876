"""What tools say of the log of a GRPO training, on runs whose fault is known: hits, false alarms.

    python benchmarks/tools.py --output results/benchmarks/doctor.json
    python benchmarks/tools.py --others ENV/bin/python --public DATA/runs --runs FOLDER ...

**Records.** Committed records of nano trainings (results/CASE/nano/ARM/), split by setting (a case
and an arm, never by seed) into a half to tune on and one to be opened once (`half`). What a run has
is told by what its record measured on *test* rows and by its arm; a tool sees neither, only curve
and validation. *Healthy*: right answers in samples rose by 10 points or more, greedy ones lost less
than 5. *Faulty*: they rose by less than 5, and the arm was made to fail (`FAULTS`): one of the
names there is a hit, if the tool also calls the run in need of mending. The rest is left out.

**Logs.** Other tools want every step. `--runs` names folders of finished runs (`casebook
experiments` leaves them below $RUNS_DIR); seed 0 of each setting of the opened half is given to all
tools as the same JSON lines in TRL's names, the validation as `eval/accuracy`. `--public` names
published logs with a `diagnosis.json` each, on which the doctor was tuned: there a hit is a sure
finding (0.5 or more) that the tool names. A tool is judged on what it claims to find (`CLAIMS`).
`--others` is a Python that has rldoctor 0.2.0, rlprobe 0.1.0 and rlwatch 0.5.1. rlvr-audit 0.1.0
reads rewards of single groups and no training log: `failures.py` asks it, and here it is not.
"""

import argparse
import json
import subprocess
import tempfile
import zlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from scipy.stats import binomtest

from casebook import paths
from casebook.doctor import diagnose, read_log
from casebook.records import provenance

FROZEN = "15d6a99"  # the commit that fixed the doctor's bounds, before the opened half was opened
MENDED = {  # rules that were changed after that, and what the opened half said before (ceb7b2d)
    "at_opening": {"left_in_peace": 98, "healthy": 105, "named": 21, "faulty": 28},
    "rules": "no_progress is silent where an evaluation clearly rose; a held-out reward, or an "
    "evaluation of right answers, that clearly falls is a reward_hacking of 60 %; a fall of the "
    "reward in a log of few rows has to be of three standard errors, unless answers fell as well: "
    "noise alone was a rate_too_high in a third of such logs; a part is one for form by its whole "
    "name; a reward that rose and fell is said to have fallen; a pair that is right twice is no "
    "sign of a solved prompt (no verdict changed by these three)",
    "verdicts_changed": [
        "math/left_cut: one healthy run, no_progress before, is left alone",
        "landuse/hot_0.1: one faulty run, rate_too_high before, is not named",
    ],
}
HEALTHY, GREEDY, STILL = 0.10, -0.05, 0.05  # points of accuracy
STEPS = {"rate_too_high", "kl_runaway"}
FAULTS = {  # arm -> names that a tool may call it by
    "format_only": {"form_over_answer", "reward_hacking"},
    "random_reward": {"no_progress"},
    **dict.fromkeys(("lr_triple", "lora_alpha64", "hot", "hot_0", "hot_0.1"), STEPS),
    "size_tiny": {"form_over_answer", "rate_too_high", "reward_hacking"},
    "no_careful": {"form_over_answer", "silent_groups", "no_progress"},
    "label_version_1": {"silent_groups", "no_progress"},
}
CLAIMS = {  # tool -> its detector -> our names for what it finds
    "rldoctor": {
        "advantage_collapse": {"silent_groups"},
        "entropy_collapse": {"label_collapse"},
        "reward_hacking": {"reward_hacking", "form_over_answer"},
        "length_pathology": {"truncation", "length_runaway", "length_collapse"},
        "kl_drift": {"kl_runaway"},
        "gradient_pathology": {"rate_too_high"},
        "reward_composition": {"dead_reward", "form_over_answer"},
        "plateau": {"no_progress", "saturated_reward"},
    },
    "rlprobe": {
        "KL_BLOWUP": {"kl_runaway"},
        "ENTROPY_COLLAPSE": {"label_collapse"},
        "REWARD_HACK_LENGTH": {"reward_hacking", "length_runaway"},
        "FORMAT_GAMING": {"form_over_answer", "reward_hacking"},
        "DEGENERATE_GROUPS": {"silent_groups"},
        "ADV_COLLAPSE": {"silent_groups"},
        "GRAD_PATHOLOGY": {"rate_too_high"},
        "TRUNCATION_STARVE": {"truncation"},
        "REPETITION_SPIRAL": {"repetition"},
        "REWARD_STD_DEATH": {"silent_groups", "saturated_reward"},
    },
    "rlwatch": {
        "entropy_collapse": {"label_collapse"},
        "kl_explosion": {"kl_runaway"},
        "reward_hacking": {"reward_hacking"},
        "advantage_variance": {"rate_too_high"},
        "gradient_norm_spike": {"rate_too_high"},
        "reward_mean_drift": {"rate_too_high", "no_progress"},
    },
}
ADAPTERS = {  # each prints the detectors that spoke, those of the highest severity with a "!"
    "rldoctor": """
import json, subprocess, sys
tool = sys.executable.rpartition("/")[0] + "/rldoctor"
said = subprocess.run([tool, "diagnose", sys.argv[1], "-f", "json"], capture_output=True, text=True)
for one in json.loads(said.stdout)["findings"]:
    if one["severity"] in ("WARNING", "CRITICAL"):
        print(one["detector"] + "!" * (one["severity"] == "CRITICAL"))
""",
    "rlprobe": """
import json, subprocess, sys, tempfile, re
from rlprobe.recorder import Recorder
keys = {"reward": "reward_mean", "reward_std": "reward_std", "kl": "kl_mean", "loss": "loss",
        "frac_reward_zero_std": "zero_variance_group_frac", "entropy": "entropy_mean",
        "learning_rate": "lr", "grad_norm": "grad_norm", "step_time": "step_time_s",
        "completions/mean_length": "completion_len_mean",
        "completions/max_length": "completion_len_max",
        "completions/clipped_ratio": "truncation_rate"}
folder = tempfile.mkdtemp() + "/run"
with Recorder(folder, algorithm="grpo", capture_env=False, install_handlers=False) as recorder:
    for step, line in enumerate(open(sys.argv[1])):
        row = json.loads(line)
        if "reward" in row:
            parts = {k.split("/")[1]: v for k, v in row.items() if re.match("rewards/.*/mean", k)}
            known = {keys[k]: v for k, v in row.items() if k in keys}
            recorder.log_step(step, **known, reward_components=parts)
tool = sys.executable.rpartition("/")[0] + "/rlprobe"
said = subprocess.run([tool, "doctor", folder, "--json"], capture_output=True, text=True)
for one in json.loads(said.stdout):
    if one["severity"] != "info":
        print(one["signature_id"] + "!" * (one["severity"] == "critical"))
""",
    "rlwatch": """
import json, sys, os, tempfile, logging
os.chdir(tempfile.mkdtemp())
import rlwatch
from rlwatch.config import RLWatchConfig
from rlwatch.core import RLWatch
watch, spoken = RLWatch(RLWatchConfig()), set()
for step, line in enumerate(open(sys.argv[1])):
    row = json.loads(line)
    if "reward" in row:
        names = {"reward_mean": "reward", "kl_divergence": "kl"}
        names |= {n: n for n in ("entropy", "reward_std", "loss", "learning_rate", "grad_norm")}
        spoken |= {(a.detector, a.severity) for a in
                   watch._detectors.check_step(step, **{n: row[k] for n, k in names.items()
                                                        if k in row and n != "learning_rate"})}
for name, severity in spoken:
    print(name + "!" * (severity == "critical"))
""",
}

GROUPS = {  # as `CLAIMS`, of a tool that reads rewards of single groups and no training log
    "rlvr-audit": {
        "zero_variance": {"silent_groups"},
        "STARVED": {"silent_groups", "no_progress"},
        "SATURATED": {"silent_groups", "saturated_reward"},
        "SOFT_PLATEAU": {"silent_groups", "saturated_reward"},
        "DEPENDENCE_DEAD": {"label_collapse"},
        "PSEUDO_SIGNAL": {"reward_hacking", "no_progress"},
    },
}
ADAPTERS["rlvr-audit"] = """
import json, subprocess, sys
groups = [json.loads(line) for line in open(sys.argv[1])]
tool = sys.executable.rpartition("/")[0] + "/rlvr-audit"
size = str(len(groups[0]["rewards"]))
said = subprocess.run([tool, "inspect", "--file", sys.argv[1], "--G", size],
                      capture_output=True, text=True)
report = json.loads(said.stdout)
for verdict, count in report["verdict_histogram"].items():
    if verdict != "HEALTHY" and count >= report["n_prompts"] / 2:
        print(verdict)
if report["advantage_collapse"]["frac_zero_variance_groups"] >= 0.5:
    print("zero_variance")
"""


def half(case: str, arm: str) -> str:
    """`tune` or `opened`, by the setting's name alone."""
    return ("tune", "opened")[zlib.crc32(f"{case}/{arm}".encode()) % 2]


def truth(record: dict) -> str | set[str] | None:
    """`healthy`, the names of its fault, or `None` where it is unclear."""
    before, after = record.get("before"), record.get("after")
    if not before or not after or "reward" not in record["curve"]:
        return None
    ways = ("sampled_accuracy", "greedy_accuracy")
    sampled, greedy = (after[way]["value"] - before[way]["value"] for way in ways)
    if sampled >= HEALTHY and greedy > GREEDY:
        return "healthy"
    fault = FAULTS.get(record["arm"])
    return fault if fault and sampled < STILL else None


def said_by_doctor(path: Path) -> tuple[set[str], bool]:
    """What the doctor names, and whether it would mend the run."""
    said = diagnose(path)
    return {one.name for one in said.findings if one.sure >= 0.5}, not said.healthy


def said_by(tool: str, python: str, path: Path) -> set[str] | None:
    """Detectors of another tool that spoke; `None` where it fails."""
    asked = [python, "-c", ADAPTERS[tool], str(path)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300)
    return set(done.stdout.split()) if done.returncode == 0 else None


def as_lines(path: Path, folder: Path) -> Path:
    """A log as JSON lines in TRL's names: what every tool is given."""
    log = read_log(path)
    names = {"silent": "frac_reward_zero_std", "length": "completions/mean_length"}
    names |= {"clipped": "completions/clipped_ratio", "length_max": "completions/max_length"}
    names |= {c: f"rewards/{c[5:]}/mean" for c in log.steps if c.startswith("part/")}
    names |= {c: f"rewards/{c[9:]}/std" for c in log.steps if c.startswith("part_std/")}
    rows = log.steps.rename(columns=names).to_dict("records")
    held_out = {"lenient_accuracy": "eval/accuracy", "eval_reward": "eval/reward"}
    rows += log.evaluations.rename(columns=held_out).to_dict("records")
    kept = ({k: v for k, v in row.items() if v == v} for row in rows)  # without NaN
    file = Path(tempfile.mkstemp(suffix=".jsonl", dir=folder)[1])
    file.write_text("\n".join(map(json.dumps, sorted(kept, key=lambda row: row.get("step", 0)))))
    return file


def rate(count: int, of: int) -> dict:
    """A share with its 95 % interval, as if runs of one setting were independent."""
    found = binomtest(count, of).proportion_ci(method="wilson") if of else (0.0, 1.0)
    low, high = (round(float(bound), 3) for bound in found)
    return {"count": count, "of": of, "low": low, "high": high}


def on_records() -> dict:
    """The doctor on both halves of the committed records."""
    found = {name: {"by_setting": {}} for name in ("tune", "opened")}
    for path in sorted(paths.RESULTS.glob("*/nano/*/seed*.json")):
        record = json.loads(path.read_text())
        if known := truth(record):
            setting = f"{record['case']}/{record['arm']}"
            names, ill = said_by_doctor(path)
            kind = "healthy" if known == "healthy" else "faulty"
            rows = found[half(record["case"], record["arm"])]["by_setting"]
            row = rows.setdefault(setting, {}).setdefault(kind, {"runs": 0, "right": 0, "said": {}})
            row["runs"] += 1
            row["right"] += not ill if kind == "healthy" else bool(ill and names & known)
            row["said"] = dict(Counter(row["said"]) + Counter(names))
    for part in found.values():
        for kind, title in (("healthy", "left_in_peace"), ("faulty", "named")):
            rows = [row[kind] for row in part["by_setting"].values() if kind in row]
            part[title] = rate(sum(r["right"] for r in rows), sum(r["runs"] for r in rows))
            part[f"settings_{kind}"] = len(rows)
    return found


def on_logs(python: str, runs: list[Path], public: Path | None, folder: Path) -> dict:
    """Every tool on the same JSON lines."""
    cases = []  # name, log, sure findings or accepted names, healthy
    for path in sorted(file for root in runs for file in root.glob("**/seed0-*/record.json")):
        case, arm = path.parts[-5], path.parts[-3]
        known = truth(json.loads(path.read_text()) | {"arm": arm})
        if known and half(case, arm) == "opened":
            cases.append(("nano", path.parent, known, known == "healthy"))
    for path in sorted(public.glob("*/diagnosis.json")) if public else ():
        told = json.loads(path.read_text())
        sure = {one["name"] for one in told["findings"] if one["sure"] >= 0.5}
        log = next(f for f in path.parent.iterdir() if f.stem not in ("diagnosis", "origin"))
        cases.append(("public", log, sure, told["healthy"]))
    claims = {"doctor": None, **CLAIMS, "rldoctor, critical alone": CLAIMS["rldoctor"]}
    scores = {kind: {tool: Counter() for tool in claims} for kind in ("nano", "public")}
    for kind, log, known, fine in cases:
        file = as_lines(log, folder)
        spoken = {tool: said_by(tool, python, file) for tool in CLAIMS}
        strict = {name for name in spoken["rldoctor"] or () if name.endswith("!")}
        spoken["rldoctor, critical alone"] = strict
        for tool, table in claims.items():
            score = scores[kind][tool]
            if table is None:
                names, alarm = said_by_doctor(file)
                claimed = known
            else:
                said = {name.rstrip("!") for name in spoken[tool] or ()}
                names, alarm = set().union(*(table.get(name, set()) for name in said)), bool(said)
                claimed = known & set().union(*table.values()) if known != "healthy" else known
            score["failed"] += table is not None and spoken[tool] is None
            score["healthy"] += fine
            score["alarms"] += fine and alarm
            if kind == "public":
                score["findings"] += len(known)
                score["claimed"] += len(claimed)
                score["named"] += len(claimed & names)
            elif not fine:
                score["findings"] += 1
                score["claimed"] += bool(claimed)
                score["named"] += bool(claimed & names) and alarm
    return {
        kind: {
            tool: {
                "named_of_claimed": rate(score["named"], score["claimed"]),
                "named_of_all": rate(score["named"], score["findings"]),
                "alarms_on_healthy": rate(score["alarms"], score["healthy"]),
                "failed": score["failed"],
            }
            for tool, score in of_kind.items()
        }
        for kind, of_kind in scores.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--others", help="a Python that has the other tools")
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--public", type=Path)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    record = {"benchmark": "doctor", "bounds_fixed_by": FROZEN, "mended": MENDED}
    record["records"] = on_records()
    if asked.others:
        with tempfile.TemporaryDirectory() as folder:
            record["logs"] = on_logs(asked.others, asked.runs, asked.public, Path(folder))
        record["versions_of_others"] = {"rldoctor": "0.2.0", "rlprobe": "0.1.0", "rlwatch": "0.5.1"}
    elif asked.output and asked.output.exists():  # what was said of whole logs stays, as of then
        old = paths.read_json(asked.output)
        kept = ("logs", "versions_of_others")
        record |= {name: old[name] for name in kept if name in old}
        record["logs_of"] = old.get("logs_of") or old["provenance"]["git"]["revision"][:7]
    record |= {"date": str(datetime.now(UTC).date()), "provenance": provenance()}
    print(json.dumps({k: v for k, v in record.items() if k != "provenance"}, indent=1))
    if asked.output:
        paths.write_json(asked.output, record)


if __name__ == "__main__":
    main()
