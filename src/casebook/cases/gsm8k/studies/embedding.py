"""Do the three takeaways of the write-up's map hold with a sentence encoder?

`exploration` tests them on TF-IDF, which knows words and no meanings. Here the same tests are made
with the vectors of all-MiniLM-L6-v2, which was trained to put sentences of like meaning together
(Reimers and Gurevych 2019, arXiv 1908.10084, is the method). What made the write-up's own vectors
it does not say.

`casebook models fetch minilm` gets the model; `casebook study embedding` makes the committed
record, `results/gsm8k/data/embedding.json`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from casebook import pretrained
from casebook.case import CasebookError
from casebook.cases.gsm8k.studies.exploration import Exploration, real_problems
from casebook.records import provenance

NAME = "minilm"
TOKENS = 256  # the encoder was trained on texts up to here; the longest question has fewer
BATCH = 64  # questions encoded together
DTYPE = "bfloat16"  # of the record: a processor that has it takes a fifth of the time
CHECKED = 64  # questions whose vectors are made in float32 as well
AGES = r"(?i)\b(?:years? old|years? (?:older|younger)|older|younger|ages?|aged)\b"


def encode(texts: Sequence[str], dtype: str = DTYPE) -> np.ndarray:
    """Vectors of length 1, `(texts, 384)`: the mean over a text's tokens, as the model's card says.

    Args:
        texts: to be encoded.
        dtype: of the model; means and vectors are float32.

    Raises:
        CasebookError: the model was not fetched.
    """
    entry = pretrained.ENCODERS[NAME]
    if not entry.folder.exists():
        raise CasebookError(f"{entry.model} is not here: casebook models fetch {NAME}")
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(entry.folder)
    model = AutoModel.from_pretrained(entry.folder, dtype=dtype).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # alike lengths, little padding
    vectors = np.empty((len(texts), model.config.hidden_size), dtype=np.float32)
    asked = {"padding": True, "truncation": True, "max_length": TOKENS, "return_tensors": "pt"}
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        batch = tokenizer([texts[i] for i in rows], **asked)
        with torch.inference_mode():
            states = model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(-1)
        means = (states * mask).sum(1) / mask.sum(1)
        vectors[rows] = torch.nn.functional.normalize(means, dim=1).numpy()
    return vectors


def ages_facts(explored: Exploration) -> dict[str, float | int | str]:
    """The cluster that is most about ages, and how much of the questions about ages it holds.

    Returns:
        `name` and `rows` of the cluster; `share`: of its questions that speak of ages; `holds`: of
        all questions that do, the share that lies in it; `family` and `purity` as in the topics.
    """
    about = explored.frame["question"].str.contains(AGES).to_numpy()
    shares = [about[explored.labels == k].mean() for k in range(len(explored.topics))]
    k = int(np.argmax(shares))
    kept = {key: explored.topics[k][key] for key in ("name", "rows", "family", "purity")}
    holds = float((explored.labels[about] == k).mean())
    return kept | {"share": float(shares[k]), "holds": holds, "about ages": int(about.sum())}


def record() -> dict[str, Any]:
    """The takeaways by the encoder, and beside them by TF-IDF; numbers and cluster names only.

    `agreement` says how far the two agree: the share of a question's nearest that are the same, and
    the adjusted Rand index of the clusters, 0 for chance and 1 for the same.

    Raises:
        CasebookError: the model or the problems are not here.
    """
    from sklearn.metrics import adjusted_rand_score

    frame = real_problems()
    questions, entry = list(frame["question"]), pretrained.ENCODERS[NAME]
    encoded, words = Exploration(frame), Exploration(frame)
    short, exact = encode(questions), encode(questions[:CHECKED], "float32")
    encoded.embedding = words.embedding._replace(vectors=short, made_by=entry.model)
    off = np.abs(exact @ exact.T - short[:CHECKED] @ short[:CHECKED].T).max()
    shared = [
        np.isin(one, other).mean() for one, other in zip(encoded.near, words.near, strict=True)
    ]
    return {
        "provenance": provenance() | {"problems": frame.attrs["provenance"]},
        "model": {"name": entry.model, "package": entry.package, "sha256": entry.sha256},
        "seed": encoded.seed,
        "dtype": {"name": DTYPE, "rounding of a cosine": float(off)},
        "encoder": {
            **{part: getattr(encoded, part) for part in ("splits", "difficulty", "topics", "map")},
            "ages": ages_facts(encoded),
        },
        "words": {"made by": words.embedding.made_by, "ages": ages_facts(words)},
        "agreement": {
            "neighbours": float(np.mean(shared)),
            "clusters": float(adjusted_rand_score(encoded.labels, words.labels)),
        },
    }
