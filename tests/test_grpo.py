"""GRPO in plain torch: the same numbers as TRL, the facts about KL, and a loop that learns."""

import ast
import math
from functools import cache
from itertools import chain

import nbformat
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from casebook import evaluation, grpo, load_case, models, paths  # models before trl
from casebook.case import CasebookError

# isort: split
from transformers import PrinterCallback, set_seed
from transformers.utils import logging as transformers_logging
from trl import GRPOConfig, GRPOTrainer

transformers_logging.set_verbosity_error()
CASE = load_case("poker")
ROWS = CASE.load("train", "smoke")
GROUP, LENGTH = 4, 32
REWARDS = [1.4, 0.0, 0.2, 1.0, 0.0, 0.0, 0.4, 0.0]  # two groups of four
UNSCORED = [None, 0.0, 1.0, 0.5, 1.0, None, None, None]


def relative(a, b):
    """Distance of two tensors relative to the second."""
    return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))


# Against TRL -------------------------------------------------------------------------------


@pytest.fixture
def policy():
    model, tokenizer = models.load_policy("poker", "smoke")
    return model.double().train(), tokenizer


def move(model, seed, size=0.1):
    """Give the adapter a place of its own: another seed, another policy."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator))


def gradient(model, loss):
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained)])


def eight_rows():
    """Two prompts, one twice as long as the other, so that one of them is padded."""
    lengths = [1] * GROUP + [2] * GROUP
    return [{"prompt": ROWS[n]["prompt"] * n, "answer": ROWS[n]["answer"]} for n in lengths]


@cache
def sampled():
    """What the base writes for them; one completion is cut off, without an end."""
    model, tokenizer = models.load_base(models.read_settings("poker", "smoke"))
    set_seed(0)
    prompts = [row["prompt"] for row in eight_rows()]
    written = evaluation.generate(model, tokenizer, prompts, LENGTH, temperature=1.2)
    completions = [completion["ids"][1] for completion in written]
    completions[4] = (completions[4][:-1] * LENGTH)[:LENGTH]
    return completions


class Batch:
    """What TRL makes of completions and rewards that were chosen beforehand.

    Everything from the padding to the loss is TRL's own code; only the sampling is not. The
    policy that TRL scores as the old one is moved before the loss is computed.
    """

    def __init__(self, policy, tmp_path, rewards=REWARDS, **options):
        self.model, tokenizer = policy
        rows = eight_rows()
        arguments = {"beta": 0.04, "num_iterations": 2, "use_bias_correction_kl": False} | options
        self.trainer = GRPOTrainer(
            model=self.model,
            reward_funcs=lambda completions, **columns: rewards,
            args=GRPOConfig(
                output_dir=str(tmp_path),
                per_device_train_batch_size=2 * GROUP,
                num_generations=GROUP,
                max_completion_length=LENGTH,
                **{"use_cpu": True, "bf16": False, "report_to": "none"},
                gradient_checkpointing=False,
                **arguments,
            ),
            train_dataset=ROWS,
            processing_class=tokenizer,
        )
        self.trainer.current_gradient_accumulation_steps = 1  # the training loop would set it
        move(self.model, seed=1)
        prompts = [tokenizer(row["prompt"]).input_ids for row in rows]
        self.eos = tokenizer.eos_token_id
        completions = sampled()
        self.trainer._generate = lambda prompts_: (
            *(prompts, completions, None, tokenizer.batch_decode(completions)),
            *(None, {}, None, None),
        )
        self.inputs = self.trainer._generate_and_score_completions(rows)
        move(self.model, seed=2)

    def ours(self, logps, rewards=REWARDS, **options):
        """Our loss on TRL's batch; `logps` are ours, of the policy as it is now."""
        inputs = self.inputs
        return grpo.policy_loss(
            logps,
            inputs.get("old_per_token_logps"),
            grpo.group_advantages(rewards, GROUP, self.trainer.scale_rewards),
            grpo.completion_mask(inputs["completion_ids"], self.eos),
            max_completion_length=LENGTH,
            num_items=inputs["num_items_in_batch"].item(),
            ref_logps=inputs.get("ref_per_token_logps"),
            **options,
        )

    def logps(self):
        inputs = self.inputs
        ids, mask = (
            torch.cat([inputs[f"prompt_{what}"], inputs[f"completion_{what}"]], dim=1)
            for what in ("ids", "mask")
        )
        written = inputs["completion_ids"]
        logits, _ = grpo._completion_logits(self.model, ids, mask, written.shape[1])
        return grpo._logps(logits, written, self.trainer.temperature)[0]


