"""The one vLLM engine of a process: what is asked for is checked, and transformers writes."""

from types import SimpleNamespace
from typing import Any

import torch
from contract import bind
from safetensors.torch import load_file


class Engine:
    """vLLM inside Unsloth. A second one beside the first is refused, as vLLM does in standby."""

    alive: "Engine | None" = None
    made = 0  # in this process

    def __init__(self, model: Any, tokenizer: Any, max_lora_rank: int) -> None:
        assert Engine.alive is None, "Sleep mode can only be used for one instance per process."
        Engine.alive = self
        Engine.made += 1
        self.model, self.tokenizer, self.max_lora_rank = model, tokenizer, max_lora_rank
        ends = model.generation_config.eos_token_id  # read once, as there
        self.ends = ends if isinstance(ends, list) else [ends]
        self.policy = None  # the model with its adapter, once there is one
        self.asleep = False
        self.shared_weights = True  # with the policy
        sleeps = SimpleNamespace(enable_sleep_mode=True)
        self.llm_engine = SimpleNamespace(vllm_config=SimpleNamespace(model_config=sleeps))

    @staticmethod
    def delete(llm: Any = None) -> None:
        Engine.alive = None

    def sleep(self, level: int = 1) -> None:
        self.asleep = True

    def wake_up(self, tags: list[str] | None = None) -> None:
        self.asleep = False

    def generate(self, *arguments: Any, **keywords: Any) -> list[SimpleNamespace]:
        """As `vllm.LLM.generate`: one result a prompt, each with `n` outputs."""
        assert Engine.alive is self, "this engine was deleted"
        assert not self.asleep, "this engine sleeps while the policy learns"
        call = bind("LLM.generate", "vllm", arguments, keywords)
        prompts, sampling = call["prompts"], call["sampling_params"]
        if not isinstance(prompts, list):
            prompts = [prompts]
        each = sampling if isinstance(sampling, list) else [sampling] * len(prompts)
        model = self._model_for(call.get("lora_request"))
        adapter_off = model is self.policy and call.get("lora_request") is None
        if adapter_off:
            with model.disable_adapter():
                return [self._write(model, p, s) for p, s in zip(prompts, each, strict=True)]
        return [self._write(model, p, s) for p, s in zip(prompts, each, strict=True)]

    def _model_for(self, request: Any) -> Any:
        if request is None:
            return self.policy if self.policy is not None else self.model
        assert self.policy is not None, "an adapter was asked for before there was one"
        if request.lora_path is None:  # the policy's own tensors
            return self.policy
        on_disk = load_file(f"{request.lora_path}/adapter_model.safetensors")
        live = {n.replace(".default", ""): t for n, t in self.policy.state_dict().items()}
        for name, tensor in on_disk.items():
            assert torch.equal(tensor, live[name]), (
                f"the adapter in {request.lora_path} is not the one of the policy: {name}"
            )
        return self.policy

    def _write(self, model: Any, prompt: Any, sampling: Any) -> SimpleNamespace:
        ids = self._ids(prompt)
        ends = self.ends + list(getattr(sampling, "stop_token_ids", None) or [])
        sampled = sampling.temperature > 0
        how = {"temperature": sampling.temperature, "top_p": sampling.top_p} if sampled else {}
        if sampled:
            how |= {"top_k": max(sampling.top_k, 0), "min_p": sampling.min_p or None}
        with torch.no_grad():
            out = model.generate(
                return_dict_in_generate=True,
                output_logits=True,
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=sampled,
                num_return_sequences=sampling.n,
                max_new_tokens=sampling.max_tokens,
                repetition_penalty=sampling.repetition_penalty,
                eos_token_id=ends,
                pad_token_id=self.tokenizer.pad_token_id,
                **how,
            )
        logps = torch.stack(out.logits, 1).log_softmax(-1)
        written = out.sequences[:, len(ids) :]
        logps = logps.gather(-1, written[..., None])[..., 0].tolist()
        pairs = zip(written.tolist(), logps, strict=True)
        outputs = [self._output(row, own, ends, sampling.logprobs) for row, own in pairs]
        return SimpleNamespace(prompt_token_ids=ids, outputs=outputs)

    def _ids(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer(prompt)["input_ids"]
        return list(prompt["prompt_token_ids"])

    def _output(self, ids: list, logps: list, ends: list, asked: int | None) -> SimpleNamespace:
        end = next((i for i, token in enumerate(ids) if token in ends), None)
        kept = ids if end is None else ids[: end + 1]
        own = [{t: SimpleNamespace(rank=1, logprob=p)} for t, p in zip(kept, logps, strict=False)]
        return SimpleNamespace(
            token_ids=kept,
            logprobs=None if asked is None else own,  # of the chosen tokens alone
            text=self.tokenizer.decode(kept, skip_special_tokens=True),
            finish_reason="length" if end is None else "stop",
        )
