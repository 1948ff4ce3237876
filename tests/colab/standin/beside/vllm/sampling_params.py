"""The same class under its other address."""

from vllm import SamplingParams

__all__ = ["SamplingParams"]
