"""Which adapter the engine writes with."""

from types import SimpleNamespace
from typing import Any

from contract import bind


class LoRARequest(SimpleNamespace):
    """Bound to the pinned signature."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(**bind("LoRARequest", "vllm", arguments, keywords))
