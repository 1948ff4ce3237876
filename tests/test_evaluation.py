"""The harness: what it generates, counts and refuses."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from casebook import evaluation, load_case, models, paths
from casebook.case import CasebookError
from casebook.models.decoding import constraint_for
from casebook.stats import pass_at_k, unpack_bits

CASE = load_case("poker")
ADAPTER = paths.RESULTS / "poker" / "nano" / "adapter"
LABEL = models.read_settings("poker", "smoke") | {"variant": "label", "max_completion_length": 8}


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


def test_a_bit_is_kept_for_each_row_decoding_and_sample(evaluated):
    for decoding, kept in evaluated.bits().items():
        rows = evaluated.decoded(decoding)
        for name in evaluation.BITS:
            bits = unpack_bits(kept[name], kept["rows"])
            assert bits.tolist() == rows[name].to_numpy().reshape(24, -1).tolist()


def test_accuracy_wants_the_form_and_only_lenient_accuracy_does_not():
    rows = {"row": [0, 1] * 2, "decoding": ["greedy"] * 2 + ["sample"] * 2, "tokens": 1}
    rows |= {"correct": [True, True, True, False], "strict": [True, False, False, False]}
    frame = pd.DataFrame(rows).assign(well_formed=[True, False] * 2, truncated=False)
    figures = evaluation.Evaluation(frame, ()).summary()
    names = ("greedy_accuracy", "sampled_accuracy", "lenient_accuracy", "well_formed")
    assert [figures[name]["value"] for name in names] == [0.5, 0, 0.5, 0.5]


def test_the_same_seed_samples_the_same_and_another_does_not(base, evaluated):
    same = evaluation.evaluate(*base, "poker", "validation", limit=24, samples=3, seed=1)
    other = evaluation.evaluate(*base, "poker", "validation", limit=24, samples=3, seed=2)
    assert same.rows["completion"].equals(evaluated.rows["completion"])
    assert not other.rows["completion"].equals(evaluated.rows["completion"])


def test_a_training_goes_on_in_its_mode_with_its_own_random_numbers(base):
    base[0].train()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    evaluation.evaluate(*base, "poker", "validation", limit=2, samples=1, seed=0)
    assert torch.equal(torch.rand(3), expected)
    assert base[0].training
    base[0].eval()


def test_the_settings_of_the_training_decide_how_it_is_decoded(base):
    settings = models.read_settings("poker", "nano") | {"max_completion_length": 5}
    short = evaluation.evaluate(*base, "poker", "validation", limit=4, settings=settings)
    assert short.rows["tokens"].max() <= 5


@pytest.mark.parametrize("constraint", ["none", "trie", "position"])
def test_drift_is_zero_for_a_fresh_adapter_and_positive_for_a_moved_one(constraint):
    model, tokenizer = models.load_policy("poker", "smoke")
    settings = LABEL | {"constraint": constraint}
    arguments = {"limit": 8, "samples": 1, "drift": True, "settings": settings}
    fresh = evaluation.evaluate(model, tokenizer, "poker", "validation", **arguments)
    assert fresh.drift == pytest.approx(0, abs=1e-7)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.3 * torch.randn_like(parameter)
    moved = evaluation.evaluate(model, tokenizer, "poker", "validation", **arguments)
    assert moved.drift > 1e-3


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


# A record

CALL = {"split": "validation", "limit": 4, "samples": 1}


@pytest.fixture
def uneven(monkeypatch):
    """The poker case with prompts that are long: the first, or all of them."""

    def use(longest):
        def load(split, profile, variant):
            rows = CASE.load(split, profile=profile, variant="reason")
            return rows.map(
                lambda row, i: {"prompt": " ".join([row["prompt"]] * (40 if i < longest else 1))},
                with_indices=True,
            )

        monkeypatch.setattr(evaluation, "load_case", lambda name: replace(CASE, load=load))

    return use


def test_another_variant_is_measured_and_named():
    record = evaluation.evaluate_to_record("poker", variant="label", **CALL)
    assert (record["variant"], record["dropped_overlong"]) == ("label", 0)
    assert (record["case"], record["profile"], record["split"]) == ("poker", "nano", "validation")
    assert record["weights"]["name"] == "data/nano/poker"
    assert record["greedy_accuracy"]["n"] == 4


def test_what_does_not_fit_is_left_out_and_counted(uneven):
    uneven(longest=1)
    record = evaluation.evaluate_to_record("poker", variant="reason", **CALL)
    assert record["dropped_overlong"] == 1
    assert record["greedy_accuracy"]["n"] == 3
    uneven(longest=10_000)
    with pytest.raises(CasebookError, match=r"no prompt of poker/reason fits: .* 256 positions"):
        evaluation.evaluate_to_record("poker", variant="reason", **CALL)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("poker", None, None, "test", 4, 1, 0, "shots5"), "unknown variant 'shots5': known are"),
        (("poker", paths.DATA), "no policy is saved there"),
        (("landuse", ADAPTER), "was trained for poker/nano, not for landuse/nano"),
        (("poker", ADAPTER, "smoke"), "was trained for poker/nano, not for poker/smoke"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence(arguments, sentence):
    with pytest.raises(CasebookError, match=sentence):
        evaluation.evaluate_to_record(*arguments)


# A constraint


def test_under_the_trie_only_labels_are_written_greedily_and_sampled(base):
    settings = LABEL | {"constraint": "trie"}
    options = {"limit": 12, "samples": 4, "settings": settings}
    result = evaluation.evaluate(*base, "poker", "validation", **options)
    assert set(result.rows["completion"]) <= {f" {label}" for label in CASE.labels}
    assert result.rows["well_formed"].all()
    free = evaluation.evaluate(*base, "poker", "validation", **(options | {"settings": LABEL}))
    assert not free.rows["well_formed"].all()  # cards of the hand are not labels
    assert set(free.rows["answer"]) == set(result.rows["answer"])


def token_batch(tokenizer, completions):
    prompt = tokenizer(CASE.load("train", variant="label")[0]["prompt"]).input_ids
    end = [tokenizer.eos_token_id]
    return [(prompt[-9 - i :], tokenizer(c).input_ids + end) for i, c in enumerate(completions)]


@pytest.mark.parametrize("kind", ["none", "trie"])
def test_log_probabilities_of_a_batch_are_those_of_its_rows_alone(base, kind):
    model, tokenizer = base
    rule = constraint_for(kind, CASE.labels, tokenizer)
    batch = token_batch(tokenizer, [" flush", " four of a kind", " one pair"])
    together, mask = evaluation.token_logps(model, batch, rule)
    assert mask.sum(1).tolist() == [len(completion) for _, completion in batch]
    for i, row in enumerate(batch):
        alone, its_mask = evaluation.token_logps(model, [row], rule)
        assert together[i][mask[i]].tolist() == pytest.approx(alone[its_mask].tolist(), abs=1e-4)


def test_without_a_constraint_the_whole_softmax_counts(base):
    model, tokenizer = base
    ((prompt, completion),) = batch = token_batch(tokenizer, [" two pair"])
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    expected = logits.log_softmax(-1)[range(len(completion)), completion]
    logps, mask = evaluation.token_logps(model, batch)
    assert logps[mask].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_under_the_trie_the_labels_share_all_the_probability_there_is(base):
    model, tokenizer = base
    rule = constraint_for("trie", CASE.labels, tokenizer)
    prompt = tokenizer("Hand: 2C\n").input_ids
    end = [tokenizer.eos_token_id]
    batch = [(prompt, tokenizer(f" {label}").input_ids + end) for label in CASE.labels]
    logps, mask = evaluation.token_logps(model, batch, rule)
    assert float((logps * mask).sum(1).exp().sum()) == pytest.approx(1, abs=1e-4)


# pass@k


def sampled(right, samples):
    """An evaluation whose i-th prompt was solved by the first `right[i]` of its samples."""
    rows = [(row, "greedy", False) for row in range(len(right))]
    rows += [(row, "sample", k < n) for row, n in enumerate(right) for k in range(samples)]
    frame = pd.DataFrame(rows, columns=["row", "decoding", "strict"])
    return evaluation.Evaluation(frame, CASE.labels)


def test_pass_at_k_is_the_unbiased_estimate_over_prompts():
    right = [0, 1, 3, 8]
    figures = sampled(right, 8).pass_at_k()
    assert list(figures) == ["1", "2", "4", "8"]
    for k, figure in figures.items():
        assert figure["value"] == pytest.approx(np.mean(pass_at_k(8, np.array(right), int(k))))
        assert figure["n"] == 4
    assert figures["1"]["value"] == pytest.approx(12 / 32)
    assert figures["8"]["value"] == pytest.approx(3 / 4)


# Other text


def test_a_model_is_less_surprised_by_its_corpus_than_an_untrained_one(base, monkeypatch):
    monkeypatch.setattr(evaluation, "OTHER_ROWS", 32)
    model, tokenizer = base
    trained = evaluation.other_prompt_perplexity(model, tokenizer, "poker")
    torch.manual_seed(0)
    untrained = LlamaForCausalLM(LlamaConfig.from_pretrained(model.config.name_or_path))
    ignorant = evaluation.other_prompt_perplexity(untrained.eval(), tokenizer, "poker")
    assert 1 < trained["value"] < ignorant["low"]
    assert ignorant["value"] == pytest.approx(len(tokenizer), rel=0.5)  # any token is as likely
    assert trained["low"] < trained["value"] < trained["high"]
    assert 0 < trained["n"] < 32


def test_perplexity_of_ordinary_text_is_that_of_the_models_own_loss(base):
    model, tokenizer = base
    sentences = (paths.DATA / "plain_english.txt").read_text().splitlines()
    ids = [torch.tensor([tokenizer(sentence)["input_ids"]]) for sentence in sentences]
    with torch.no_grad():
        losses = [float(model(input_ids=one, labels=one).loss) for one in ids]
    figure = evaluation.plain_text_perplexity(model, tokenizer)
    assert figure["value"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-3)
    assert figure["n"] == len(sentences)


def test_drift_is_read_from_the_prompt_that_was_not_trained(base):
    counts = {
        variant: evaluation.other_prompt_perplexity(*base, "poker", variant=variant)["n"]
        for variant in ("reason", "label")
    }
    assert sum(counts.values()) == evaluation.OTHER_ROWS
    assert counts["label"] > counts["reason"]  # most of the corpus asks for reasons
    assert load_case("poker").skills.keys() == counts.keys()
