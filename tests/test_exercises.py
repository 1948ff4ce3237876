"""The exercises: what `check` says, the stubs in the notebooks, and the solutions."""

import json
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from casebook.case import UnknownName
from casebook.exercises import check, checks

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
CHECKS = checks()
SOLUTIONS = sorted((NOTEBOOKS / "solutions").glob("*.ipynb"))
CHECK_CELL = re.compile(r'^check\("(\d\d-[a-z])", (\w+)\)$', re.M)

WEIRD = (
    st.none()
    | st.floats()
    | st.integers()
    | st.text(max_size=5)
    | st.lists(st.floats() | st.text(max_size=3), max_size=4)
    | st.tuples(st.text(max_size=3), st.floats())
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
    | st.sampled_from([..., True, 1j, object(), np.zeros((4, 4)), np.array([1, 2]), np.nan, b""])
)


def code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def said(capsys, name, attempt):
    check(name, attempt)
    output = capsys.readouterr()
    assert not output.err
    assert output.out.count("\n") == 1
    return output.out.removesuffix("\n")


# What check says


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("nothing", [None, ..., lambda *a, **k: None, lambda *a, **k: ...])
def test_what_gives_nothing_is_not_done_yet(capsys, name, nothing):
    assert said(capsys, name, nothing) == f"{name}: not done yet"


def test_an_exception_becomes_a_sentence(capsys):
    def broken(*arguments, **named):
        raise KeyError("rank")

    line = said(capsys, "12-a", broken)
    assert line.startswith("12-a: not right yet: broken([")
    assert line.endswith(") raised KeyError: 'rank'")
    assert said(capsys, "12-a", 1020).endswith("not right yet: give the function itself, not 1020")


@pytest.mark.parametrize("name", CHECKS)
@given(value=WEIRD)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_answer_ends_in_a_traceback_or_passes_by_chance(capsys, name, value):
    line = said(capsys, name, lambda *arguments, **named: value)
    assert re.match(rf"{name}: (not done yet$|not right yet: \S)", line)


def test_an_unknown_exercise_lists_the_known_ones():
    with pytest.raises(UnknownName, match=r"unknown exercise .*11-a, 12-a"):
        check("10-z", lambda: 0)


def regular_expression(completions, answer, **columns):
    form = r"\s*<think>.*?</think>\s*<answer>(.*?)</answer>\s*"
    read = [re.fullmatch(form, str(text), re.S) for text in completions]
    return [float(bool(m) and m[1].strip() == a) for m, a in zip(read, answer, strict=True)]


def published_form(completions, **columns):
    form = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    return [float(bool(re.match(form, text, re.S | re.M))) for text in completions]


def soft_as_published(text, gold):
    found = re.search(r"\d+(?:,\d+)*", text.split("<answer>")[-1])
    return float(bool(found) and found[0].replace(",", "") == gold)


@pytest.mark.parametrize(
    ("name", "attempt", "says"),
    [
        ("01-a", lambda r: [x - sum(r) / len(r) for x in r], "expected [1.0, -0.33"),
        ("01-b", lambda r, a, low, high: 1 - low < r < 1 + high, "more likely than before"),
        ("01-c", lambda n, o, r, a, m, e, b: -((n - o).exp() * a[:, None] * m).sum(), "ratio is 1"),
        ("11-a", regular_expression, "'two thoughts'"),
        ("12-a", lambda rows, weights: ("high card", 0.25), "two pair earns more"),
        ("13-a", lambda p, silent: 2, "expected 5"),
        ("21-a", published_form, "the answer on one line"),
        ("31-a", soft_as_published, "10 - 4 = 6"),
        ("40-a", lambda gold: rf"\boxed{{{gold}}}", "which is right"),
    ],
)
def test_a_wrong_attempt_is_told_where(capsys, name, attempt, says):
    line = said(capsys, name, attempt)
    assert line.startswith(f"{name}: not right yet: ")
    assert says in line


# In the notebooks


def exercises_of(path):
    """Name -> the function it checks, its stub's cell, and the cell that checks it."""
    cells = code_cells(path)
    found = {}
    for cell in cells:
        for name, function in CHECK_CELL.findall(cell.source):
            stubs = [c for c in cells if f"def {function}(" in c.source]
            found[name] = (function, stubs[-1], cell)
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_every_exercise_stands_in_its_notebook_and_is_not_done_yet(capsys, name):
    (path,) = NOTEBOOKS.glob(f"{name[:2]}_*.ipynb")
    found = exercises_of(path)
    assert name in found, f"{path.name} has no cell: check({json.dumps(name)}, ...)"
    function, stub, cell = found[name]
    assert [output.text for output in cell.outputs] == [f"{name}: not done yet\n"]
    namespace = {"np": np}
    exec(stub.source, namespace)
    assert said(capsys, name, namespace[function]) == f"{name}: not done yet"


# Solutions


def test_every_exercise_has_a_solution():
    assert sorted(name for path in SOLUTIONS for name in exercises_of(path)) == sorted(CHECKS)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_solutions_are_right_and_committed_as_they_run(capsys, path):
    assert re.fullmatch(r"\d\d_solutions\.ipynb", path.name)
    assert all(name.startswith(path.name[:2]) for name in exercises_of(path))
    namespace = {}
    for count, cell in enumerate(code_cells(path), start=1):
        exec(compile(cell.source, path.name, "exec"), namespace)
        output = capsys.readouterr().out
        assert cell.execution_count == count
        assert "".join(o.text for o in cell.outputs if o.name == "stdout") == output
        for name, _ in CHECK_CELL.findall(cell.source):
            assert f"{name}: right\n" in output
