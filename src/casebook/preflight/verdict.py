"""Go, change or stop: what the figures of a preflight mean for the training.

A training *goes* where every phase leaves a tenth of the memory free, it ends in the time there
is, its groups are not silent and its completions not cut. Where memory is the only trouble and
other values of one setting or two mend it, the verdict is *change*, with the lines. Else it is
*stop*.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from casebook.preflight.cards import GIB, Machine
from casebook.preflight.memory import PHASES, Phase, Texts, phases, unsloth_trains, worst
from casebook.preflight.shapes import Shape

SILENT, TRUNCATED, HEADROOM = 0.6, 0.2, 0.1
GO, CHANGE, STOP, UNKNOWN = "go", "change", "stop", "cannot be told"
EXIT = {GO: 0, CHANGE: 1, STOP: 1, UNKNOWN: 2}
OF_UNSLOTH = ("load_in_4bit", "fast_inference")
SHARES = [share / 100 for share in range(90, 5, -5)]  # of vLLM, the largest first


class Change(NamedTuple):
    """Other values that make a training fit: field -> value, and why."""

    values: dict[str, Any]
    why: str

    def rows(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Each line of the file: `field`, what it says `now`, what it is changed `to`, `why`."""
        return [
            {"field": field, "now": settings.get(field), "to": value, "why": self.why}
            for field, value in self.values.items()
        ]


def fits(found: Sequence[Phase], headroom: float = HEADROOM) -> bool:
    """Whether every phase leaves this share of the memory free."""
    return all(phase.headroom >= headroom for phase in found)


def change_that_fits(
    settings: Mapping[str, Any], shape: Shape, machine: Machine, texts: Texts
) -> Change | None:
    """The largest value of one setting under which every phase fits, else values of two.

    What costs the training nothing is tried first: smaller micro batches with as many completions
    a step, checkpoints of the gradient, vLLM's share; then what changes it: rollouts in smaller
    batches, 4-bit weights, smaller groups, shorter completions. `None` where nothing does.
    """

    def first_that_fits(given: Mapping[str, Any], names: Collection[str] = PHASES) -> Change | None:
        for why, options in _options(given, machine):
            for values in options:
                found = phases({**given, **values}, shape, machine, texts)
                if fits([phase for phase in found if phase.name in names]):
                    return Change(values, why)
        return None

    if one := first_that_fits(settings):
        return one
    for phase in phases(settings, shape, machine, texts):
        if phase.headroom >= HEADROOM or (one := first_that_fits(settings, {phase.name})) is None:
            continue
        if other := first_that_fits({**settings, **one.values}):
            return Change({**one.values, **other.values}, f"{one.why}; {other.why}")
    return None


