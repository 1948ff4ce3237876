"""Files of W&B's offline runs: read whole, damaged anywhere, and against what wandb writes."""

import json
import struct
import sys
import zlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("wandb")
from wandb.proto.wandb_internal_pb2 import Record

from casebook import wandb_files
from casebook.case import CasebookError
from casebook.wandb_files import offline_files, read_run, read_runs

STEPS = 30


def history(**values):
    record = Record()
    for name, value in values.items():
        record.history.item.add(nested_key=[name.replace("__", "/")], value_json=json.dumps(value))
    return record


def a_run(run_id="abc", steps=range(1, STEPS + 1), finished=True):
    """The records of a small run: config, a history with two calls a step, summary, artifact."""
    first = Record()
    first.run.run_id, first.run.project, first.run.display_name = run_id, "rlvr-casebook", "a run"
    first.run.config.update.add(key="casebook", value_json='{"beta": 0.04}')
    yield first
    for step in steps:
        yield history(train__global_step=step, train__reward=step / 10)
        yield history(train__global_step=step, eval__greedy_accuracy=0.5)
    summary = Record()
    summary.summary.update.add(nested_key=["outer", "inner"], value_json="3")
    summary.summary.update.add(key="gone", value_json="1")
    yield summary
    removal = Record()
    removal.summary.remove.add(key="gone")
    yield removal
    artifact = Record()
    artifact.artifact.name, artifact.artifact.type = "record-gsm8k", "record"
    artifact.artifact.manifest.contents.add(path="record.json", size=7)
    yield artifact
    if finished:
        last = Record()
        last.exit.runtime = 5
        yield last


def packed(records):
    """A file of records, with the pieces of LevelDB's log format."""
    content = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
    for record in records:
        rest = record if isinstance(record, bytes) else record.SerializeToString()
        begun = False
        while True:
            room = 2**15 - len(content) % 2**15
            if room < 7:
                content += bytes(room)
                room = 2**15
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = {(0, 0): 1, (0, 1): 2, (1, 1): 3, (1, 0): 4}[begun, bool(rest)]
            checksum = zlib.crc32(bytes([kind]) + piece)
            content += struct.pack("<IHB", checksum, len(piece), kind) + piece
            begun = True
            if not rest:
                break
    return bytes(content)


WHOLE = packed(a_run())
BORDERS = {len(packed(list(a_run())[:count])) for count in range(len(list(a_run())) + 1)}


def write(folder, content, run_id="abc", day=1):
    place = folder / "wandb" / f"offline-run-202611{day:02}_120000-{run_id}"
    place.mkdir(parents=True)
    file = place / f"run-{run_id}.wandb"
    file.write_bytes(content)
    return file


# A whole file


def test_a_whole_file_gives_back_what_was_logged(tmp_path):
    run = read_run(write(tmp_path, WHOLE))
    assert (run.id, run.name, run.project) == ("abc", "a run", "rlvr-casebook")
    assert (run.complete, run.damage) == (True, "")
    assert run.config == {"casebook": {"beta": 0.04}}
    assert run.summary == {"outer": {"inner": 3}}
    (artifact,) = run.artifacts
    assert (artifact["name"], artifact["type"]) == ("record-gsm8k", "record")
    assert artifact["files"] == {"record.json": 7}


def test_a_step_is_one_row_however_often_it_was_logged(tmp_path):
    frame = read_run(write(tmp_path, WHOLE)).history()
    assert len(frame) == STEPS
    assert frame["train/reward"].tolist() == [step / 10 for step in range(1, STEPS + 1)]
    assert (frame["eval/greedy_accuracy"] == 0.5).all()


def test_a_curve_is_over_the_training_steps(tmp_path):
    curve = read_run(write(tmp_path, WHOLE)).curve("train/reward")
    assert curve.index.tolist() == list(range(1, STEPS + 1))
    assert curve.loc[7] == 0.7


def test_a_metric_that_was_not_logged_is_named_with_those_that_were(tmp_path):
    run = read_run(write(tmp_path, WHOLE))
    with pytest.raises(CasebookError, match=r"no 'train/loss': it has eval/greedy_accuracy, tr"):
        run.curve("train/loss")


def test_a_record_longer_than_a_block_is_put_together(tmp_path):
    long = history(train__global_step=1, note="x" * 100_000)
    run = read_run(write(tmp_path, packed([long, *a_run()])))
    assert len(run.rows[0]["note"]) == 100_000
    assert run.complete


@pytest.mark.parametrize("size", range(32_730, 32_770))
def test_a_record_may_end_anywhere_in_a_block(tmp_path, size):
    filler = Record()
    filler.output_raw.line = "x" * (size - len(packed([Record()])))
    run = read_run(write(tmp_path, packed([filler, *a_run()])))
    assert (run.complete, run.damage, len(run.rows)) == (True, "", 2 * STEPS)


