"""The examples in docstrings say what the code does: every one of them runs."""

import doctest
import importlib
import pkgutil

import pytest

import casebook

MODULES = [module.name for module in pkgutil.walk_packages(casebook.__path__, "casebook.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name))]
    assert sum(bool(test.examples) for test in found) >= 30
