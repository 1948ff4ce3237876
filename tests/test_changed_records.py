"""The table of what records say now against a commit."""

import subprocess

import pytest

from casebook import paths
from casebook.case import CasebookError
from casebook.records import load_claims, write_json

SEEDS = range(3)


@pytest.fixture(scope="module")
def benchmark(script):
    return script("changed_records")


def figures(value, names):
    figure = {"value": value, "low": value - 0.02, "high": value + 0.02, "n": 250}
    return dict.fromkeys(names, figure)


@pytest.fixture
def committed(checkout, benchmark):
    """Three arms of three seeds, committed; a function that writes one of them anew."""

    def write(arm, value, **more):
        for seed in SEEDS:
            record = {"case": "poker", "profile": "nano", "arm": arm, "seed": seed}
            record |= {"provenance": {"time": str(value)}, "config": {"model_name_or_path": "x"}}
            record |= {"before": figures(0.4, benchmark.FIGURES)}
            record |= {"after": figures(value, benchmark.FIGURES), **more}
            write_json(paths.RESULTS / "poker" / "nano" / arm / f"seed{seed}.json", record)

    for arm in ("far", "near", "still"):
        write(arm, 0.5)
    git = ["git", "-C", str(checkout), "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in (["init", "-q"], ["add", "results"], ["commit", "-qm", "records"]):
        subprocess.run([*git, *command], check=True)
    return write


def test_what_moved_stands_first_and_the_rest_in_one_line(committed, benchmark):
    committed("far", 0.6)
    committed("near", 0.51)
    said = benchmark.section("poker", "HEAD")
    assert "6 of 9 records were made anew since `HEAD`." in said
    rows = [line for line in said.splitlines() if line.startswith("| `")]
    assert len(rows) == len(benchmark.FIGURES)
    assert all(row.startswith("| `far` | policy, ") for row in rows)
    assert "| 50.0 % [48.0, 52.0] | 60.0 % [58.0, 62.0] | +10.0 | 5.0 |" in rows[0]
    assert "points: `near` (1.0); equal in every figure: `still`." in said
    assert f"No verdict of {len(load_claims('poker'))} claims changed." in said


def test_arms_that_share_a_figure_share_a_row(committed, benchmark):
    for arm in ("far", "near"):
        committed(arm, 0.5, before=figures(0.3, benchmark.FIGURES))
    said = benchmark.section("poker", "HEAD")
    assert "| `far`, `near` | base, greedy |" in said
    assert "policy, greedy" not in said


def test_nothing_changed_and_arms_that_came(committed, benchmark):
    assert "0 of 9 records were made anew" in benchmark.section("poker", "HEAD")
    committed("more", 0.5)
    said = benchmark.section("poker", "HEAD")
    assert "3 of 12 records were made anew since `HEAD`. New arms: `more`." in said


def test_a_verdict_that_flipped_is_told_with_its_figures(benchmark):
    seen = {"verdict": "mechanism seen", "exploratory": False, "measured": "40, then 60"}
    late = {"verdict": "inconclusive", "exploratory": True, "measured": "50, then 51"}
    old = {"a": seen, "b": late, "c": seen}
    new = {"a": seen | {"verdict": "inconclusive", "measured": "40, then 41"}, "b": late, "c": seen}
    said = benchmark.verdicts(old, new).splitlines()
    row = "| a | mechanism seen | inconclusive | 40, then 60 | 40, then 41 |"
    assert said[2:] == [row]


def test_the_results_are_put_back(committed, benchmark):
    own = paths.RESULTS
    with benchmark.results_at("HEAD"):
        assert own != paths.RESULTS
        assert (paths.RESULTS / "poker" / "nano" / "far").is_dir()
    assert own == paths.RESULTS


def test_a_commit_that_is_not_there_is_one_sentence(committed, benchmark):
    with pytest.raises(CasebookError, match="no results at 'nowhere'"):
        benchmark.section("poker", "nowhere")
