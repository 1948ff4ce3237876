"""The doctor as a command, as a page, and beside a live training."""

import json
import subprocess
import sys
from types import SimpleNamespace

from casebook.doctor import diagnose, table
from casebook.doctor.live import DoctorCallback

STUCK = [{"step": n, "reward": 0.1, "frac_reward_zero_std": 1.0, "loss": 0.1} for n in range(1, 41)]


def casebook(*arguments):
    run = "import sys, casebook.cli as c\ntry: c.main()\nfinally: assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", run, "doctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_exit_codes_json_and_page(tmp_path):
    ill, fine, page = tmp_path / "ill.jsonl", tmp_path / "fine.jsonl", tmp_path / "page.html"
    ill.write_text("\n".join(map(json.dumps, STUCK)))
    fine.write_text("\n".join(json.dumps({"step": n, "reward": n / 40}) for n in range(40)))
    told = casebook(ill, "--json", "--html", page)
    assert told.returncode == 1
    said = json.loads(told.stdout)
    assert {"healthy", "steps", "columns_read", "columns_ignored", "findings"} <= set(said)
    assert {"name", "step", "sure", "message", "evidence", "advice"} == set(said["findings"][0])
    assert "<svg" in page.read_text()
    assert casebook(fine).returncode == 0
    none = casebook(tmp_path / "nothing")
    assert (none.returncode, none.stdout, none.stderr.count("\n")) == (2, "", 1)


def test_a_page_of_any_log_can_be_drawn():
    for rows in ([], [{"kl": 1.0}], [{"step": 3, "reward": float("nan"), "loss": 1}], STUCK):
        assert "<svg" in (told := diagnose(table(rows)).html("<x>")) or not rows
        assert "<x>" not in told


def test_a_live_training_is_warned_of_once_and_by_an_alert(monkeypatch):
    sent, said = [], []
    wandb = SimpleNamespace(run=None, alert=lambda **told: sent.append(told["title"]))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    watch, args = DoctorCallback(said.append), SimpleNamespace(to_dict=dict)
    for step in range(1, 41):
        state = SimpleNamespace(global_step=step, log_history=STUCK[:step])
        watch.on_log(args, state, None)
    names = [text.split()[2].rstrip(":") for text in said]
    assert names[0] == "silent_groups"
    assert len(names) == len({*names})
    assert sent == []
    wandb.run = object()
    DoctorCallback(said.append).on_log(args, state, None)
    assert sent == names
    DoctorCallback(said.append, read=lambda: 1 / 0).on_log(args, state, None)
    assert "could not read" in said[-1]  # and the training goes on
