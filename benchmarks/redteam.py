"""What testers of rewards find in rewards whose fault is known, and what they say of sound ones.

    python benchmarks/redteam.py --output results/benchmarks/redteam.json [--others FOLDER]

**Rewards.** Those of `tests/redteam/faulty.py`: each has one known fault, and three are sound. They
were written together with our red team, by the same people, so its own row is no fair measure of
it; the rows of the others show what they cover, not how good they are at what they claim.

**Rules.** A tool is given the reward and the rows (prompt and answer; ours the examples as well).
It has *caught* a fault if it complains of something of which it does not complain in the sound
reward of the same kind; that falsepass finds no format which is paid, and stops, is a complaint. An
*alarm* is a sound reward that does not pass the check that the tool offers for continuous
integration. Only ours can be told that a reward is for form alone: those count apart. A tool that
gives no answer within LIMIT seconds has not caught the fault.

**The museum.** `--museum opening` was run once, on the rewards of `benchmarks/museum/` as they were
committed before an attack was read; `--museum now` after a change of the red
team, `--museum TOOL --others FOLDER` for another tool. `benchmarks/museum/counts.py` counts.

FOLDER holds an environment per tool, v-falsepass and so on, made by pip: falsepass 0.11.0,
reward-doctor 0.2.0, rewardprobe 0.1.0, gradecheck 0.1.0. falsepass starts an environment of its own
for each audit; here its runner is called in the one that it is installed in. gradecheck attacks
environments of the package verifiers; here a stub stands for one. reward-contract-fuzzer 0.2.0
plays decision processes, reads no completion, and is left out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from casebook import CasebookError, paths
from casebook.records import provenance
from casebook.redteam import redteam

sys.path.insert(0, str(paths.ROOT / "tests" / "redteam"))
sys.path.insert(0, str(paths.ROOT / "benchmarks" / "museum"))
import check
from test_redteam import FAULTS, FAULTY, FORM, HANDS, TASKS, examples, kinds

LIMIT = 60
MUSEUM = paths.ROOT / "benchmarks" / "museum"
SOUND = {"number": "sound_number", "label": "sound_label", "form": "sound_form"}
VERSIONS = {"falsepass": "0.11.0", "reward-doctor": "0.2.0", "rewardprobe": "0.1.0"}
VERSIONS |= {"gradecheck": "0.1.0"}
# Each prints a list of complaints, and whether the reward passes: a line of JSON.
ADAPTERS = {
    "falsepass": """
import json, pathlib, subprocess, sys, tempfile
reward, name, data = sys.argv[1:]
folder = pathlib.Path(tempfile.mkdtemp())
quoted = {"id": "local/it", "framework": "reward", "task": reward, "dataset": data}
lines = ["[env]"] + [f"{key} = {json.dumps(value)}" for key, value in quoted.items()]
(folder / "env.toml").write_text("\\n".join([*lines, f'functions = ["{name}"]']))
call = [sys.executable, "-m", "falsepass.runner", str(folder), "--search", "60"]
gates = ["--fail-on", "ceiling>0.1", "--fail-on", "errors>0"]
done = subprocess.run(call + gates, capture_output=True, text=True)
if (folder / "stopped.md").exists():
    print(json.dumps([["stopped"], False]))
    sys.exit()
found = json.loads((folder / "probe-results.json").read_text())
said = {f"{it['probe']} {it['variant']}" for it in found["results"] if not it["passed"]}
print(json.dumps([sorted(said), done.returncode == 0]))
""",
    "reward-doctor": """
import json, subprocess, sys
reward, name, data = sys.argv[1:]
tool = sys.executable.rpartition("/")[0] + "/reward-doctor"
call = [tool, "audit", f"{reward}:{name}", "-f", "json"]
done = subprocess.run(call, capture_output=True, text=True)
said = [it["id"] for it in json.loads(done.stdout)["failures"]]
print(json.dumps([said, done.returncode == 0]))
""",
    "rewardprobe": """
