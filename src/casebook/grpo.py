"""GRPO in plain torch: advantages, masks, losses, and a loop small enough to read.

A policy `pi` writes G completions for each prompt, a program scores each with a reward R, and
the policy is moved so that what scored above its group's mean becomes more likely:

    A_i   = (R_i - mean(R)) / (std(R) + 1e-4)               the advantage, one per completion
    r_it  = pi(o_it) / pi_old(o_it)                         the ratio, one per token
    loss  = norm sum_i sum_t [beta KL_it - min(r_it A_i, clip(r_it, 1 - eps, 1 + eps_high) A_i)]

(DeepSeekMath, arXiv 2402.03300, equations 3 and 4). What `norm` is decides which completions
count for how much, and is the difference between the four loss types here. TRL's trainer does
the same with many more options; this module is for reading, and its tests hold its loss and its
gradient against TRL's.

The second half is one training loop for REINFORCE, PPO and GRPO, three short methods of it.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from casebook.case import CasebookError, check_name

LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo")
SCALES = ("group", "batch", "none")
KINDS = ("k1", "k2", "k3")
ALGORITHMS = ("reinforce", "ppo", "grpo")
PPO_EPOCHS = 2  # the second one is off-policy: only there has the clipping anything to do
GAE_LAMBDA = 0.95
VALUE_RATE = 1e-2  # of the value head, which starts from nothing and has to be quick

# Advantages


def group_advantages(
    rewards: Any, group_size: int, scale: str = "group", eps: float = 1e-4
) -> Tensor:
    """Rewards against their group's mean, in units of a standard deviation.

    Args:
        rewards: `(n,)`, the completions of one prompt side by side. NaN marks a completion that
            could not be scored: it does not count in its group, and its advantage is 0.
        group_size: completions per prompt; divides n.
        scale: whose standard deviation (ddof 1) the centred rewards are divided by, the
            `"group"`'s or the `"batch"`'s; `"none"`: they are left as they are.
        eps: added to the deviation, so that a group of equal rewards gives zeros.

    Returns:
        `(n,)`, floating. With `"group"`, a factor that a whole group shares is gone, be it the
        reward's unit or a class weight.

    Raises:
        CasebookError: n is not a multiple of `group_size`, a group of one, an infinite reward,
            or an unknown scale.

    Source: GRPO, arXiv 2402.03300, section 4.1.2; without the division, Dr. GRPO, arXiv
    2503.20783. The batch's deviation and `eps` are TRL's.

    >>> group_advantages([1, 0, 0, 0], 4).round(decimals=2)
    tensor([ 1.5000, -0.5000, -0.5000, -0.5000])
    >>> group_advantages([3, 0, 0, 0], 4).round(decimals=2)
    tensor([ 1.5000, -0.5000, -0.5000, -0.5000])
    """
    check_name("scale", scale, SCALES)
    rewards = torch.as_tensor(rewards)
    if not rewards.is_floating_point():
        rewards = rewards.to(torch.get_default_dtype())
    if group_size < 2:
        raise CasebookError(f"a group needs at least 2 completions to compare, not {group_size}")
    if rewards.dim() != 1 or len(rewards) % group_size or not len(rewards):
        raise CasebookError(
            f"rewards of shape {tuple(rewards.shape)} do not split into groups of {group_size}"
        )
    if rewards.isinf().any():
        raise CasebookError("a reward is infinite, so its group has no mean")
    groups = rewards.reshape(-1, group_size)
    advantages = groups - groups.nanmean(1, keepdim=True)
    if scale != "none":
        whole = groups if scale == "group" else rewards[None]
        advantages = advantages / (_deviation(whole) + eps)
    return advantages.flatten().nan_to_num(nan=0.0)


def _deviation(rows: Tensor) -> Tensor:
    """Sample deviation of each row `(rows, 1)`, NaN left out; 0 where fewer than two are left."""
    counts = (~rows.isnan()).sum(1, keepdim=True)
    squares = ((rows - rows.nanmean(1, keepdim=True)) ** 2).nansum(1, keepdim=True)
    return (squares / (counts - 1).clamp(min=1)).sqrt()


def zero_gradient_share(p: Any, group_size: int) -> Any:
    """The share of groups that teach nothing, p^G + (1 - p)^G, for a pass rate `p` (or an array).

    With a reward of 0 or 1, a group in which all are right, or all wrong, has advantages 0.

    >>> round(zero_gradient_share(0.06, 4), 2)  # the poker write-up's rate and group
    0.78
    """
    return p**group_size + (1 - p) ** group_size


# Which tokens count, and how likely they were


def completion_mask(completion_ids: Tensor, eos_token_id: int) -> Tensor:
    """Which tokens were written: up to the first end-of-sequence token, that one included.

    Never `ids != pad`: where padding and end share an id, as in the poker write-up, that drops
    every end the policy wrote from the loss, and stopping is never trained.

    `completion_ids` are `(n, L)`, without the prompts; so is the mask, bool.

    >>> completion_mask(torch.tensor([[7, 0, 0], [7, 8, 9]]), eos_token_id=0)  # 0 pads, too
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    ended = (completion_ids == eos_token_id).cumsum(1)
    # 0 before the first end, 1 from there on; what follows the first end has seen it already.
    return (ended - (completion_ids == eos_token_id).long()) == 0


