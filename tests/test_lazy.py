"""Names that are imported when they are asked for."""

import importlib
import sys

import pytest

from casebook.lazy import lazy_names


@pytest.mark.parametrize("package", ["experiments", "records", "training"])
def test_every_name_that_a_package_lists_is_there(package):
    module = importlib.import_module(f"casebook.{package}")
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_nothing_is_imported_before_a_name_is_asked_for(tmp_path, monkeypatch):
    folder = tmp_path / "kitchen"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "oven.py").write_text("bread, cake = 'bread', 'cake'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    find, names = lazy_names("kitchen", {"oven": "cake bread", "fridge": "milk"})
    assert names == ["bread", "cake", "milk"]
    assert "kitchen.oven" not in sys.modules
    assert find("cake") == "cake"
    with pytest.raises(ModuleNotFoundError, match=r"kitchen\.fridge"):
        find("milk")


def test_an_unknown_name_is_an_attribute_error_with_both_names():
    find, _ = lazy_names("kitchen", {})
    with pytest.raises(AttributeError, match="module 'kitchen' has no attribute 'soup'"):
        find("soup")