@pytest.mark.slow
@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize(
    ("loss_type", "scale"), zip(grpo.LOSSES, [*grpo.SCALES, "group"], strict=True)
)
def test_loss_and_gradient_are_trls(policy, tmp_path, loss_type, scale, correction):
    options = {"loss_type": loss_type, "epsilon": 0.1, "epsilon_high": 0.3, "beta": 0.04}
    options["use_bias_correction_kl"] = correction
    batch = Batch(policy, tmp_path, scale_rewards=scale, temperature=0.9, **options)
    # The batch is part of a larger one, and clipping and KL have something to do.
    batch.inputs["num_items_in_batch"] += 37
    logps = batch.logps()
    mask = batch.inputs["completion_mask"].bool()
    ratio = torch.exp(logps - batch.inputs["old_per_token_logps"])[mask]
    assert (ratio < 0.9).any()
    assert (ratio > 1.3).any()
    assert (~mask).any()

    theirs = batch.trainer.compute_loss(batch.model, batch.inputs)
    ours = batch.ours(logps, **options)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    clipped = batch.ours(logps, **options | {"epsilon": 9.0, "epsilon_high": 9.0})
    assert abs((clipped - ours).item()) > 1e-3 * abs(ours.item()), "no token was clipped"
    assert relative(gradient(batch.model, ours), gradient(batch.model, theirs)) < 1e-5


@pytest.mark.parametrize("loss_type", grpo.LOSSES)
def test_on_policy_without_kl_the_gradient_is_trls_and_the_loss_near_zero(
    policy, tmp_path, loss_type
):
    batch = Batch(policy, tmp_path, loss_type=loss_type, beta=0.0, num_iterations=1)
    assert "old_per_token_logps" not in batch.inputs
    theirs = batch.trainer.compute_loss(batch.model, batch.inputs)
    ours = batch.ours(batch.logps(), loss_type=loss_type)
    assert relative(gradient(batch.model, ours), gradient(batch.model, theirs)) < 1e-5
    if loss_type == "grpo":  # the one that is exactly a mean of centred advantages
        assert ours.item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("rewards", [REWARDS, [1.0] * 4 + [0.3, 0.3, 0.3, 1.0], UNSCORED])
@pytest.mark.parametrize("scale", grpo.SCALES)
def test_masks_advantages_and_logps_are_trls(policy, tmp_path, scale, rewards):
    batch = Batch(policy, tmp_path, rewards, scale_rewards=scale)
    ours = grpo.group_advantages([math.nan if r is None else r for r in rewards], GROUP, scale)
    torch.testing.assert_close(ours, batch.inputs["advantages"])
    assert all(ours[i] == 0 for i, reward in enumerate(rewards) if reward is None)
    mask = grpo.completion_mask(batch.inputs["completion_ids"], batch.eos)
    assert torch.equal(mask, batch.inputs["completion_mask"].bool())
    move(batch.model, seed=1)  # back to the policy that TRL scored
    torch.testing.assert_close(batch.logps()[mask], batch.inputs["old_per_token_logps"][mask])
    with batch.model.disable_adapter():
        reference = batch.logps()[mask]
    torch.testing.assert_close(reference, batch.inputs["ref_per_token_logps"][mask])


def test_the_loop_is_trls_training_step_by_step(tmp_path):
    settings = models.read_settings("poker", "smoke") | {"seed": 3, "beta": 0.02}
    names = ("reward", "reward_std", "entropy", "grad_norm", "kl", "frac_reward_zero_std")
    names += ("completions/mean_length", "completions/clipped_ratio", "learning_rate")
    known = set(GRPOConfig.__dataclass_fields__)
    arguments = {name: value for name, value in settings.items() if name in known}
    functions = [CASE.rewards[name]() for name in settings["reward_funcs"]]
    model, tokenizer = models.load_policy("poker", "smoke", seed=3)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=functions,
        args=GRPOConfig(output_dir=str(tmp_path), **arguments | {"save_strategy": "no"}),
        train_dataset=ROWS,
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    theirs = [line for line in trainer.state.log_history if "grad_norm" in line]

    model, tokenizer = models.load_policy("poker", "smoke", seed=3)
    reward = list(zip(functions, settings["reward_weights"], strict=True))
    ours = grpo.train(model, tokenizer, ROWS, reward, settings)
    assert len(ours) == len(theirs) == settings["max_steps"]
    for our, their in zip(ours, theirs, strict=True):
        assert our["loss"] == pytest.approx(their["loss"], abs=1e-5)
        for name in names:
            assert our[name] == pytest.approx(their[name], rel=1e-4, abs=1e-6), name


