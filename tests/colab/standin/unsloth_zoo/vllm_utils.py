"""The engine is freed here."""

from unsloth.engine import Engine


def delete_vllm(llm=None) -> None:
    Engine.alive = None
