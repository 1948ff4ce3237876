"""The package is small, and stays so: lines of each room, no file above 650, one way of imports."""

from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "casebook"
BUDGETS = {  # lines of Python, blank lines and docstrings included
    **{"cases/poker": 1_000, "cases/landuse": 2_530, "cases/gsm8k": 1_750, "cases/math": 1_980},
    **{"training": 1_520, "models": 1_330, "site": 1_410, "experiments": 1_020, "records": 1_210},
    **{"redteam": 700, "killable.py": 165, "newcase": 300, "folder.py": 160},
    **{"preflight": 495, "grpo.py": 590, "rewards": 620, "settings.py": 520, "plots.py": 425},
    **{"cli.py": 535, "doctor": 925, "evaluation.py": 430, "cases/problem_sets.py": 205},
    **{"exercises.py": 185, "stats.py": 300, "case.py": 190, "install.py": 155, "paths.py": 160},
    **{"backend.py": 90, "cases/rungs.py": 155, "__init__.py": 20, "cases/__init__.py": 5},
}


def test_every_room_keeps_to_its_budget():
    lines = {path: len(path.read_text().splitlines()) for path in SRC.rglob("*.py")}
    room = {
        path: next((b for b in BUDGETS if path.is_relative_to(SRC / b)), None) for path in lines
    }
    assert not [path for path in lines if room[path] is None], "a room without a budget"
    used = {b: sum(n for path, n in lines.items() if room[path] == b) for b in BUDGETS}
    assert {b: n for b, n in used.items() if n > BUDGETS[b]} == {}
    assert max(lines.values()) <= 650
