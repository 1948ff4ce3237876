"""How long the defaults for a GPU take by preflight's estimate, held against what is promised."""

import re
from types import SimpleNamespace

import pytest
import yaml

from casebook import models, paths, preflight
from casebook.case import known_cases
from casebook.preflight import times
from casebook.preflight.cards import cards
from casebook.preflight.memory import phases
from casebook.preflight.shapes import known_shapes
from casebook.settings import checked

INSTALL = 600  # seconds of the first cell on a free machine, the model's download included: assumed
CARD = {"t4": "t4", "gpu24": "24", "a100": "a100-80"}
EVERY = [
    (path.parent.name, path.stem)
    for path in sorted(paths.CONFIGS.glob("*/*.yaml"))
    if path.stem.partition("_")[0] in CARD
]
SELDOM = ("landuse", "a100_source")  # each of its checkpoints holds all weights
FREE = [(case, "t4") for case in known_cases()]


def name_of(pair):
    return "/".join(pair)


def plan(case, profile):
    """Seconds: of the whole, before the first evaluation, of a step, of one evaluation."""
    settings = checked(paths.CONFIGS / case / f"{profile}.yaml")
    shape = known_shapes()[settings["model_name_or_path"]]
    machine = cards()[CARD[profile.partition("_")[0]]]
    texts, _ = preflight.texts_of(settings, shape)
    found = {phase.name: phase for phase in phases(settings, shape, machine, texts)}
    spent = times.seconds(settings, shape, machine, texts, found)
    evaluations = times.counts(settings, texts)["evaluations"]
    return SimpleNamespace(
        settings=settings,
        spent=spent,
        hours=(INSTALL + sum(spent.values())) / 3600,
        start=INSTALL + spent["load"],
        step=(spent["rollout"] + spent["backward"]) / settings["max_steps"],
        evaluation=spent["evaluation"] / evaluations,
    )


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("pair", FREE, ids=name_of)
def test_a_free_colab_machine_finishes_measuring_included(pair):
    # gsm8k/t4 once took 6 to 7 hours, which no free session lasts.
    assert plan(*pair).hours <= 2.5


def test_what_a_free_machine_does_not_finish_is_called_the_sources():
    assert plan("gsm8k", "t4_source").hours > 2.5
    asked = {name: models.read_settings("gsm8k", name) for name in ("t4", "t4_source")}
    short, whole = asked["t4"], asked["t4_source"]
    differ = {name for name in whole if short[name] != whole[name]}
    assert differ <= {
        *("profile", "max_steps", "evaluate_every", "evaluate_rows", "test_limit"),
        *("save_steps", "save_total_limit"),
    }


@pytest.mark.parametrize("pair", FREE, ids=name_of)
def test_the_first_held_out_figure_comes_soon_and_then_one_every_half_hour(pair):
    found = plan(*pair)
    assert found.start + found.evaluation <= 20 * 60
    between = found.settings["evaluate_every"] * found.step + found.evaluation
    assert between <= 30 * 60


def seconds_lost(found):
    """What a lost machine costs at most."""
    assert found.settings["save_minutes"] > 0
    return 60 * found.settings["save_minutes"] + found.step + found.evaluation


@pytest.mark.parametrize("pair", [pair for pair in EVERY if pair != SELDOM], ids=name_of)
def test_a_lost_machine_costs_ten_minutes_at_most(pair):
    # gsm8k once saved every 50 steps, 55 minutes on a T4.
    found = plan(*pair)
    assert found.settings["use_peft"]  # an adapter is saved in a moment
    assert seconds_lost(found) <= 10 * 60


def test_the_page_names_the_profile_whose_loss_costs_more():
    assert seconds_lost(plan(*SELDOM)) > 10 * 60
    page = (paths.ROOT / "docs" / "hardware.md").read_text(encoding="utf-8")
    (said,) = [line for line in page.splitlines() if "a machine that is lost costs" in line]
    assert "land use’s `a100_source`" in said
    assert "several processes, which save by steps alone" in said


def test_every_file_for_a_gpu_is_looked_at():
    files = [path for path in paths.CONFIGS.glob("*/*.yaml") if path.stem != "experiments"]
    gpu = {(p.parent.name, p.stem) for p in files if not yaml.safe_load(p.read_text())["use_cpu"]}
    assert gpu == set(EVERY)


def test_the_page_of_ninety_minutes_has_preflights_estimate():
    page = (paths.ROOT / "docs" / "ninety_minutes.md").read_text(encoding="utf-8")
    said = [float(minutes) for minutes in re.findall(r"^\|.*\| ([\d.]+) minutes? \|$", page, re.M)]
    install, training, measuring, _ = said
    spent = plan("poker", "t4").spent
    final = spent.pop("final test")
    assert measuring == pytest.approx(final / 60, rel=0.1)
    assert training == pytest.approx(sum(spent.values()) / 60, rel=0.1)
    assert 60 * install == INSTALL
    assert sum(said) <= 90


def test_completions_that_serve_several_steps_are_written_once():
    def rollout(**changes):
        tuned = checked(("math", "t4"), changes)
        shape, _ = preflight.shape_of(tuned["model_name_or_path"])
        texts, _ = preflight.texts_of(tuned, shape)
        card = cards()["t4"]
        found = {phase.name: phase for phase in phases(tuned, shape, card, texts)}
        return times.seconds(tuned, shape, card, texts, found)["rollout"]

    number = checked(("math", "t4"), {})["gradient_accumulation_steps"]
    one, two = (rollout(steps_per_generation=n * number) for n in (1, 2))
    assert two == pytest.approx(one / 2, rel=0.01)
