"""Do the museum's exhibits do what the museum says? Builds its rows and tries every witness.

python benchmarks/museum/check.py
"""

import multiprocessing
from pathlib import Path

import rewards
import yaml

MUSEUM = yaml.safe_load((Path(__file__).parent / "museum.yaml").read_text())


def columns_of(exhibit, problem):
    """The columns that the exhibit's reward reads, for one problem; lists and numbers stay so."""
    patterns = exhibit.get("columns") or {}
    plain = {name: problem.get(p.strip("{}")) for name, p in patterns.items()}
    return {
        n: v if (v := plain[n]) is not None else p.format(**problem) for n, p in patterns.items()
    }


def rows(exhibit):
    """Six rows as a user would write them: three prompts, each with a right and a wrong reply."""
    return [
        {
            "prompt": problem["prompt"],
            "completion": exhibit["right" if right else "wrong"].format(**problem),
            "answer": str(problem.get("target", problem["answer"])),
            **columns_of(exhibit, problem),
            "right": right,
        }
        for problem in MUSEUM["problems"][exhibit["problems"]]
        for right in (True, False)
    ]


def paid(exhibit, row, *replies):
    """What the reward gives to replies to one prompt, in one batch."""
    columns = {n: [row[n]] * len(replies) for n in exhibit.get("columns") or {}}
    function = getattr(rewards, exhibit["name"])
    return function(prompts=[row["prompt"]] * len(replies), completions=list(replies), **columns)


def hangs(exhibit, row, reply, seconds=5):
    """Whether the reward is still at work after some seconds."""
    process = multiprocessing.Process(target=paid, args=(exhibit, row, reply))
    process.start()
    process.join(seconds)
    late = process.is_alive()
    process.kill()
    return late


def shown(exhibit, fault):
    """Whether the fault's witness shows what the fault says."""
    right, wrong = rows(exhibit)[2 * fault.get("row", 0) :][:2]
    start, piece, times = fault.get("repeat", (fault.get("reply", ""), "", 0))
    reply = start + piece * times
    if "hangs" in fault:
        return hangs(exhibit, right, reply)
    if "varies" in fault:
        alone = [paid(exhibit, right, reply, other)[0] for other in (reply + "!", reply * 9)]
        beside = paid(exhibit, right, reply, wrong["completion"])[0]
        return len({*alone, beside}) > 1
    good, bad, this = paid(exhibit, right, right["completion"], wrong["completion"], reply)
    if "pays" in fault:
        return this == fault["pays"]
    if fault.get("paid") == "always":
        return good == bad == this
    return this > bad if "paid" in fault else this < good


def main():
    """A line for each exhibit; a sentence for what does not hold."""
    for exhibit in MUSEUM["exhibits"]:
        odd = []
        for right, wrong in zip(rows(exhibit)[::2], rows(exhibit)[1::2], strict=True):
            good, bad = paid(exhibit, right, right["completion"], wrong["completion"])
            odd += [f"{right['prompt'][:20]}: {good} and {bad}"] if not good > bad else []
        bare = [f["what"] for f in exhibit["faults"] if not shown(exhibit, f)]
        print(exhibit["name"], len(exhibit["faults"]), "examples:", odd, "not shown:", bare)


if __name__ == "__main__":
    main()
