"""What a run measures before and after: one harness, the test rows, base and trained policy."""

from collections.abc import Mapping
from typing import Any

from casebook.evaluation import evaluate, perplexity
from casebook.models import load_base
from casebook.training.config import Config
from casebook.training.identity import settings_mark

# The settings that decide what a base model measures.
MEASURED = {
    *("profile", "variant", "model_name_or_path", "dtype", "load_in_4bit", "max_completion_length"),
    *("temperature", "top_p", "top_k", "constraint", "test_limit", "test_samples"),
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
    case = config.case

    def measure(limit: int, samples: int, changes: Mapping[str, Any] | None = None, **more):
        settings = {**config.settings, **(changes or {})}
        return evaluate(
            model,
            tokenizer,
            case.case,
            split="test",
            profile=case.profile,
            limit=settings.get("limit", limit),
            samples=samples,
            variant=settings["variant"],
            settings=settings,
            **more,
        )

    figures = measure(case.test_limit, case.test_samples).summary()
    if case.pass_at_k_rows:
        many = measure(case.pass_at_k_rows, case.pass_at_k_samples, greedy=False, seed=1)
        figures["pass_at_k"] = many.pass_at_k()
    if case.also_evaluate:
        figures["also"] = {
            name: measure(case.test_limit, 0, changes).summary()
            for name, changes in case.also_evaluate.items()
        }
    if case.profile in ("smoke", "nano"):
        figures["other_text_perplexity"] = perplexity(model, tokenizer, case.case)
    return figures
