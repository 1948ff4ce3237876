"""The lane with the NumPy and pandas of Colab's image; it needs an index, so a workflow runs it."""

import re
from pathlib import Path

import yaml

from casebook import paths

HERE = Path(__file__).parent
SCRIPT = HERE / "older_libraries.sh"


def test_a_workflow_runs_it_by_itself():
    file = paths.ROOT / ".github" / "workflows" / "older-libraries.yml"
    workflow = yaml.safe_load(file.read_text())
    assert workflow[True]["schedule"]  # YAML reads `on` as true
    steps = [step.get("run", "") for step in workflow["jobs"]["older"]["steps"]]
    assert steps[-1] == str(SCRIPT.relative_to(paths.ROOT))
    assert SCRIPT.stat().st_mode & 0o100


def test_its_versions_are_those_of_the_image_and_older_than_the_pins():
    image = yaml.safe_load((HERE / "image.yaml").read_text())["packages"]
    taken = re.findall(r'"(\w+)==\$\(version (\w+)\)"', SCRIPT.read_text())
    assert [name for name, _ in taken] == ["numpy", "pandas", "pytz"]
    assert all(name == asked and image[name] for name, asked in taken)
    pins = dict(
        re.findall(r"^(\w+)==([\d.]+)", (paths.ROOT / "requirements.txt").read_text(), re.M)
    )
    for name in ("numpy", "pandas"):
        older, pinned = ([int(n) for n in v.split(".")] for v in (image[name], pins[name]))
        assert older < pinned