import json, subprocess, sys, tempfile
reward, name, data = sys.argv[1:]
tool, file = sys.executable.rpartition("/")[0] + "/rewardprobe", tempfile.mktemp()
call = [tool, "test", f"{reward}::{name}", "-a", "trl", "-d", data, "--ci", "-o", file]
done = subprocess.run(call, capture_output=True, text=True)
families = json.load(open(file))["families"]
said = [it["attack"] for family in families for it in family["findings"]]
print(json.dumps([said, done.returncode == 0]))
""",
    "gradecheck": """
import importlib.util, json, sys, types
from gradecheck import completion_attacks
reward, name, data = sys.argv[1:]
spec = importlib.util.spec_from_file_location("it", reward)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
rows = [json.loads(line) for line in open(data)]
form = rows[0].pop("form", "<think>so</think>\\n<answer>{}</answer>")
told = lambda answer: form.replace("{}", str(answer))
pay = lambda row, text: getattr(module, name)(
    prompts=[row["prompt"]], completions=[text],
    **{key: [row[key]] for key in row if key not in ("prompt", "form")})[0]
best = max(pay(row, told(row["answer"])) for row in rows)
env = types.SimpleNamespace(
    examples=[types.SimpleNamespace(index=n, answer=row["answer"], observation_text=row["prompt"],
                                    row=row) for n, row in enumerate(rows)],
    score=lambda one, text: pay(one.row, text), solved=lambda paid: paid >= best,
    pass_threshold=best, format_payload=told, formatted_gold=told)
