"""What several tests share: one thread, no hub, and a made-up checkout."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "agg")

import pytest
from hypothesis import settings

from casebook import paths

CHECKOUT = Path(__file__).parents[1]

# The same examples every time: who changes one line is not told of an old fault elsewhere.
# `HYPOTHESIS_PROFILE=default pytest` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def script():
    """`script("gpu")`: a script of benchmarks/ as a module."""

    def load(name):
        path = CHECKOUT / "benchmarks" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def casebook(monkeypatch):
    """`casebook("try", …)`: the exit code of a command that runs in this process."""
    from casebook import cli

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["casebook", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0

    return run


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """An empty checkout, which this process and its children take for the real one."""
    root = tmp_path / "checkout"
    for name in ("notebooks", "configs", "data", "results", "reports"):
        (root / name).mkdir(parents=True)
        monkeypatch.setattr(paths, name.upper(), root / name)
    for path in [CHECKOUT / "pyproject.toml", *CHECKOUT.glob("requirements*.txt")]:
        shutil.copy(path, root)
    monkeypatch.setattr(paths, "ROOT", root)
    monkeypatch.setenv("CASEBOOK_ROOT", str(root))
    monkeypatch.delenv("RUNS_DIR", raising=False)
    return root


@pytest.fixture(scope="session")
def copy_checkout():
    """`copy_checkout(folder, *but)`: this checkout as a fresh clone, a repository of its own.

    What git keeps, as it is now, without the files whose names begin with one of `but`.
    """

    def git(folder, *command):
        done = subprocess.run(
            ["git", *command], cwd=folder, capture_output=True, text=True, check=True
        )
        return done.stdout

    def copy(folder: Path, *but: str) -> Path:
        listed = git(CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if not name.startswith(but) and (CHECKOUT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(CHECKOUT / name, folder / name)
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "as it is")
        return folder

    copy.git = git
    return copy


# Look-alike of Tulu's template: no token for the beginning, the end of a turn is plain text's end.
TULU = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}"
    "{% if message['role'] == 'assistant' and not loop.last %}{{ eos_token }}{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CHAT_ENDS = {  # the tokenizer's end, and one more that the model declares
    "llama3_1": ("<|eot_id|>", "<|end_of_text|>"),
    "qwen2_5": ("<|im_end|>", "<|endoftext|>"),
    "tulu": ("<|end_of_text|>", "<|eot_id|>"),
}


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory):
    """`chat_model("llama3_1")`: the folder of a tiny model of random weights that chats.

    It has the real template, a post-processor that begins every text with a token, a padding token
    of its own, two tokens that end a completion, and a penalty on repetition in its generation
    config: all that makes chat models differ from the embedded ones.
    """
    made = {}

    def make(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("models") / kind
            _chat_model(kind, made[kind])
        return made[kind]

    return make


def _chat_model(kind: str, folder: Path) -> None:
    import torch
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|begin|>", "<|pad|>", *CHAT_ENDS[kind], "<|im_start|>"]
    special += ["<|start_header_id|>", "<|end_header_id|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens(special)
    begin = plain.token_to_id("<|begin|>")
    plain.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", begin)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token="<|begin|>",
        eos_token=CHAT_ENDS[kind][0],
        pad_token="<|pad|>",
        padding_side="left",
    )
    templates = Path(trl.__file__).parent / "chat_templates"
    real = templates / f"{kind}.jinja"
    tokenizer.chat_template = real.read_text() if real.exists() else TULU
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            bos_token_id=begin,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.generation_config.eos_token_id = [
        tokenizer.convert_tokens_to_ids(end) for end in CHAT_ENDS[kind][::-1]
    ]
    model.generation_config.repetition_penalty = 1.3
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
