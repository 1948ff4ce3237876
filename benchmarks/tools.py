"""What tools say of a GRPO training's log, on runs whose fault is known: hits and false alarms.

    python benchmarks/tools.py doctor            casebook doctor on the tuning half
    python benchmarks/tools.py doctor --opened   and on the half that is opened once
    python benchmarks/tools.py others            what is installed of the other tools, same runs

The runs are the committed records of nano trainings (results/CASE/nano/ARM/), split by setting, a
case and an arm, not by seed: `half`. What a run has is told by what its record measured on test
rows before and after, and by its arm; neither is shown to a tool, which sees the training's curve
and its validation. A run is *healthy* where right answers in samples rose by 10 points or more, and
greedy ones lost less than 5. It is *faulty* where they rose by less than 5 points and its arm is
one that was made to fail (`FAULTS`): then one of the names there is a hit. The rest is unclear, and
is left out. Results go to results/benchmarks/doctor.json.
"""

import argparse
import json
import zlib
from pathlib import Path

from casebook import paths

HEALTHY, GREEDY, STILL = 0.10, -0.05, 0.05  # points of accuracy
FAULTS = {  # arm -> names that a tool may call it by
    "format_only": {"form_over_answer", "reward_hacking"},
    "random_reward": {"no_progress"},
    "lr_triple": {"rate_too_high", "kl_runaway"},
    "lora_alpha64": {"rate_too_high", "kl_runaway"},  # its steps are four times as large
    "hot": {"rate_too_high", "kl_runaway"},
    "hot_0": {"rate_too_high", "kl_runaway"},
    "hot_0.1": {"rate_too_high", "kl_runaway"},
    "size_tiny": {"form_over_answer", "rate_too_high", "reward_hacking"},
    "no_careful": {"form_over_answer", "silent_groups", "no_progress"},
    "label_version_1": {"silent_groups", "no_progress"},
}


def half(case: str, arm: str) -> str:
    """`tune` or `opened`: by the setting's name alone."""
    return ("tune", "opened")[zlib.crc32(f"{case}/{arm}".encode()) % 2]


def truth(record: dict) -> str | set[str] | None:
    """`healthy`, the names of its fault, or `None` where it is unclear."""
    before, after = record.get("before"), record.get("after")
    if not before or not after or "reward" not in record["curve"]:
        return None
    rose = {
        name: after[name]["value"] - before[name]["value"]
        for name in ("sampled_accuracy", "greedy_accuracy")
    }
    if rose["sampled_accuracy"] >= HEALTHY and rose["greedy_accuracy"] > GREEDY:
        return "healthy"
    fault = FAULTS.get(record["arm"])
    return fault if fault and rose["sampled_accuracy"] < STILL else None


def runs(wanted: str) -> list[tuple[Path, str | set[str]]]:
    found = []
    for path in sorted(paths.RESULTS.glob("*/nano/*/seed*.json")):
        record = json.loads(path.read_text())
        known = truth(record)
        if known and half(record["case"], record["arm"]) == wanted:
            found.append((path, known))
    return found


def main() -> None:
    from casebook.doctor import diagnose

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--opened", action="store_true")
    asked = parser.parse_args()
    for path, known in runs("opened" if asked.opened else "tune"):
        said = diagnose(path)
        names = {one.name for one in said.findings if one.sure >= 0.5}
        right = said.healthy if known == "healthy" else bool(names & known) and not said.healthy
        print(path.parts[-4:], known, right, sorted(names))


if __name__ == "__main__":
    main()