def test_numbers_that_json_lacks_are_read(tmp_path):
    content = packed([history(train__global_step=1, train__loss=float("nan"))])
    run = read_run(write(tmp_path, content))
    assert run.rows[0]["train/loss"] != run.rows[0]["train/loss"]


def test_metrics_within_metrics_have_a_point(tmp_path):
    content = packed([history(train__global_step=1, outer={"inner": 2.0})])
    assert read_run(write(tmp_path, content)).rows[0]["outer.inner"] == 2.0


# Unknown records


def test_records_that_nothing_reads_are_counted(tmp_path):
    line = Record()
    line.output_raw.line = "printed"
    # A field that this version of wandb's definition does not have, as a later one may.
    later = bytes([0xFA, 0x3F, 2]) + b"hi"
    run = read_run(write(tmp_path, packed([line, later, *a_run()])))
    assert run.not_read == {"output_raw": 1, "unknown": 1}
    assert (run.complete, run.damage) == (True, "")


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_records_of_any_bytes_are_read_or_told(payloads):
    run = wandb_files._parsed(packed(payloads), wandb_files.Path("run-abc.wandb"), Record)
    assert run.damage == "" or "is no record of wandb's" in run.damage


def test_a_value_that_is_no_json_is_left_out(tmp_path):
    record = history(train__global_step=1)
    record.history.item.add(key="odd", value_json="{")
    record.history.item.add(value_json="1")  # and one without a name
    assert read_run(write(tmp_path, packed([record]))).rows == [{"train/global_step": 1}]


# Damage


@given(st.integers(0, len(WHOLE) - 1))
def test_a_file_cut_anywhere_is_read_up_to_there(size):
    path = wandb_files.Path("run-abc.wandb")
    run = wandb_files._parsed(WHOLE[:size], path, Record)
    whole = wandb_files._parsed(WHOLE, path, Record)
    assert not run.complete
    assert run.rows == whole.rows[: len(run.rows)]
    assert ("is cut short" in run.damage) == (size > 7 and size not in BORDERS)


@given(st.integers(7, len(WHOLE) - 1), st.integers(1, 255))
def test_a_byte_changed_anywhere_is_found(place, change):
    broken = bytearray(WHOLE)
    broken[place] ^= change
    run = wandb_files._parsed(bytes(broken), wandb_files.Path("run-abc.wandb"), Record)
    whole = wandb_files._parsed(WHOLE, wandb_files.Path("run-abc.wandb"), Record)
    assert run.damage
    assert run.rows == whole.rows[: len(run.rows)]


@given(st.binary(max_size=300))
def test_any_bytes_after_the_header_are_read_or_told(content):
    run = wandb_files._parsed(WHOLE[:7] + content, wandb_files.Path("run-abc.wandb"), Record)
    assert not run.complete or not run.damage


def test_damage_says_where_and_what(tmp_path):
    broken = bytearray(WHOLE)
    broken[len(WHOLE) // 2] ^= 1
    run = read_run(write(tmp_path, bytes(broken)))
    assert "its checksum is another" in run.damage
    assert f"of {len(WHOLE)}" in run.damage
    assert 0 < len(run.rows) < 2 * STEPS


def test_a_part_without_its_beginning_is_damage(tmp_path):
    long = packed([history(train__global_step=1, note="x" * 100_000)])
    tail = long[:7] + long[3 * 2**15 :]  # what is in the last block
    assert "a part of it is missing" in read_run(write(tmp_path, tail)).damage


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b":W&C\xe1\xbe\x00", b"x"])
def test_another_file_is_refused(tmp_path, content):
    with pytest.raises(CasebookError, match="is no file of a W&B run"):
        read_run(write(tmp_path, content))


@pytest.mark.parametrize("content", [b"", b":W&B", WHOLE[:7]])
def test_a_file_just_begun_is_a_run_without_rows(tmp_path, content):
    run = read_run(write(tmp_path, content))
    assert (run.rows, run.complete) == ([], False)


# Waiting for the end


def test_a_file_that_is_still_written_is_waited_for(tmp_path, monkeypatch):
    """wandb's own process writes the end after `finish` has returned."""
    file = write(tmp_path, WHOLE[:-20])

    def rest(seconds):
        file.write_bytes(WHOLE)

    monkeypatch.setattr(wandb_files.time, "sleep", rest)
    assert read_run(file, wait=60).complete