def test_the_functions_on_the_page_of_notebook_01_are_trls_loss_and_gradient(policy, tmp_path):
    path = paths.NOTEBOOKS / "01_grpo_in_100_lines.ipynb"
    cells = [c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code"]
    defined = [d for c in cells for d in ast.parse(c).body if isinstance(d, ast.FunctionDef)]
    page = {"torch": torch, "tok": policy[1], "STEPS": 1}
    exec(compile(ast.Module(defined, []), path.name, "exec"), page)
    batch = Batch(policy, tmp_path, loss_type="dapo", temperature=1.0)
    sides = [[batch.inputs[f"{side}_{what}"] for side in ("prompt", "completion")]
             for what in ("ids", "mask")]  # fmt: skip
    ids, seen = (torch.cat(side, 1) for side in sides)
    mask = page["completion_mask"](sides[0][1])
    adv = page["advantages"](torch.tensor(REWARDS, dtype=torch.float64), GROUP)
    logp = page["logprobs"](batch.model, ids, seen, mask.shape[1])
    old_and_ref = (batch.inputs[f"{name}_per_token_logps"] for name in ("old", "ref"))
    ours = page["grpo_loss"](logp, *old_and_ref, adv, mask, eps=0.2, beta=0.04)
    theirs = batch.trainer.compute_loss(batch.model, batch.inputs)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    assert relative(gradient(batch.model, ours), gradient(batch.model, theirs)) < 1e-6


# Advantages --------------------------------------------------------------------------------

rewards_in_groups = st.integers(2, 6).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(
            st.lists(st.floats(-10, 10, width=32), min_size=size, max_size=size),
            min_size=1,
            max_size=4,
        ).map(lambda groups: [*chain(*groups)]),
    )
)


@given(rewards_in_groups, st.sampled_from(grpo.SCALES))
def test_advantages_of_a_group_sum_to_zero_and_are_numbers(case, scale):
    size, rewards = case
    advantages = grpo.group_advantages(torch.tensor(rewards, dtype=torch.float64), size, scale)
    assert advantages.isfinite().all()
    torch.testing.assert_close(
        advantages.view(-1, size).sum(1), torch.zeros(len(rewards) // size).double(), atol=1e-8,
        rtol=0,
    )  # fmt: skip


def test_advantages_by_hand():
    rewards = [1, 0, 0, 0, 1, 1, 0, 0]
    by_group = [1.5, -0.5, -0.5, -0.5, 0.866, 0.866, -0.866, -0.866]
    assert grpo.group_advantages(rewards, 4).tolist() == pytest.approx(by_group, abs=1e-3)
    centred = [0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5]
    assert grpo.group_advantages(rewards, 4, "none").tolist() == pytest.approx(centred)
    deviation = np.std(rewards, ddof=1) + 1e-4
    batch = [value / deviation for value in centred]
    assert grpo.group_advantages(rewards, 4, "batch").tolist() == pytest.approx(batch, abs=1e-5)


@pytest.mark.parametrize(
    ("rewards", "size", "scale", "message"),
    [
        ([1.0, 0.0, 1.0], 2, "group", "do not split into groups of 2"),
        ([[1.0, 0.0]], 2, "group", "do not split into groups"),
        ([1.0, 0.0], 1, "group", "at least 2"),
        ([1.0, 0.0], 2, "std", "unknown scale 'std': known are group, batch, none"),
        ([1.0, math.inf], 2, "group", "infinite"),
    ],
)
def test_rewards_that_make_no_advantages_are_one_sentence(rewards, size, scale, message):
    with pytest.raises(CasebookError, match=message):
        grpo.group_advantages(rewards, size, scale)


@given(st.floats(0, 1), st.integers(2, 6))
def test_the_zero_gradient_share_counts_all_outcomes(p, size):
    outcomes = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * size)
    weights = (p * outcomes + (1 - p) * (1 - outcomes)).prod(1)
    silent = grpo.group_advantages(outcomes.flatten(), size).view(-1, size).abs().sum(1) == 0
    assert grpo.zero_gradient_share(p, size) == pytest.approx(
        float(weights[silent].sum()), abs=1e-5
    )


