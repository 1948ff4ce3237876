"""What a run measures before and after: one harness, the test rows, base and trained policy."""

from collections.abc import Mapping
from typing import Any

from casebook.case import PROFILES
from casebook.evaluation import evaluate, other_prompt_perplexity
from casebook.models import load_base
from casebook.training.config import Config
from casebook.training.origin import settings_mark

# The settings that decide what a base model measures.
MEASURED = {
    *("case", "profile", "variant", "model_name_or_path", "dtype", "load_in_4bit"),
    *("max_completion_length", "temperature", "top_p", "top_k", "constraint"),
    *("test_limit", "test_samples"),
    *("also_evaluate", "pass_at_k_rows", "pass_at_k_samples"),
}
_MEASURED: dict[str, dict[str, Any]] = {}  # by settings, for the arms of one process


def measure_base(config: Config) -> dict[str, Any]:
    """The base's figures; arms that start from the same base and measure alike share them."""
    mark = settings_mark(config, set(config.settings) - MEASURED)
    if mark not in _MEASURED:
        base = load_base(config.settings | {"fast_inference": False})
        _MEASURED[mark] = measure_test(config, *base)
    return _MEASURED[mark]


def measure_test(config: Config, model: Any, tokenizer: Any) -> dict[str, Any]:
    """What a configuration measures of a model on the test rows."""

    def measure(limit: int, samples: int, changes: Mapping[str, Any] | None = None, **more):
        settings = {**config.settings, **(changes or {})}
        return evaluate(
            model,
            tokenizer,
            config.case,
            split="test",
            profile=config.profile,
            limit=settings.get("limit", limit),
            samples=samples,
            variant=settings["variant"],
            settings=settings,
            **more,
        )

    figures = measure(config.test_limit, config.test_samples).summary()
    if config.pass_at_k_rows:
        many = measure(config.pass_at_k_rows, config.pass_at_k_samples, greedy=False, seed=1)
        figures["pass_at_k"] = many.pass_at_k()
    if config.also_evaluate:
        figures["also"] = {
            name: measure(config.test_limit, 0, changes).summary()
            for name, changes in config.also_evaluate.items()
        }
    if PROFILES[config.profile].embedded:
        figures["other_prompt_perplexity"] = other_prompt_perplexity(
            model, tokenizer, config.case, config.profile, config.variant
        )
    return figures
