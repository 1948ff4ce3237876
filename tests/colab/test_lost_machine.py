"""A machine that is lost in the middle of a training: what lies on Drive goes on elsewhere."""

import json
import shutil
import time

import pytest

pytestmark = pytest.mark.heavy


def wait_for(found, process, seconds=600):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if found():
            return
        time.sleep(0.2)
    raise AssertionError(process.communicate()[0][-3000:])


@pytest.mark.parametrize("profile", ["t4", "a100"])
def test_a_killed_training_goes_on_from_another_folder(profile, small_checkout, start, tmp_path):
    checkout = small_checkout("poker", profile)
    config = f"configs/poker/{profile}.yaml"
    first, second = tmp_path / "drive/run", tmp_path / "other drive/run"
    process = start(checkout, "train", "--config", config, "--output", str(first))
    wait_for(lambda: list(first.rglob("checkpoint-1/trainer_state.json")), process)
    process.kill()
    process.wait()
    assert not (first / "record.json").exists()
    second.parent.mkdir()
    shutil.move(first, second)

    process = start(checkout, "train", "--config", config, "--output", str(second), "--resume")
    said = process.communicate()[0]
    assert process.returncode == 0, said[-3000:]
    assert json.loads((second / "record.json").read_text())["adapter_largest_change"] > 0
    steps = [json.loads(line) for line in (second / "metrics.jsonl").read_text().splitlines()]
    assert [s["step"] for s in steps if "reward" in s] == [1, 2, 3]
    assert not first.exists()