# Masks and log-probabilities ---------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=5))
def test_the_mask_ends_with_the_first_end(rows):
    mask = grpo.completion_mask(torch.tensor(rows), eos_token_id=0)
    for ids, kept in zip(rows, mask.tolist(), strict=True):
        length = ids.index(0) + 1 if 0 in ids else len(ids)
        assert kept == [i < length for i in range(len(ids))]


# KL, by enumeration ------------------------------------------------------------------------

THETA = torch.tensor([0.7, -0.4, 0.1], dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.tensor([-0.3, 0.2, 0.9], dtype=torch.float64), 0)


def derivative(of):
    theta = THETA.clone().requires_grad_()
    return torch.autograd.grad(of(torch.log_softmax(theta, 0)), theta)[0]


def expected(kind, weights=None):
    """The expectation of an estimator as a loss: the samples' weights carry no gradient."""
    return lambda logp: (
        (logp.exp() if weights is None else weights).detach() * grpo.kl(logp, REFERENCE, kind)
    ).sum()


def reverse(logp):
    return (logp.exp() * (logp - REFERENCE)).sum()


def forward(logp):
    return (REFERENCE.exp() * (REFERENCE - logp)).sum()


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    logp = torch.log_softmax(THETA, 0)
    truth = float(reverse(logp))
    assert float(expected("k1")(logp)) == pytest.approx(truth, rel=1e-12)
    assert float(expected("k3")(logp)) == pytest.approx(truth, rel=1e-12)
    assert abs(float(expected("k2")(logp)) - truth) > 0.01


@pytest.mark.parametrize(
    ("kind", "direction"), [("k1", lambda logp: 0 * logp.sum()), ("k2", reverse), ("k3", forward)]
)
def test_each_kl_as_a_loss_has_the_gradient_of_its_direction(kind, direction):
    wanted = derivative(direction)
    torch.testing.assert_close(derivative(expected(kind)), wanted, atol=1e-12, rtol=1e-7)


# Losses by hand ----------------------------------------------------------------------------


def test_what_stands_at_padded_positions_does_not_matter():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    logps = torch.tensor([[-1.0, -2.0, 0.0], [-0.5, 0.0, 0.0]])
    old, ref = logps - 0.1, logps + 0.2
    advantages = torch.tensor([1.0, -1.0])
    for rubbish in (math.nan, math.inf, -math.inf, 1e9):
        soiled = [t.masked_fill(mask == 0, rubbish).requires_grad_() for t in (logps, old, ref)]
        loss = grpo.policy_loss(*soiled[:2], advantages, mask, ref_logps=soiled[2], beta=0.1)
        clean = grpo.policy_loss(logps, old, advantages, mask, ref_logps=ref, beta=0.1)
        assert loss.item() == pytest.approx(clean.item())
        loss.backward()
        assert soiled[0].grad.isfinite().all()
        assert (soiled[0].grad[mask == 0] == 0).all()


def test_a_completion_without_tokens_is_no_division_by_zero():
    nothing = torch.zeros(1, 2)
    for loss_type in grpo.LOSSES:
        options = {"loss_type": loss_type, "max_completion_length": 2}
        assert grpo.policy_loss(nothing, nothing, torch.ones(1), nothing, **options) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_type": "gspo"}, "unknown loss type 'gspo': known are grpo, bnpo, dr_grpo, dapo"),
        ({"kl_kind": "k4"}, "unknown kind of KL estimate 'k4'"),
        ({"loss_type": "dr_grpo"}, "max_completion_length, which is missing"),
        ({"beta": 0.1}, "ref_logps"),
        ({"old_logps": torch.zeros(2, 4)}, "old_logps has the shape"),
        ({"advantages": torch.zeros(3)}, r"advantages \(n,\) or \(n, L\)"),
    ],
)
def test_a_loss_that_cannot_be_is_one_sentence(changes, message):
    arguments = {
        "logps": torch.zeros(2, 3),
        "old_logps": None,
        "advantages": torch.zeros(2),
        "mask": torch.ones(2, 3),
    }
    with pytest.raises(CasebookError, match=message):
        grpo.policy_loss(**arguments | changes)