found = completion_attacks.run_all(env)
bad = [it for it in found if it.verdict in (completion_attacks.FOOLED, completion_attacks.WARN)]
fooled = [it for it in bad if it.verdict == completion_attacks.FOOLED]
print(json.dumps([[it.attack for it in bad], not fooled]))
""",
}


def ours(name: str, file: Path) -> tuple[set[str], bool]:
    """What `casebook redteam` complains of, and whether the reward passes."""
    kind = "form" if name in FORM else "answer"
    found = kinds(redteam(f"{FAULTY}:{name}", file, kind))
    return found, not found


def said_by(tool: str, python: Path, name: str, file: Path) -> tuple[set[str], bool] | None:
    """The same of another tool; `None` where it fails or gives no answer in time."""
    rows = {}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        rows[row["prompt"]] = {"prompt": f"{row['prompt']} Think in <think> tags, and answer in "
                               "<answer> tags.", "answer": row["answer"]}  # fmt: skip
    data = file.with_name("rows.jsonl")
    data.write_text("\n".join(map(json.dumps, rows.values())))
    return complaints(tool, python, FAULTY, name, data)


def complaints(tool: str, python: Path, reward: Path, name: str, data: Path):
    """What a tool prints of a reward, given rows; `None` where it fails or is late."""
    call = [str(python), "-c", ADAPTERS[tool], str(reward), name, str(data)]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT)
        found, passes = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return None
    return set(found), passes


def through_the_museum() -> dict[str, dict]:
    """Each exhibit of the museum under attack: which known faults were named, and all findings."""
    said = {}
    for exhibit in check.MUSEUM["exhibits"]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "examples.jsonl"
            file.write_text("\n".join(map(json.dumps, check.rows(exhibit))))
            try:
                report = redteam(f"{MUSEUM / 'rewards.py'}:{exhibit['name']}", file, exhibit["of"])
            except CasebookError as error:
                report = {"findings": [], "seconds": 0, "complete": False, "refused": str(error)}
        found = {it["kind"]: it for it in report["findings"]}
        shown = ("completion", "expected", "got")
        said[exhibit["name"]] = {
            "seconds": report["seconds"],
            "complete": report["complete"],
            "faults": [
                {"fault": it["plain"], "listed": bool(it["kinds"])}
                | {"named": sorted(set(it["kinds"]) & set(found))}
                for it in exhibit["faults"]
            ],
            "findings": {k: [str(it[key])[:160] for key in shown] for k, it in found.items()},
            "habits": report.get("habits", {}),
        } | ({"refused": report["refused"]} if "refused" in report else {})
        print(exhibit["name"], json.dumps(said[exhibit["name"]], indent=1), flush=True)
    return said


def others_in_the_museum(tool: str, python: Path) -> dict[str, list | None]:
    """What another tool says of each exhibit: its complaints, and whether the reward passes. It is
    given the rows, and the form in words behind each prompt and (gradecheck) as a column."""
    said = {}
    for exhibit in check.MUSEUM["exhibits"]:
        words = exhibit["right"].format(thought="your reasoning", answer="your answer")
        rows = {}
        for row in check.rows(exhibit):
            kept = {k: v for k, v in row.items() if k not in ("completion", "right")}
            kept["prompt"] += f" Reply in this form: {words}"
            form = exhibit["right"].format(thought="so", answer="{}")
            rows[row["prompt"]] = kept | ({"form": form} if tool == "gradecheck" else {})
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "rows.jsonl"
            data.write_text("\n".join(map(json.dumps, rows.values())))
            found = complaints(tool, python, MUSEUM / "rewards.py", exhibit["name"], data)
        said[exhibit["name"]] = found and [sorted(found[0]), found[1]]
        print(tool, exhibit["name"], said[exhibit["name"]], flush=True)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--others", type=Path, help="a folder with an environment for each tool")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--museum", choices=("opening", "now", *ADAPTERS))
    asked = parser.parse_args()
    if asked.museum:
        record = json.loads(asked.output.read_text())
        museum = record.setdefault("museum", {})
        if asked.museum in museum and asked.museum == "opening":
            raise SystemExit("the first opening is on record, and stays")
        told = {"date": str(datetime.now(UTC).date()), "revision": provenance()["git"]["revision"]}
        if asked.museum in ADAPTERS:
            python = asked.others / f"v-{asked.museum}" / "bin" / "python"
            told |= {"version": VERSIONS[asked.museum]}
            told |= {"exhibits": others_in_the_museum(asked.museum, python)}
            museum.setdefault("tools", {})[asked.museum] = told
        else:
            museum[asked.museum] = told | {"exhibits": through_the_museum()}
        paths.write_json(asked.output, record)
        return
    tools = {"casebook": ours}
    for tool in ADAPTERS if asked.others else ():
        python = asked.others / f"v-{tool}" / "bin" / "python"
        tools[tool] = lambda name, file, tool=tool, python=python: said_by(tool, python, name, file)
    form = len(set(FORM) & set(FAULTS))
    record = {"benchmark": "redteam", "faults": len(FAULTS) - form, "faults_of_form": form}
    record["tools"] = {}
    for tool, run in tools.items():
        said, start = {}, time.monotonic()
        for name in (*SOUND.values(), *FAULTS):
            prompt = "high card, one pair, flush, full house\n{}"
            with tempfile.TemporaryDirectory() as folder:
                task = TASKS.get(name, TASKS["numbers"])
                file = examples(Path(folder), task, prompt=prompt if task is HANDS else "{}")
                said[name] = run(name, file)
        caught = []
        for name in FAULTS:
            twin = "form" if name in FORM else "label" if TASKS.get(name) is HANDS else "number"
            known = said[SOUND[twin]] or (set(), True)
            caught += [name] if said[name] and said[name][0] - known[0] else []
        record["tools"][tool] = {
            "version": VERSIONS.get(tool, "this commit"),
            "caught": len(set(caught) - set(FORM)),
            "caught_of_form": len(set(caught) & set(FORM)),
            "missed": [name for name in FAULTS if name not in caught],
            "no_answer": [name for name in said if said[name] is None],
            "alarms": [name for name in SOUND.values() if said[name] and not said[name][1]],
            "seconds": round(time.monotonic() - start),
        }
        if tool == "casebook":
            named = [name for name in FAULTS if FAULTS[name] in said[name][0]]
            record["tools"][tool]["named"] = len(named)
        print(tool, json.dumps(record["tools"][tool], indent=1), flush=True)
    record |= {"date": str(datetime.now(UTC).date()), "provenance": provenance()}
    if asked.output:
        paths.write_json(asked.output, record)


if __name__ == "__main__":
    main()
