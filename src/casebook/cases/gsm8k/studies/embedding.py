"""Do the three takeaways of the write-up's map hold with a sentence encoder?

`exploration` tests them on TF-IDF, which knows words and no meanings: two questions that say the
same in other words are strangers to it. So the same tests are made here with the vectors of
all-MiniLM-L6-v2 (Reimers and Gurevych 2019, arXiv 1908.10084, is the method), a model that was
trained to put sentences of like meaning together. What made the write-up's own vectors it does not
say.

`casebook models fetch minilm` gets the model; `casebook study embedding` makes the committed
record, `results/gsm8k/data/embedding.json`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from casebook import pretrained
from casebook.case import CasebookError
from casebook.cases.gsm8k.studies import exploration
from casebook.cases.gsm8k.studies.exploration import Embedding, Exploration
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
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        batch = tokenizer(
            [texts[i] for i in rows],
            padding=True,
            truncation=True,
            max_length=TOKENS,
            return_tensors="pt",
        )
        with torch.inference_mode():
            states = model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(-1)
        means = (states * mask).sum(1) / mask.sum(1)
        vectors[rows] = torch.nn.functional.normalize(means, dim=1).numpy()
    return vectors


class Encoded(Exploration):
    """An exploration whose vectors are the encoder's; words and names of clusters are as there."""

    @cached_property
    def embedding(self) -> Embedding:
        questions = list(self.frame["question"])
        words = exploration.embed(questions, seed=self.seed)
        made_by = pretrained.ENCODERS[NAME].model
        return words._replace(vectors=encode(questions), made_by=made_by)


def ages_facts(explored: Exploration) -> dict[str, float | int | str]:
    """The cluster that is most about ages, and how much of the questions about ages it holds.

    Returns:
        `name` and `rows` of the cluster; `share`: of its questions that speak of ages; `holds`: of
        all questions that do, the share that lies in it; `family` and `purity` as in the topics.
    """
    about = explored.frame["question"].str.contains(AGES).to_numpy()
    labels, topics = explored.clusters.labels, explored.topics
    shares = [about[labels == k].mean() for k in range(len(topics))]
    k = int(np.argmax(shares))
    kept = {key: topics[k][key] for key in ("name", "rows", "family", "purity")}
    holds = float((labels[about] == k).mean())
    return kept | {"share": float(shares[k]), "holds": holds, "about ages": int(about.sum())}


def rounding(explored: Exploration) -> float:
    """How far a cosine of two of the first questions is from the one in float32, at most."""
    exact = encode(list(explored.frame["question"][:CHECKED]), "float32")
    short = explored.embedding.vectors[:CHECKED]
    return float(np.abs(exact @ exact.T - short @ short.T).max())


def agreement(one: Exploration, other: Exploration) -> dict[str, float]:
    """How far two explorations of the same questions agree.

    Returns:
        `neighbours`: the share of a question's nearest that are among its nearest in the other;
        `clusters`: the adjusted Rand index of the divisions, 0 for chance and 1 for the same.
    """
    from sklearn.metrics import adjusted_rand_score

    pairs = zip(one.near, other.near, strict=True)
    shared = [len(np.intersect1d(a, b)) / len(a) for a, b in pairs]
    same = adjusted_rand_score(one.clusters.labels, other.clusters.labels)
    return {"neighbours": float(np.mean(shared)), "clusters": float(same)}


def record() -> dict[str, Any]:
    """The takeaways by the encoder, and beside them by TF-IDF; numbers and cluster names only.

    Raises:
        CasebookError: the model or the problems are not here.
    """
    frame = exploration.real_problems()
    encoded, words = Encoded(frame), Exploration(frame)
    entry = pretrained.ENCODERS[NAME]
    return {
        "provenance": provenance() | {"problems": frame.attrs["provenance"]},
        "model": {"name": entry.model, "package": entry.package, "sha256": entry.sha256},
        "seed": encoded.seed,
        "dtype": {"name": DTYPE, "rounding of a cosine": rounding(encoded)},
        "encoder": {
            **{part: getattr(encoded, part) for part in ("splits", "difficulty", "topics", "map")},
            "ages": ages_facts(encoded),
        },
        "words": {"made by": words.embedding.made_by, "ages": ages_facts(words)},
        "agreement": agreement(encoded, words),
    }
