"""Files are written whole or not at all, and by one process at a time."""

import errno
import math
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from casebook import paths
from casebook.case import CasebookError
from casebook.paths import alone_in, read_json, replacing, write_json, write_trouble

HOLD = "import sys, time\nfrom pathlib import Path\nfrom casebook.paths import alone_in\n"
HOLD += "with alone_in(Path(sys.argv[1]), 'busy'):\n    print('held', flush=True)\n"
HOLD += "    time.sleep(600)\n"


def test_nan_becomes_null_numpy_becomes_plain_and_keys_are_sorted(tmp_path):
    content = {
        "nan": math.nan,
        "inside": [np.float32("inf"), {"x": np.nan}],
        "count": np.int64(3),
        "table": np.eye(2, dtype=int),
        7: (1, 2),
    }
    write_json(tmp_path / "new" / "x.json", content)
    assert list(read_json(tmp_path / "new" / "x.json").items()) == [
        ("7", [1, 2]),
        ("count", 3),
        ("inside", [None, {"x": None}]),
        ("nan", None),
        ("table", [[1, 0], [0, 1]]),
    ]


def test_a_failure_in_the_middle_leaves_the_old_file(tmp_path, monkeypatch):
    def full_disk(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "record.json"
    write_json(path, 1)
    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, 2)
    assert read_json(path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["record.json"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    """As root, `--output /dev/full` would have made a file of the device."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(CasebookError, match="no regular file"), replacing(path):
            pass
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("content", [b'{"case": "poker", "prof', b"\xff\xfe\x00", b"[" * 10**5])
def test_a_damaged_file_is_one_sentence(tmp_path, content):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(CasebookError, match="not valid JSON") as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lock_of_a_dead_process_blocks_nobody(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(CasebookError, match="busy"), alone_in(tmp_path, "busy"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with alone_in(tmp_path, "busy"):
        pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), True),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 128"), True),
        (RuntimeError("shapes do not match"), False),
        (FileNotFoundError(errno.ENOENT, "No such file", "/gone/metrics.jsonl"), True),
        (FileNotFoundError(errno.ENOENT, "No such file", "/metrics.jsonl"), False),
    ],
)
def test_trouble_with_writing_is_told_in_one_line(error, told):
    assert bool(write_trouble(error)) is told
    assert "\n" not in str(write_trouble(error))


@pytest.mark.parametrize(
    ("folder", "colab", "mounted"),
    [
        ("/content/drive/MyDrive/casebook", True, ["/content/drive"]),
        (None, True, []),
        ("/content/drive/MyDrive/casebook", False, []),
    ],
)
def test_runs_on_drive_mount_it_on_colab(folder, colab, mounted, monkeypatch):
    asked, drive = [], types.ModuleType("google.colab.drive")
    drive.mount = asked.append
    module = types.ModuleType("google.colab")
    module.drive = drive
    if colab:
        monkeypatch.setitem(sys.modules, "google.colab", module)
    found = paths.runs_dir(folder)
    assert str(found) == folder or folder is None
    assert asked == mounted
    monkeypatch.setattr(paths.os.path, "ismount", lambda path: True)
    paths.runs_dir(folder)
    assert asked == mounted
