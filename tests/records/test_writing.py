"""What gets in the way of writing, and the lock of a folder."""

import errno
import signal
import subprocess
import sys

import pytest

from casebook.case import CasebookError
from casebook.records.writing import alone_in, check_writable, write_trouble

HOLD = "import sys, time\nfrom pathlib import Path\nfrom casebook.records.writing import alone_in\n"
HOLD += "with alone_in(Path(sys.argv[1]), 'busy'):\n    print('held', flush=True)\n"
HOLD += "    time.sleep(600)\n"


def test_one_at_a_time_and_then_the_next(tmp_path):
    folder = tmp_path / "new" / "folder"
    with (
        alone_in(folder, "busy"),
        pytest.raises(CasebookError, match="somebody is there"),
        alone_in(folder, "somebody is there"),
    ):
        pass
    with alone_in(folder, "busy"):
        pass


def test_a_lock_of_a_dead_process_blocks_nobody(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(CasebookError, match="busy"), alone_in(tmp_path, "busy"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with alone_in(tmp_path, "busy"):
        pass


def test_an_error_inside_gives_the_lock_back(tmp_path):
    with pytest.raises(ValueError, match="mine"), alone_in(tmp_path, "busy"):
        raise ValueError("mine")
    with alone_in(tmp_path, "busy"):
        pass


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/nothing"])
def test_a_folder_that_cannot_be_is_one_sentence(tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(CasebookError, match="cannot be written"):
        check_writable(tmp_path / folder)


def test_a_folder_that_can_be_written_stays_empty(tmp_path):
    check_writable(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EROFS, "Read-only file system", "a/b"),
        PermissionError(errno.EACCES, "Permission denied", "a/b"),
        NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 128 vs 22"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
        RuntimeError('IoError(Os { code: 28, kind: StorageFull, message: "No space left" })'),
    ],
)
def test_trouble_with_writing_is_told_in_one_line(error):
    assert "\n" not in write_trouble(error)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("shapes do not match"), OSError("no such model"), KeyError("step"), OSError()],
)
def test_other_errors_are_not_taken_for_it(error):
    assert write_trouble(error) is None