def _completion_logits(
    model: Any, input_ids: Tensor, attention_mask: Tensor, length: int
) -> tuple[Tensor, Tensor]:
    """Logits `(n, L, V)` that predict the last L tokens, and the states they were read from."""
    output = model(
        input_ids=input_ids,
        attention_mask=attention_mask,
        logits_to_keep=length + 1,  # the token at t is predicted at t - 1
        output_hidden_states=True,
        use_cache=False,
    )
    return output.logits[:, :-1], output.hidden_states[-1][:, -length - 1 : -1]


def _logps(logits: Tensor, ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    distribution = torch.log_softmax(logits / temperature, dim=-1)
    with torch.no_grad():
        entropies = torch.special.entr(distribution.exp()).sum(-1)
    return distribution.gather(-1, ids[..., None]).squeeze(-1), entropies


# KL and loss


def kl(logps: Tensor, ref_logps: Tensor, kind: str = "k3") -> Tensor:
    """Per-token estimates of KL(policy || reference) from tokens the policy sampled.

    With rho = reference / policy (Schulman 2020, joschu.net/blog/kl-approx):

    | kind | value                | as an estimate              | gradient, used as a loss     |
    | ---- | -------------------- | --------------------------- | ---------------------------- |
    | k1   | -log rho             | unbiased, may be negative   | zero in expectation          |
    | k2   | (log rho)^2 / 2      | biased, never negative      | that of KL(policy || ref)    |
    | k3   | rho - 1 - log rho    | unbiased, never negative    | that of KL(ref || policy)    |

    So the best value is not the best loss: k3's gradient is the other direction's, and it can be
    huge where rho is (arXiv 2510.01555). DeepSeekMath and TRL use k3.

    Raises:
        CasebookError: different shapes, or an unknown kind.

    >>> half, quarter = torch.tensor([0.5]).log(), torch.tensor([0.25]).log()
    >>> [round(kl(half, quarter, kind).item(), 3) for kind in KINDS]
    [0.693, 0.24, 0.193]
    """
    check_name("kind of KL estimate", kind, KINDS)
    _same_shape(logps, ref_logps=ref_logps)
    log_rho = ref_logps - logps
    if kind == "k1":
        return -log_rho
    if kind == "k2":
        return log_rho**2 / 2
    return log_rho.exp() - 1 - log_rho


def policy_loss(
    logps: Tensor,
    old_logps: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    loss_type: str = "dapo",
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
    ref_logps: Tensor | None = None,
    beta: float = 0.0,
    kl_kind: str = "k3",
    use_bias_correction_kl: bool = False,
    max_completion_length: int | None = None,
    num_items: float | None = None,
) -> Tensor:
    """The clipped surrogate with a KL term, averaged in one of four ways.

    | loss_type | the sum over tokens is divided by      | so that                               |
    | --------- | -------------------------------------- | ------------------------------------- |
    | grpo      | own length, then mean over completions | a long completion's tokens weigh less |
    | bnpo      | tokens of this batch                   | all tokens weigh the same             |
    | dapo      | tokens of the whole generation batch   | as bnpo, in however many parts        |
    | dr_grpo   | n x max_completion_length              | the length divides nothing            |

    On-policy every ratio is 1: the value means nothing, the gradient is that of `A log pi`.

    Args:
        logps: `(n, L)`, of the policy in training.
        old_logps: `(n, L)`, of the policy that sampled; `None`: the same one.
        advantages: `(n,)`, or `(n, L)` for one per token.
        mask: `(n, L)`, true where a token counts; what stands elsewhere, NaN included, does not.
        epsilon, epsilon_high: the ratio is clipped to `1 - epsilon` and `1 + epsilon_high`
            (by default the same).
        ref_logps: `(n, L)`, of the reference; needed where `beta` is not 0.
        beta: weight of the KL term.
        kl_kind: `kl`'s.
        use_bias_correction_kl: multiply the KL term by the ratio, gradient and all: with k3 its
            gradient is then that of KL(policy || ref), whichever policy sampled.
        max_completion_length: the constant of `dr_grpo`.
        num_items: the tokens of the generation batch for `dapo`, where this is a part of it.

    Returns:
        A scalar.

    Raises:
        CasebookError: an unknown loss or KL, shapes that do not match, or something missing.

    Source: GRPO, arXiv 2402.03300; Dr. GRPO, arXiv 2503.20783; DAPO, arXiv 2503.14476; the
    correction of the KL term, DeepSeek-V3.2, arXiv 2512.02556. The name bnpo is TRL's.
    """
    check_name("loss type", loss_type, LOSSES)
    check_name("kind of KL estimate", kl_kind, KINDS)
    mask = mask.bool()
    _same_shape(logps, mask=mask, old_logps=old_logps, ref_logps=ref_logps)
    if advantages.dim() == 1:
        advantages = advantages[:, None]
    if logps.dim() != 2 or advantages.shape not in ((len(logps), 1), logps.shape):
        raise CasebookError(
            f"log-probabilities are (n, L) and advantages (n,) or (n, L), not "
            f"{tuple(logps.shape)} and {tuple(advantages.shape)}"
        )
    if beta and ref_logps is None:
        raise CasebookError("a KL term (beta) needs the reference's log-probabilities (ref_logps)")
    if loss_type == "dr_grpo" and not max_completion_length:
        raise CasebookError("dr_grpo divides by max_completion_length, which is missing")

    def kept(values: Tensor) -> Tensor:
        return values.masked_fill(~mask, 0.0)  # first of all: exp of a padded position may be inf

    old_logps = logps if old_logps is None else old_logps
    ratio = torch.exp(kept(logps) - kept(old_logps).detach())
    clipped = ratio.clamp(1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high))
    per_token = -torch.min(ratio * advantages, clipped * advantages)
    if beta:
        divergence = kl(kept(logps), kept(ref_logps), kl_kind)
        per_token = per_token + beta * divergence * (ratio if use_bias_correction_kl else 1.0)

    sums, tokens = kept(per_token).sum(1), mask.sum(1)
    if loss_type == "grpo":
        return (sums / tokens.clamp(min=1)).mean()
    if loss_type == "dr_grpo":
        return sums.sum() / (len(sums) * max_completion_length)
    whole = num_items if loss_type == "dapo" and num_items is not None else tokens.sum()
    return sums.sum() / max(float(whole), 1.0)


