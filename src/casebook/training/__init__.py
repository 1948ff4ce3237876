"""A training: YAML in, a finished run folder out. The names below are those that notebooks use."""

# ruff: noqa: F401, the names that notebooks and other rooms use

from datasets import disable_progress_bars

from casebook import models  # where Unsloth is asked for by name, it comes before TRL
from casebook.training.config import Config, read_config, reward_functions, settings_mark
from casebook.training.kl_penalty import KL_PENALTY, KlPenalty
from casebook.training.log import (
    CURVE,
    CURVE_WINDOW,
    WATCH_EVERY,
    RunCallback,
    WatchCallback,
    curve,
    skipped_steps,
    text_of,
)
from casebook.training.loop import first_steps, train, training_rows
from casebook.training.measure import input_digests, kept_rows, measure_base, measure_test
from casebook.training.rollouts import ConstrainedTrainer, RolloutTrainer
from casebook.training.run import Run, default_folder, find_run

disable_progress_bars()  # of datasets; a training shows its own