# The critic --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lam", "wanted"),
    [
        (1.0, [[0.7, 0.4, 0.1], [-0.2, -0.5, 0.0]]),  # only a state's own value is left of a critic
        (0.5, [[0.475, 0.35, 0.1], [0.05, -0.5, 0.0]]),
        (0.0, [[0.3, 0.3, 0.1], [0.3, -0.5, 0.0]]),  # the next state's value is believed
    ],
)
def test_advantages_of_tokens_by_hand(lam, wanted):
    values = torch.tensor([[0.3, 0.6, 0.9], [0.2, 0.5, 7.0]])
    mask = torch.tensor([[True] * 3, [True, True, False]])
    advantages, returns = grpo.token_advantages(torch.tensor([1.0, 0.0]), values, mask, lam)
    torch.testing.assert_close(advantages, torch.tensor(wanted))
    torch.testing.assert_close(returns, torch.tensor(wanted) + values * mask)


# The loop ----------------------------------------------------------------------------------

SMOKE = models.read_settings("poker", "smoke") | {"max_steps": 2}


def brief(completions, **columns):
    """A reward that any policy can earn at once: fewer characters."""
    return [1 - len(completion) / 120 for completion in completions]


def run(algorithm, rows=ROWS, reward=brief, **changes):
    """Metrics, and what the reward function was called with at each step."""
    model, tokenizer = models.load_policy("poker", "smoke")
    calls = []

    def listening(**arguments):
        calls.append(arguments)
        return reward(**arguments)

    listening.__name__ = reward.__name__
    settings = SMOKE | changes
    history = grpo.train(model, tokenizer, rows, [(listening, 1.0)], settings, algorithm)
    return history, calls, model


@pytest.fixture(scope="module")
def runs():
    return {algorithm: run(algorithm) for algorithm in grpo.ALGORITHMS}


def test_all_algorithms_see_the_same_prompts_and_begin_with_the_same_samples(runs):
    (_, first, _), *others = runs.values()
    for _, calls, _ in others:
        assert [call["prompts"] for call in calls] == [call["prompts"] for call in first]
        assert calls[0]["completions"] == first[0]["completions"]


@pytest.mark.parametrize("algorithm", grpo.ALGORITHMS)
def test_only_the_adapter_is_trained(runs, algorithm):
    history, _, model = runs[algorithm]
    assert all(math.isfinite(value) for line in history for value in line.values())
    fresh, _ = models.load_policy("poker", "smoke")
    before = dict(fresh.named_parameters())
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {name for name in before if "lora" in name}


def test_the_same_seed_gives_the_same_run_and_another_another(runs):
    def texts(calls):
        return [call["completions"] for call in calls]

    set_seed(99)  # whatever was drawn before
    assert texts(run("grpo")[1]) == texts(runs["grpo"][1])
    other = run("grpo", seed=5)[1]
    assert other[0]["prompts"] != runs["grpo"][1][0]["prompts"]


@pytest.mark.parametrize(
    ("algorithm", "changes", "message"),
    [
        ("dpo", {}, "unknown algorithm 'dpo': known are reinforce, ppo, grpo"),
        ("ppo", {"beta": 0.1}, "beta needs the algorithm 'grpo' and a model with an adapter"),
        ("grpo", {"num_generations": 3}, "groups of 3 do not fill a step of 16"),
        ("grpo", {"rows": ROWS.select(range(3))}, "4 prompts, but there are 3 rows"),
        ("grpo", {"reward": lambda **columns: [1.0]}, "gave .* values for 16 completions"),
        ("grpo", {"reward": lambda **columns: [None] * 16}, "gave None"),
        ("grpo", {"loss_type": "cispo"}, "unknown loss type 'cispo'"),
    ],
)
def test_a_training_that_cannot_be_is_one_sentence(algorithm, changes, message):
    with pytest.raises(CasebookError, match=message):
        run(algorithm, **changes)
