"""What a set of word problems looks like before a model meets it, and what is not to be seen.

The GSM8K write-up embeds all questions, looks at the picture, and takes three things away: train
and test are mixed at random, one small cluster is about ages, and similarity says nothing about
difficulty. A picture can show a cluster; the other two are statements about what is *not* there,
and need a test that would have found it. Those tests, made on the real problems, are in
`results/gsm8k/data/exploration.json` and, by a sentence encoder, in `embedding.json` beside it,
numbers only.

What stands here are the two ways in which they compare questions: by the runs of words that two
questions share, which finds a training question with other numbers; and by the vectors of their
words.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from casebook.case import load_case

SPLITS = ("train", "test")
DIMENSIONS = 100  # of the vectors: where 8,792 questions stop gaining much from one more
SHINGLE = 4  # words in a row that two questions may share
# Pairs of questions with at least this share of common shingles were read: each tells one story
# with other numbers. Below it, they begin to share no more than a turn of phrase.
SAME_STORY = 0.4
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_NUMBER = re.compile(r"\d+(?:[.,/]\d+)*")


def generated_problems(seed: int = 0) -> pd.DataFrame:
    """Train and test as the casebook makes them: their columns, `split` and `id`, their place."""
    parts = [load_case("gsm8k").load(split, seed=seed).to_pandas() for split in SPLITS]
    return pd.concat(parts, keys=SPLITS, names=["split", "id"]).reset_index()


def shingles(question: str) -> set[str]:
    """The runs of `SHINGLE` words in a question, all numbers taken for one.

    >>> sorted(shingles("Ann buys 3 pens for $4."))
    ['# pens for #', 'ann buys # pens', 'buys # pens for']
    """
    words = re.findall(r"[a-z]+|#", _NUMBER.sub("#", question.lower()))
    return {" ".join(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)}


def similar_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """Pairs of questions that share many runs of words, the most similar first.

    Columns: `first` and `second` (positions in `frame`, the first before the second), and `share`:
    common shingles over all shingles of the two (Jaccard's index), at least the least of `SHARES`.
    """
    from scipy.sparse import triu
    from sklearn.feature_extraction.text import CountVectorizer

    table = CountVectorizer(analyzer=shingles, dtype=np.int32).fit_transform(frame["question"])
    sizes = table.getnnz(axis=1)
    common = triu(table @ table.T, k=1).tocoo()
    share = common.data / (sizes[common.row] + sizes[common.col] - common.data)
    pairs = pd.DataFrame({"first": common.row, "second": common.col, "share": share})
    pairs = pairs[pairs["share"] >= SHARES[0]]
    return pairs.sort_values(["share", "first", "second"], ascending=[False, True, True])


def retold(frame: pd.DataFrame) -> dict[str, list[int]]:
    """Split -> how many of its questions have another in train that tells the same story.

    One count for each share of `SHARES`: of those that have at least so many shingles in common.
    """
    test = (frame["split"] == "test").to_numpy()
    pairs = similar_pairs(frame)
    turned = pairs.rename(columns={"first": "second", "second": "first"})
    pairs = pd.concat([pairs, turned])
    nearest = pairs[~test[pairs["second"]]].groupby("first")["share"].max()
    found = {"train": nearest[~test[nearest.index]], "test": nearest[test[nearest.index]]}
    return {split: [int((best >= s).sum()) for s in SHARES] for split, best in found.items()}


def embed(questions: Sequence[str], seed: int = 0) -> np.ndarray:
    """A vector of length 1 for each question: latent semantic analysis (Deerwester et al. 1990).

    Each word is weighed by how rare it is (TF-IDF; numbers and the most common English words left
    out), and the `DIMENSIONS` directions that explain most are kept (truncated SVD by `seed`).
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    weigh = TfidfVectorizer(
        stop_words="english", min_df=3, sublinear_tf=True, token_pattern=r"(?u)\b[a-zA-Z]{2,}\b"
    )
    words = weigh.fit_transform(questions)
    directions = min(DIMENSIONS, words.shape[1] - 1, words.shape[0] - 1)
    return normalize(TruncatedSVD(directions, random_state=seed).fit_transform(words))


def llama_text(messages: Sequence[Mapping[str, str]]) -> str:
    """A list of messages as Llama 3.1 Instruct is given it, ready for the answer.

    After the format that Meta publishes for Llama 3.1. Its template puts two lines about dates
    before any system prompt.

    >>> text = llama_text([{"role": "user", "content": "2 + 2?"}])
    >>> text.count("<|eot_id|>"), text.endswith("assistant<|end_header_id|>\\n\\n")
    (2, True)
    """
    dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    has_system = messages[0]["role"] == "system"
    system = dates + (messages[0]["content"].strip() if has_system else "")
    turns = [(turn["role"], turn["content"].strip()) for turn in messages[has_system:]]
    text = "".join(
        f"<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>"
        for role, content in [("system", system), *turns]
    )
    return f"<|begin_of_text|>{text}<|start_header_id|>assistant<|end_header_id|>\n\n"