def _same_shape(logps: Tensor, **others: Tensor | None) -> None:
    for name, other in others.items():
        if other is not None and other.shape != logps.shape:
            raise CasebookError(
                f"{name} has the shape {tuple(other.shape)}, but logps {tuple(logps.shape)}"
            )


# The loop


class Rollout(NamedTuple):
    """What one step sampled: `(n, P + L)` ids and attention, `(n, L)` mask, `(n,)` rewards."""

    input_ids: Tensor
    attention_mask: Tensor
    mask: Tensor
    rewards: Tensor


class Look(NamedTuple):
    """What one forward pass tells: `(n, L)` log-probabilities, mean entropy, last hidden states."""

    logps: Tensor
    entropy: Tensor
    states: Tensor


class ValueHead(nn.Linear):
    """PPO's critic: one number read from the policy's last hidden state.

    It reads the state without a gradient, so it cannot bend the policy, and starts at zero.
    """

    def __init__(self, hidden_size: int):
        super().__init__(hidden_size, 1)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, states: Tensor) -> Tensor:
        """States `(n, L, hidden)` -> values `(n, L)`."""
        return super().forward(states.detach().to(self.weight.dtype)).squeeze(-1)


def token_advantages(
    rewards: Tensor, values: Tensor, mask: Tensor, lam: float = GAE_LAMBDA
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of each token, where the reward comes after the last one.

    delta_t = V_{t+1} - V_t, and R - V_t at the last token, is how much a token changed what the
    critic expects. The advantage is the sum of the deltas from t on, weighted 1, lam, lam^2 ...:
    with lam = 1 it is R - V_t, with lam = 0 the critic is believed outright.

    Args:
        rewards: `(n,)`.
        values: `(n, L)`, V before each token.
        mask: `(n, L)`, as of `completion_mask`.

    Returns:
        Advantages, and the returns `advantages + values` that the critic is to learn; `(n, L)`.

    Source: generalised advantage estimation, arXiv 1506.02438, without a discount.
    """
    nothing = torch.zeros_like(values[:, :1])
    values = values * mask
    last = mask & ~torch.cat([mask[:, 1:], nothing.bool()], dim=1)
    following = torch.cat([values[:, 1:], nothing], dim=1) + last * rewards[:, None]
    advantages, running = torch.zeros_like(values), nothing[:, 0]
    for t in reversed(range(values.shape[1])):
        running = (following[:, t] - values[:, t] + lam * running) * mask[:, t]
        advantages[:, t] = running
    return advantages, advantages + values


def train(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Mapping[str, Any]],
    reward: Sequence[tuple[Callable, float]],
    settings: Mapping[str, Any],
    algorithm: str = "grpo",
    log: Callable[[int, dict[str, float]], None] | None = None,
) -> list[dict[str, float]]:
    """Train a policy, in place, by `"reinforce"`, `"ppo"` or `"grpo"`: the metrics of all steps.

    At one seed all three take the same prompts in the same order and begin with the same
    completions; `"grpo"` agrees with TRL's trainer step by step, as far as float32 reaches.

    Args:
        model: a causal language model, of which is trained what requires a gradient; left in
            `eval` mode, since dropout would give a token another probability at each look.
        rows: a data set with `prompt` and whatever columns the rewards read.
        reward: pairs of a TRL reward function and its weight.
        settings: a training's configuration, as in `configs/<case>/<profile>.yaml`; which of its
            fields this loop knows, `casebook.settings` says. A step is
            `per_device_train_batch_size x gradient_accumulation_steps` completions, taken at
            once.
        log: called after each step with its number and its metrics, in TRL's names.

    Raises:
        CasebookError: an unknown algorithm, groups that do not fill a step, fewer rows than a step
            takes, or `beta` where there is no adapter to switch off.
    """
    from transformers import set_seed  # here: it takes seconds, and the formulas need torch alone

    check_name("algorithm", algorithm, ALGORITHMS)
    if settings["beta"] and (algorithm != "grpo" or not hasattr(model, "disable_adapter")):
        raise CasebookError("beta needs the algorithm 'grpo' and a model with an adapter")
    size = settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"]
    group = settings["num_generations"]
    if group < 2 or size % group:
        raise CasebookError(f"groups of {group} do not fill a step of {size} completions")
    prompts, order = size // group, []
    if prompts > len(rows):
        raise CasebookError(f"a step takes {prompts} prompts, but there are {len(rows)} rows")
    shuffling = torch.Generator().manual_seed(settings["seed"])
    learner = Learner(model.eval(), tokenizer, reward, settings, algorithm)
    set_seed(settings["seed"])
    # Drawn and thrown away, here and below: what TRL's data loader and its shuffling draw. Both
    # trainers then sample the same completions.
    torch.empty((), dtype=torch.int64).random_()
    history = []
    for step in range(1, settings["max_steps"] + 1):
        started = time.perf_counter()
        if len(order) < prompts:  # every pass is shuffled anew, as in TRL's trainer
            order = torch.randperm(len(rows), generator=shuffling).tolist()
        taken, order = order[:prompts], order[prompts:]
        metrics = learner.step([rows[i] for i in taken for _ in range(group)], step)
        torch.randperm(size)
        metrics["step_time"] = time.perf_counter() - started
        history.append({"step": step, **metrics})
        if log:
            log(step, metrics)
    return history


class Learner:
    """A policy with its optimiser; `reinforce`, `ppo` and `grpo` are what sets them apart."""

    def __init__(self, model, tokenizer, reward, settings, algorithm):
        from transformers import get_scheduler

        self.model, self.tokenizer, self.reward = model, tokenizer, reward
        self.settings, self.learn = settings, getattr(self, algorithm)
        epsilon, high = settings["epsilon"], settings["epsilon_high"]
        self.clipping = {"epsilon": epsilon, "epsilon_high": epsilon if high is None else high}
        self.trained = [p for p in model.parameters() if p.requires_grad]
        groups: list[dict] = [{"params": self.trained}]
        if algorithm == "ppo":
            self.value_head = ValueHead(model.config.hidden_size).to(model.device)
            groups.append({"params": [*self.value_head.parameters()], "lr": VALUE_RATE})
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=settings["learning_rate"],
            betas=(settings["adam_beta1"], settings["adam_beta2"]),
            eps=settings["adam_epsilon"],
            weight_decay=settings["weight_decay"],
        )
        steps, warmup = settings["max_steps"], settings["warmup_steps"]
        warmup = int(warmup) if warmup >= 1 else math.ceil(warmup * steps)
        kind = settings["lr_scheduler_type"]
        self.schedule = get_scheduler(kind, self.optimizer, warmup, steps)

    def step(self, rows: list[Mapping[str, Any]], step: int) -> dict[str, float]:
        """Sample, score, learn; the metrics, averaged over the step's updates."""
        self.updates: list[dict[str, float]] = []
        rollout, metrics = self.sample(rows, step)
        self.learn(rollout)
        self.schedule.step()
        names = self.updates[0]
        return metrics | {n: sum(u[n] for u in self.updates) / len(self.updates) for n in names}

    def reinforce(self, rollout: Rollout) -> None:
        """Likelier by as much as the reward lies above the batch's mean (Williams 1992)."""
        advantages = rollout.rewards - rollout.rewards.mean()
        look = self.look(rollout)
        self.update(-_mean(advantages[:, None] * look.logps, rollout.mask), look)

    def ppo(self, rollout: Rollout) -> None:
        """A critic predicts the reward to come; clipped steps, twice (arXiv 1707.06347)."""
        mask = rollout.mask
        with torch.no_grad():
            old = self.look(rollout)
            values = self.value_head(old.states)
            advantages, returns = token_advantages(rollout.rewards, values, mask)
            advantages = (advantages - _mean(advantages, mask)) / (advantages[mask].std() + 1e-4)
        for _ in range(PPO_EPOCHS):
            look = self.look(rollout)
            values = self.value_head(look.states)
            loss = policy_loss(look.logps, old.logps, advantages, mask, **self.clipping)
            error = _mean((values - returns) ** 2, mask)
            clipped = _clipped(look.logps - old.logps, advantages, mask, **self.clipping)
            self.update(loss + error, look, value_loss=error, **clipped)

    def grpo(self, rollout: Rollout) -> None:
        """The other completions of the same prompt are the critic."""
        names = ("loss_type", "beta", "use_bias_correction_kl", "max_completion_length")
        options = self.clipping | {name: self.settings[name] for name in names}
        mask, updates = rollout.mask, self.settings["num_iterations"]
        advantages = group_advantages(
            rollout.rewards, self.settings["num_generations"], self.settings["scale_rewards"]
        )
        with torch.no_grad():
            old_logps = self.look(rollout).logps if updates > 1 else None
            if self.settings["beta"]:
                with self.model.disable_adapter():  # the base, without a second copy of it
                    options["ref_logps"] = self.look(rollout).logps
        for _ in range(updates):
            look = self.look(rollout)
            loss = policy_loss(look.logps, old_logps, advantages, mask, **options)
            shown = {}
            if old_logps is not None:
                shown = _clipped(look.logps - old_logps, advantages[:, None], mask, **self.clipping)
            if "ref_logps" in options:
                shown["kl"] = _mean(kl(look.logps, options["ref_logps"]), mask)
            self.update(loss, look, **shown)

    # What they share

    def sample(self, rows: list[Mapping[str, Any]], step: int) -> tuple[Rollout, dict[str, float]]:
        """One completion for each row, scored."""
        from casebook.models.generation import decoding_of, generate

        prompts = [row["prompt"] for row in rows]
        written = generate(self.model, self.tokenizer, prompts, **decoding_of(self.settings))
        ids = [completion["ids"] for completion in written]
        width, length = max(len(p) for p, _ in ids), max(len(c) for _, c in ids)
        input_ids = torch.full((len(ids), width + length), self.tokenizer.pad_token_id)
        attention = torch.zeros_like(input_ids)
        mask = torch.zeros((len(ids), length), dtype=torch.bool)
        for i, (prompt, completion) in enumerate(ids):  # prompts end, completions begin, at width
            inside = slice(width - len(prompt), width + len(completion))
            input_ids[i, inside] = torch.tensor(prompt + completion)
            attention[i, inside] = 1
            mask[i, : len(completion)] = True
        rewards, metrics = self.score(rows, written, step)
        lengths = torch.tensor([completion["tokens"] for completion in written]).float()
        cut = torch.tensor([completion["truncated"] for completion in written]).float()
        for name in ("mean", "min", "max"):
            metrics[f"completions/{name}_length"] = getattr(lengths, name)().item()
        metrics["completions/clipped_ratio"] = cut.mean().item()
        fields = (input_ids, attention, mask, rewards)
        return Rollout(*(field.to(self.model.device) for field in fields)), metrics

    def score(self, rows, written, step) -> tuple[Tensor, dict[str, float]]:
        """The weighted sum of the rewards, asked for as TRL does, and what there is to log."""
        prompts, texts = [row["prompt"] for row in rows], [c["completion"] for c in written]
        if not isinstance(prompts[0], str):
            texts = [[{"role": "assistant", "content": text}] for text in texts]
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        columns["completion_ids"] = [completion["ids"][1] for completion in written]
        columns["trainer_state"] = SimpleNamespace(global_step=step - 1)
        total, metrics = torch.zeros(len(rows)), {}
        for function, weight in self.reward:
            paid = function(prompts=prompts, completions=texts, **columns)
            if any(one is None for one in paid):  # TRL leaves such a part out
                raise CasebookError(f"the reward {function.__name__!r} gave None")
            values = torch.tensor(paid).float()
            if values.shape != total.shape:
                said = f"gave {tuple(values.shape)} values for {len(rows)} completions"
                raise CasebookError(f"the reward {function.__name__!r} {said}")
            metrics[f"rewards/{function.__name__}/mean"] = values.mean().item()
            metrics[f"rewards/{function.__name__}/std"] = values.std().item()
            total += weight * values
        spread = _deviation(total.view(-1, self.settings["num_generations"]))
        metrics["reward"], metrics["reward_std"] = total.mean().item(), total.std().item()
        metrics["frac_reward_zero_std"] = (spread < 1e-6).float().mean().item()
        return total, metrics

    def look(self, rollout: Rollout) -> Look:
        """One forward pass over a rollout."""
        ids, attention, mask, _ = rollout
        length, temperature = mask.shape[1], self.settings["temperature"]
        logits, states = _completion_logits(self.model, ids, attention, length)
        logps, entropies = _logps(logits, ids[:, -length:], temperature)
        return Look(logps, _mean(entropies, mask), states)

    def update(self, loss: Tensor, look: Look, **shown: Tensor) -> None:
        """One step of the optimiser, with the gradient's length clipped."""
        self.optimizer.zero_grad()
        loss.backward()
        shown["grad_norm"] = nn.utils.clip_grad_norm_(self.trained, self.settings["max_grad_norm"])
        self.optimizer.step()
        shown |= {"loss": loss, "entropy": look.entropy}
        rate = {"learning_rate": self.schedule.get_last_lr()[0]}
        self.updates.append({name: value.item() for name, value in shown.items()} | rate)


def _clipped(
    log_ratio: Tensor, advantages: Tensor, mask: Tensor, epsilon: float, epsilon_high: float
) -> dict[str, Tensor]:
    """The share of tokens that the clipping left without a gradient."""
    ratio = log_ratio.detach().exp()
    low, high = (ratio < 1 - epsilon) & (advantages < 0), ratio > 1 + epsilon_high
    return {"clip_ratio/region_mean": _mean((low | (high & (advantages > 0))).float(), mask)}


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over the tokens that count."""
    return values.masked_fill(~mask, 0.0).sum() / mask.sum()
