"""Stands where vLLM is: the requests that are made of it, bound to the pinned signatures."""

from types import SimpleNamespace
from typing import Any

from contract import bind, signature

__version__ = "0.26.0"


class SamplingParams(SimpleNamespace):
    """How completions are sampled; an argument that vLLM lacks is refused."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        values = bind("SamplingParams", "vllm", arguments, keywords)
        plain = {"None": None, "True": True, "False": False}
        for name, default in signature("SamplingParams", "vllm")["parameters"].items():
            number = default.replace(".", "").lstrip("-").isdigit()
            value = float(default) if number and "." in default else plain.get(default)
            values.setdefault(name, int(default) if number and "." not in default else value)
        super().__init__(**values)


class LLM:
    """An engine outside Unsloth would be a second one."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        bind("LLM", "vllm", arguments, keywords)
        raise AssertionError("Sleep mode can only be used for one instance per process.")