def test_the_wait_has_an_end(tmp_path, monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(wandb_files.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(wandb_files.time, "sleep", lambda seconds: None)
    run = read_run(write(tmp_path, WHOLE[:-20]), wait=5)
    assert not run.complete
    assert next(now) < 12


# Folders


def test_no_file_is_a_sentence(tmp_path):
    with pytest.raises(CasebookError, match="there is no offline run of W&B in"):
        read_runs(tmp_path)
    with pytest.raises(CasebookError, match="cannot be read: No such file"):
        read_run(tmp_path / "run-abc.wandb")


def test_two_runs_in_a_folder_come_in_the_order_in_which_they_began(tmp_path):
    write(tmp_path, packed(a_run("later", steps=[1])), "later", day=2)
    write(tmp_path, packed(a_run("first", steps=[1, 2])), "first", day=1)
    runs = read_runs(tmp_path)
    assert [run.id for run in runs] == ["first", "later"]
    assert [len(run.history()) for run in runs] == [2, 1]


def test_a_resumed_run_is_one_run(tmp_path):
    """It goes on at its checkpoint: of a step that was made twice the later values count."""
    write(tmp_path, packed(a_run(steps=[1, 2, 3], finished=False)), day=1)
    again = [history(train__global_step=step, train__reward=9.0) for step in (3, 4)]
    first, *_, end = a_run()
    write(tmp_path, packed([first, *again, end]), day=2)
    (run,) = read_runs(tmp_path)
    assert run.complete
    assert run.curve("train/reward").to_dict() == {1: 0.1, 2: 0.2, 3: 9.0, 4: 9.0}


def test_wandb_s_link_to_the_latest_run_is_not_another_run(tmp_path):
    file = write(tmp_path, WHOLE)
    (tmp_path / "wandb" / "latest-run").symlink_to(file.parent, target_is_directory=True)
    assert offline_files(tmp_path) == [file]


# Tables


def with_table(folder, path="media/table/t.table.json", content=None):
    row = {"_type": "table-file", "path": path}
    record = history(train__global_step=1, completions=row)
    file = write(folder, packed([record, *a_run()]))
    if content is not None:
        table = file.parent / "files" / "media" / "table" / "t.table.json"
        table.parent.mkdir(parents=True)
        table.write_text(content)
    return read_run(file)


def test_a_table_is_read_from_beside_the_file(tmp_path):
    run = with_table(tmp_path, content='{"columns": ["text", "reward"], "data": [["a", 1.0]]}')
    assert run.table("completions").to_dict("records") == [{"text": "a", "reward": 1.0}]
    assert "completions" not in run.history()


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", '{"columns": ["a"], "data": [[1, 2]]}', '{"columns": 3}']
)
def test_a_damaged_table_is_told_and_costs_no_more(tmp_path, content):
    run = with_table(tmp_path, content=content)
    assert run.table("completions").empty
    assert run.not_read["table media/table/t.table.json"] == 1
    assert run.complete


@pytest.mark.parametrize("path", ["../../../secret.json", "/etc/hostname"])
def test_a_table_outside_the_run_is_not_read(tmp_path, path):
    (tmp_path / "secret.json").write_text('{"columns": ["a"], "data": [["secret"]]}')
    assert with_table(tmp_path, path=path).table("completions").empty


# Against wandb itself


def test_without_wandb_a_sentence_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb.proto.wandb_internal_pb2", None)
    with pytest.raises(CasebookError, match="wandb is not installed here"):
        read_run(write(tmp_path, WHOLE))


def test_what_wandb_writes_is_read_back(tmp_path, monkeypatch):
    import wandb

    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    quiet = wandb.Settings(silent=True, console="off")
    begun = datetime.now(UTC) - timedelta(seconds=5)
    with wandb.init(
        mode="offline", dir=tmp_path, project="p", config={"beta": 0.04}, settings=quiet
    ) as run:
        for step in range(400):  # more than a block
            run.log({"train/global_step": step, "train/reward": step / 7, "nested": {"a": step}})
        run.log({"table": wandb.Table(columns=["text"], data=[["ä\n<b>"], ["b"]])})
        run.summary["best"] = 3
        file = tmp_path / "note.txt"
        file.write_text("kept")
        artifact = wandb.Artifact("a-record", type="record", metadata={"seed": 0})
        artifact.add_file(str(file), policy="immutable", skip_cache=True)
        run.log_artifact(artifact)
    (read,) = read_runs(tmp_path, wait=60)
    assert (read.complete, read.damage, read.project) == (True, "", "p")
    assert read.config["beta"] == 0.04
    assert read.curve("train/reward").tolist() == [step / 7 for step in range(400)]
    assert read.curve("nested.a").tolist() == list(range(400))
    assert read.table("table")["text"].tolist() == ["ä\n<b>", "b"]
    assert read.summary["best"] == 3
    (mine,) = (a for a in read.artifacts if a["type"] == "record")
    assert (mine["name"], mine["metadata"]) == ("a-record", {"seed": 0})
    assert mine["files"] == {"note.txt": 4}
    assert begun.timestamp() < read.rows[0]["_timestamp"]
