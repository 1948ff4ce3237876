"""A made-up series of notebooks, its runs and its records, and the site built from them."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from casebook import paths, site

HOSTILE = "<img src=x onerror=alert(1)>"
FIGURE = {"value": 0.35, "low": 0.33, "high": 0.37, "n": 1000}
MATHS = r"""## The loss

The advantage is $\hat A_i = (r_i - \bar r) / s_r$, and

\begin{align}
p^G + (1-p)^G &= \Pr[\text{no gradient}]
\end{align}

Go to [the rewards](11_poker_rewards.ipynb), [a file](../configs/poker/nano.yaml) or
[the start](00_start_here.ipynb)."""


class RenderedPage(HTMLParser):
    """What an HTML page would fetch, its ids, its anchors, and the alternatives of its images."""

    def __init__(self, path: Path):
        super().__init__()
        self.fetched, self.ids, self.anchors, self.alts, self.tags = [], [], [], [], []
        text = path.read_text(encoding="utf-8")
        self.feed(text)
        self.fetched += re.findall(r"@import\s+\S+|url\(\s*['\"]?(https?:[^)]+)", text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.anchors.append(values.get("href") or "")
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.fetched.append(values["href"])
        elif tag in ("script", "img", "iframe", "source", "video") and "src" in values:
            self.fetched.append(values["src"])
        if tag == "img":
            self.alts.append(values.get("alt"))

    @property
    def external(self) -> list[str]:
        """Of what it would fetch, what lies on another machine."""
        return [address for address in self.fetched if re.match(r"(https?:)?//", address)]


@pytest.fixture(scope="session")
def rendered():
    """Reads an HTML page: `rendered(path)`."""
    return RenderedPage


def _picture(tmp_path: Path) -> str:
    figure, _ = plt.subplots(figsize=(1, 1))
    figure.savefig(tmp_path / "picture.png")
    plt.close(figure)
    return base64.b64encode((tmp_path / "picture.png").read_bytes()).decode()


def _notebook(title: str, png: str) -> nbformat.NotebookNode:
    shown = [
        new_output(
            "display_data",
            data={"image/png": png, "text/plain": "<Figure>"},
            metadata={"image/png": {"alt": f'A line "rises" in {title}'}},
        ),
        new_output("display_data", data={"text/markdown": "Accuracy **0.35**, $p = 0.35$."}),
        new_output("stream", name="stdout", text="<answer>full house</answer>\n"),
    ]
    table = pd.DataFrame({"arm": ["base", "GRPO"]}).to_html()
    result = new_output("execute_result", data={"text/html": table}, execution_count=2)
    return new_notebook(
        cells=[
            new_markdown_cell(f"# {title}\n\nAbout 20 s."),
            new_code_cell("print('install')", metadata={"tags": ["install"]}),
            new_code_cell("SEED = 0", metadata={"tags": ["parameters"]}),
            new_markdown_cell(MATHS),
            new_code_cell("plots.show(figure)", outputs=shown),
            new_code_cell("table", outputs=[result], execution_count=2),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )


def _series(folder: Path) -> None:
    configs = Path(__file__).parents[2] / "configs"
    shutil.copytree(configs, paths.CONFIGS, dirs_exist_ok=True)  # predictions name arms
    titles = {"00_start_here": "Where to start?", "10_poker_oracle": "Is it right?"}
    for stem, title in (titles | {"11_poker_rewards": "Can it be fooled?"}).items():
        nbformat.write(_notebook(title, _picture(folder)), paths.NOTEBOOKS / f"{stem}.ipynb")
    (paths.ROOT / "figures").mkdir()
    for name in ("00_start_here__three_rewards", "90_claims__reported"):
        picture = paths.ROOT / "figures" / f"{name}.png"
        picture.write_bytes(base64.b64decode(_picture(folder)))


@pytest.fixture
def series(checkout, tmp_path):
    """A checkout with three notebooks: the start and two of the poker case."""
    _series(tmp_path)
    return checkout


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """The folder of a site built from the series, with a run, a failed one and a transcript."""
    root = tmp_path_factory.mktemp("checkout")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("notebooks", "configs", "data", "results", "reports"):
            (root / name).mkdir()
            patch.setattr(paths, name.upper(), root / name)
        (root / "pyproject.toml").write_text("[tool.casebook]\nrepository = ''\n")
        patch.setattr(paths, "ROOT", root)
        patch.setenv("CASEBOOK_ROOT", str(root))
        patch.delenv("RUNS_DIR", raising=False)
        _series(root)
        run("10_poker_oracle")
        run("11_poker_rewards", status="failed", error="ValueError: a < b in cell 6")
        write_run(root / "runs", "one")
        write_run(root / "runs", HOSTILE)
        for seed in range(3):
            write_record(seed)
        assert site.build_site() == root / "reports" / "index.html"
    return root / "reports"


def run(stem: str, status: str = "ok", profile: str = "nano", **fields) -> None:
    """Leave what an execution of a notebook leaves."""
    if status in ("ok", "failed"):
        folder = paths.REPORTS / {"ok": "executed", "failed": "failed"}[status]
        folder.mkdir(exist_ok=True)
        copy = nbformat.read(paths.NOTEBOOKS / f"{stem}.ipynb", as_version=4)
        if status == "failed":
            copy.cells[-1].outputs = [
                new_output("error", ename="ValueError", evalue="a < b", traceback=["\x1b[31ma < b"])
            ]
        nbformat.write(copy, folder / f"{stem}.ipynb")
    entry = {"status": status, "profile": profile, "seed": 0, "seconds": 21.4, "error": ""}
    entry |= {"started": "2026-11-20T18:03:11+00:00", "parameters": {}} | fields
    path = paths.REPORTS / "execution.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(entries | {stem: entry}))


@pytest.fixture
def made():
    """What makes a made-up checkout: `made.run`, `made.write_run`, `made.write_record`."""
    return SimpleNamespace(run=run, write_run=write_run, write_record=write_record)


def _completions(step: int, rows: int = 4) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": step,
            "prompt": "Classify.\nHand: 2H 2D 2C 9S 9H\n",
            "answer": "full house",
            "completion": [f"<answer>{row}</answer></script><b>" for row in range(rows)],
            "tokens": 12,
            "truncated": False,
            "well_formed": True,
            "extracted": ["full house", None] * (rows // 2),
            "correct": [True, False] * (rows // 2),
            "strict": [True, False] * (rows // 2),
            "advantage": [1.5, np.nan] * (rows // 2),
            "reward": [1.2, 0.2] * (rows // 2),
            "reward/correct": [1.0, 0.0] * (rows // 2),
            "reward/tag_format": 0.2,
        }
    )


def write_run(runs: Path, name: str, profile: str = "nano", steps=(1, 10)) -> Path:
    """Leave what a training leaves of its completions."""
    folder = runs / "poker" / profile / name / "completions"
    folder.mkdir(parents=True)
    for step in steps:
        _completions(step).to_parquet(folder / f"train_{step:05d}.parquet")
    return folder.parent


def write_record(
    seed: int, arm: str = "grpo", case: str = "poker", profile: str = "nano", **fields
) -> None:
    """Write a record, as good as the pages need it."""
    figures = {"sampled_accuracy": FIGURE, "greedy_accuracy": FIGURE}
    record = {"case": case, "profile": profile, "arm": arm, "seed": seed, "provenance": {}}
    record |= {"before": figures, "after": figures, "train_seconds": 98.0 + seed} | fields
    paths.write_json(paths.RESULTS / case / profile / arm / f"seed{seed}.json", record)