def _options(
    settings: Mapping[str, Any], machine: Machine
) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """Why, and values from the largest to the smallest, for each setting that may be changed."""
    micro, group = settings["per_device_train_batch_size"], settings["num_generations"]
    accumulated = settings["gradient_accumulation_steps"]
    together = settings.get("steps_per_generation") or accumulated
    yield (
        "fewer completions at a time, as many in a step",
        (
            {
                "per_device_train_batch_size": size,
                "gradient_accumulation_steps": accumulated * (micro // size),
                "steps_per_generation": together * (micro // size),
            }
            for size in _divisors(micro)
        ),
    )
    if not settings["gradient_checkpointing"]:
        yield "activations are computed again", iter([{"gradient_checkpointing": True}])
    if settings["fast_inference"] or settings.get("use_vllm"):
        now = settings.get("vllm_gpu_memory_utilization")
        options = ({"vllm_gpu_memory_utilization": share} for share in SHARES if share != now)
        yield "another share for vLLM", options
    else:
        yield (
            "a step's completions are written in parts",
            (
                {"steps_per_generation": steps}
                for steps in _divisors(together)
                if micro * steps % group == 0
            ),
        )
    if unsloth_trains(settings, machine) and settings["use_peft"] and not settings["load_in_4bit"]:
        yield "weights of 4 bits", iter([{"load_in_4bit": True}])
    completions = micro * together
    yield (
        "smaller groups, of as many prompts",
        (
            {"num_generations": size, "per_device_train_batch_size": micro * size // group}
            for size in _divisors(group)
            if size > 1 and micro * size % group == 0 and completions % size == 0
        ),
    )
    length = settings["max_completion_length"]
    step = 64 if length > 128 else 8
    yield (
        "shorter completions",
        (
            {"max_completion_length": shorter}
            for shorter in range((length - 1) // step * step, 0, -step)
        ),
    )


def _divisors(number: int) -> list[int]:
    """The smaller divisors of a number, the largest first."""
    return [size for size in range(number - 1, 0, -1) if number % size == 0]


def of_memory(
    settings: Mapping[str, Any],
    shape: Shape,
    machine: Machine,
    texts: Texts,
    found: Sequence[Phase],
) -> tuple[str, list[str], Change | None]:
    """The verdict on memory alone: its word, the reasons, and what would mend it."""
    reasons = []
    for phase in found:
        if phase.headroom < HEADROOM:
            size = f"{phase.needed / GIB:.1f} of {phase.there / GIB:.1f} GiB"
            short = "does not fit" if phase.headroom < 0 else f"leaves {phase.headroom:.0%} free"
            reasons.append(f"{phase.name} {short} on {machine.name}: it needs {size}")
    if not reasons:
        return GO, [], None
    change = change_that_fits(settings, shape, machine, texts)
    if change is None:
        tight = worst(found)
        reasons.append(f"no other values of one setting or two make {tight.name} fit")
        return STOP, reasons, None
    return CHANGE, reasons, change


def of_capability(settings: Mapping[str, Any], machine: Machine) -> list[str]:
    """What a card cannot do that the settings ask of it."""
    reasons = []
    bf16 = settings.get("bf16") or settings["dtype"] == "bfloat16"
    if bf16 and machine.gpu and not machine.bf16:
        reasons.append(f"{machine.name} has no bf16: dtype float16 with fp16 true is what it takes")
    if (settings["fast_inference"] or settings.get("use_vllm")) and not machine.vllm:
        reasons.append(f"vLLM does not run on {machine.name}: fast_inference and use_vllm false")
    wanted = [name for name in OF_UNSLOTH if settings[name]]
    if wanted and not unsloth_trains(settings, machine):
        names = " and ".join(wanted)
        reasons.append(f"transformers and PEFT train, and only Unsloth knows {names}: set false")
    return reasons


def of_time(
    phases_seconds: Mapping[str, float | None], hours: float | None, steps: int
) -> list[str]:
    """Whether a training ends in the time there is, and how many steps would."""
    if hours is None or any(value is None for value in phases_seconds.values()):
        return []
    needed = sum(phases_seconds.values())
    if needed <= hours * 3600:
        return []
    fixed = phases_seconds["load"] + phases_seconds["final test"]
    each = (needed - fixed) / steps
    possible = int((hours * 3600 - fixed) / each) if each else 0
    reason = f"it takes {needed / 3600:.1f} hours, and there are {hours:g}"
    if possible > 0:
        return [f"{reason}: max_steps {possible} would end in time"]
    return [f"{reason}: loading and the final test alone take {fixed / 3600:.1f}"]


def of_measure(measured: Mapping[str, Any]) -> list[str]:
    """What the completions of an untrained policy say against the training."""
    reasons = []
    silent, truncated = measured["silent"], measured["truncated"]
    if silent["value"] > SILENT:
        reasons.append(
            f"{silent['value']:.0%} of the groups are silent (95 % interval {silent['low']:.0%} to "
            f"{silent['high']:.0%}), and teach nothing: easier rows, larger groups, a higher "
            "temperature, or a reward that tells more completions apart"
        )
    if truncated["value"] > TRUNCATED:
        reasons.append(
            f"{truncated['value']:.0%} of the completions are cut at max_completion_length: raise "
            "it, or ask for shorter answers"
        )
    return reasons
