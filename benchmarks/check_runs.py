"""What a run folder holds after its job was stopped and went on: one whole run, or part of one."""

import argparse
from pathlib import Path

from casebook.training import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--stopped", action="store_true", help="it is not to have a record")
    asked = parser.parse_args()
    run = Run(asked.run)
    steps = run.metrics()["step"].tolist()
    if asked.stopped:
        assert not run.finished
        assert run.checkpoint()
        print(f"{asked.run.name}: no record, {run.checkpoint().name} is whole")
        return
    record = run.record()
    assert steps == list(range(1, asked.steps + 1)), steps
    assert record["steps"] == asked.steps
    assert record["after"]["greedy_accuracy"]["n"] == record["before"]["greedy_accuracy"]["n"] > 0
    assert record["adapter_largest_change"] > 0
    written = run.completions().groupby("step").size()
    assert set(written) == {record["samples"] // asked.steps}, written.to_dict()
    print(
        f"{asked.run.name}: one record, steps 1 to {asked.steps} once each, {record['samples']} "
        f"completions, measured before and after on {record['after']['greedy_accuracy']['n']} rows"
    )


if __name__ == "__main__":
    main()
