"""The harness: what it generates, counts and refuses."""

import pytest
import torch

from casebook import evaluation, load_case, models
from casebook.case import CasebookError

CASE = load_case("poker")


@pytest.fixture(scope="module")
def base():
    return models.load_base(models.read_settings("poker", "smoke"))


@pytest.fixture(scope="module")
def evaluated(base):
    return evaluation.evaluate(*base, "poker", "validation", limit=24, samples=3, seed=1)


def test_every_row_is_decoded_greedily_once_and_sampled_as_often_as_asked(evaluated):
    counts = evaluated.rows.groupby(["decoding", "row"]).size().unstack(0)
    assert (counts["greedy"] == 1).all()
    assert (counts["sample"] == 3).all()
    assert len(counts) == 24


def test_grades_are_those_of_the_case(evaluated):
    for row in evaluated.rows.head(40).to_dict("records"):
        grade = CASE.grade(row["completion"], row["answer"])
        assert (grade.well_formed, grade.correct) == (row["well_formed"], row["correct"])
        assert row["strict"] == (row["well_formed"] and row["correct"])


def test_figures_are_the_means_of_the_rows_with_prompts_counted_once(evaluated):
    figures = evaluated.summary()
    sampled = evaluated.decoded("sample")
    assert figures["sampled_accuracy"]["value"] == pytest.approx(sampled["strict"].mean())
    assert figures["sampled_accuracy"]["n"] == 24
    assert sum(figures["label_histogram"].values()) == 24 * 3
    assert sum(map(sum, figures["confusion"])) == 24 * 3


def test_the_same_seed_samples_the_same_and_another_does_not(base, evaluated):
    same = evaluation.evaluate(*base, "poker", "validation", limit=24, samples=3, seed=1)
    other = evaluation.evaluate(*base, "poker", "validation", limit=24, samples=3, seed=2)
    assert same.rows["completion"].equals(evaluated.rows["completion"])
    assert not other.rows["completion"].equals(evaluated.rows["completion"])


def test_a_completion_does_not_depend_on_its_neighbours(base):
    prompts = CASE.load("validation")["prompt"][:8]
    together = evaluation.generate(*base, ["Hand: 2C\n", *prompts], max_new_tokens=20)[1:]
    alone = [evaluation.generate(*base, [prompt], max_new_tokens=20)[0] for prompt in prompts]
    assert [c["completion"] for c in together] == [c["completion"] for c in alone]


def test_truncated_means_that_no_end_was_generated(evaluated):
    limit = models.read_settings("poker", "nano")["max_completion_length"]
    rows = evaluated.rows
    assert (rows.loc[rows["truncated"], "tokens"] == limit).all()
    assert rows["tokens"].between(1, limit).all()


def test_a_training_goes_on_with_its_own_random_numbers(base):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    evaluation.evaluate(*base, "poker", "validation", limit=2, samples=1, seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_the_settings_of_the_training_decide_how_it_is_decoded(base):
    settings = models.read_settings("poker", "nano") | {"max_completion_length": 5}
    short = evaluation.evaluate(*base, "poker", "validation", limit=4, settings=settings)
    assert short.rows["tokens"].max() <= 5


def test_training_mode_is_given_back(base):
    model, tokenizer = base
    model.train()
    evaluation.evaluate(model, tokenizer, "poker", "validation", limit=2, samples=0)
    assert model.training
    model.eval()


def test_drift_is_zero_for_a_fresh_adapter_and_positive_for_a_moved_one():
    model, tokenizer = models.load_policy("poker", "smoke")
    arguments = {"limit": 8, "samples": 1, "drift": True}
    fresh = evaluation.evaluate(model, tokenizer, "poker", "validation", **arguments)
    assert fresh.drift == pytest.approx(0, abs=1e-7)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.3 * torch.randn_like(parameter)
    moved = evaluation.evaluate(model, tokenizer, "poker", "validation", **arguments)
    assert moved.drift > 1e-3


def test_the_drift_of_a_known_pair_of_distributions():
    log_ratio = torch.log(torch.tensor([0.5, 0.3, 0.2])) - torch.log(torch.tensor([0.6, 0.3, 0.1]))
    policy = torch.tensor([0.6, 0.3, 0.1])
    k3 = (torch.exp(log_ratio) - 1 - log_ratio) @ policy
    assert float(k3) == pytest.approx(float(-(log_ratio * policy).sum()), abs=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"split": "dev"},
        {"profile": "nona"},
        {"case": "pokr"},
        {"limit": -1},
        {"samples": -1},
        {"samples": 0, "greedy": False},
    ],
)
def test_what_cannot_be_evaluated_is_one_sentence(base, arguments):
    arguments = {"case": "poker", "split": "test"} | arguments
    with pytest.raises(CasebookError):
        evaluation.evaluate(*base, **arguments)


def test_a_policy_of_another_profile_is_refused(tmp_path):
    settings = models.read_settings("poker", "smoke")
    model, tokenizer = models.load_policy("poker", "smoke")
    models.save_policy(model, tokenizer, tmp_path / "adapter", settings)
    with pytest.raises(CasebookError, match="trained for poker/smoke"):
        evaluation.evaluate_to_record("poker", tmp_path / "adapter", profile="nano", limit=2)
