"""What a set of word problems looks like before a model meets it, and what is not to be seen.

The GSM8K write-up embeds all questions, looks at the picture, and takes three things away: train
and test are mixed at random, one small cluster is about ages, and similarity says nothing about
difficulty. A picture can show a cluster; the other two are statements about what is *not* there,
and need a test that would have found it. So each is one here, beside what else should be known
before training: how answers are written, how many steps they take, and whether a test question
is a training question with other numbers.

`casebook study exploration` writes what it finds in the real sets, numbers only, to
`results/gsm8k/data/exploration.json`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from casebook import problem_sets
from casebook.case import load_case
from casebook.stats import Figure

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

SPLITS = ("train", "test")
DIMENSIONS = 100  # of the vectors: where 8,792 questions stop gaining much from one more
CLUSTERS = 12
NEIGHBOURS = 10
FOLDS = 5
POINTS = 1_000  # of the map: more take minutes, and show no more
SHINGLE = 4  # words in a row that two questions may share
# Pairs of questions with at least this share of common shingles were read: each tells one story
# with other numbers. Below it, they begin to share no more than a turn of phrase.
SAME_STORY = 0.4
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
PAIRS = 20  # of the same story that are listed
RELATIVES = (
    "mother|mom|father|dad|parents|sister|brother|siblings|son|daughter|uncle|aunt|cousin"
    "|grandmother|grandma|grandfather|grandpa|niece|nephew|wife|husband|family|twin|twins"
)
_NUMBER = re.compile(r"\d+(?:[.,/]\d+)*")


def real_problems() -> pd.DataFrame:
    """Train and test of GSM8K from the data folder, as `described`; raises `CasebookError`."""
    read = {split: problem_sets.read("gsm8k", split) for split in SPLITS}
    frame = described({split: table.to_dict("list") for split, table in read.items()})
    frame.attrs["provenance"] = [problem_sets.provenance(table) for table in read.values()]
    return frame


def generated_problems(seed: int = 0) -> pd.DataFrame:
    """Train and test as the casebook makes them, in the same columns."""
    rows = {split: load_case("gsm8k").load(split, seed=seed) for split in SPLITS}
    frame = described(
        {name: {"question": t["question"], "answer": t["solution"]} for name, t in rows.items()}
    )
    frame.attrs["provenance"] = [{"source": "generated", "rows": len(t)} for t in rows.values()]
    return frame


def described(splits: Mapping[str, Mapping[str, Sequence[str]]]) -> pd.DataFrame:
    """One row a problem of `splits` (split -> `question` and `answer`), with what can be counted.

    Columns: `split`, `id` (its row in the split, from 0), `question`, `solution`, `gold` (what
    stands after `####`), `answer` (a whole number), `steps` (calculator notes), `lines` (of the
    solution), `words` and `numbers` of the question.
    """
    parts = [
        pd.DataFrame({"split": s, "id": range(len(c["question"])), **c}) for s, c in splits.items()
    ]
    frame = pd.concat(parts, ignore_index=True).rename(columns={"answer": "solution"})
    frame = frame[["split", "id", "question", "solution"]]
    body, gold = (frame["solution"].str.rpartition("####")[part] for part in (0, 2))
    frame["gold"] = gold.str.strip()
    frame["answer"] = frame["gold"].str.replace(",", "").astype(int)
    frame["steps"] = frame["solution"].str.count("<<")
    frame["lines"] = [sum(map(bool, map(str.strip, text.splitlines()))) for text in body]
    frame["words"] = frame["question"].str.split().str.len()
    frame["numbers"] = frame["question"].str.count(_NUMBER)
    return frame


# The same story with other numbers


def _words(question: str) -> list[str]:
    return re.findall(r"[a-z]+|#", _NUMBER.sub("#", question.lower()))


def shingles(question: str, size: int = SHINGLE) -> set[str]:
    """The runs of `size` words in a question, all numbers taken for one.

    >>> sorted(shingles("Ann buys 3 pens for $4.", size=3))
    ['# pens for', 'ann buys #', 'buys # pens', 'pens for #']
    """
    words = _words(question)
    return {" ".join(words[i : i + size]) for i in range(len(words) - size + 1)}


def similar_pairs(frame: pd.DataFrame, least: float = SHARES[0]) -> pd.DataFrame:
    """Pairs of questions that share many runs of words, the most similar first.

    Columns: `first` and `second` (positions in `frame`, the first before the second), and `share`:
    common shingles over all shingles of the two (Jaccard's index), at least `least`.
    """
    from scipy.sparse import csr_matrix, triu

    known: dict[str, int] = {}
    found = [
        [known.setdefault(run, len(known)) for run in sorted(shingles(question))]
        for question in frame["question"]
    ]
    sizes = np.array([len(runs) for runs in found])
    runs = np.array([run for each in found for run in each], dtype=np.int64)
    ends = np.concatenate([[0], sizes.cumsum()])
    ones = np.ones(len(runs), dtype=np.int32)
    table = csr_matrix((ones, runs, ends), shape=(len(found), max(len(known), 1)))
    common = triu(table @ table.T, k=1).tocoo()
    share = common.data / (sizes[common.row] + sizes[common.col] - common.data)
    pairs = pd.DataFrame({"first": common.row, "second": common.col, "share": share})
    pairs = pairs[pairs["share"] >= least]
    return pairs.sort_values(["share", "first", "second"], ascending=[False, True, True])


# Embeddings


class Embedding(NamedTuple):
    """Questions as vectors.

    Attributes:
        words: `(questions, terms)` weights of the words (TF-IDF), sparse.
        terms: the words.
        vectors: `(questions, dimensions)`, each of length 1.
        made_by: what made the vectors, in words.
    """

    words: "csr_matrix"
    terms: np.ndarray
    vectors: np.ndarray
    made_by: str


def embed(questions: Sequence[str], seed: int = 0) -> Embedding:
    """Vectors of questions by latent semantic analysis (Deerwester et al. 1990).

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
    terms = weigh.get_feature_names_out()
    directions = min(DIMENSIONS, len(terms) - 1, len(words.indptr) - 2)
    vectors = normalize(TruncatedSVD(directions, random_state=seed).fit_transform(words))
    return Embedding(words, terms, vectors, f"TF-IDF and SVD, {directions} dimensions")


def neighbours(vectors: np.ndarray, number: int = NEIGHBOURS) -> np.ndarray:
    """`(questions, number)` positions of the nearest others by cosine, for vectors of length 1."""
    near = np.empty((len(vectors), number), dtype=np.int64)
    for start in range(0, len(vectors), 1_000):
        block = vectors[start : start + 1_000] @ vectors.T
        rows = np.arange(len(block))
        block[rows, start + rows] = -np.inf
        near[start : start + len(block)] = np.argpartition(-block, number - 1)[:, :number]
    return near


# Is there something to be seen?


def tell_apart(features: Any, positive: ArrayLike, seed: int = 0) -> Figure:
    """How well a linear classifier tells two kinds of questions apart: 0.5 is not at all.

    The area under the ROC curve of a logistic regression, judged on questions it was not fitted
    to (`FOLDS` folds).
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    positive = np.asarray(positive, dtype=bool)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    model = LogisticRegression(class_weight="balanced", max_iter=300)
    # Ranks within a fold only: a fold's intercept is not the next one's.
    scores = cross_val_predict(model, features, positive, cv=folds, method="decision_function")
    ranks = np.empty(len(scores))
    for _, held_out in folds.split(np.zeros(len(positive)), positive):
        ranks[held_out] = pd.Series(scores[held_out]).rank(pct=True)
    return area(ranks, positive)


def area(scores: ArrayLike, positive: ArrayLike) -> Figure:
    """The chance that a positive scores above a negative (ties count half).

    The interval is that of DeLong et al. (1988).

    >>> area([0.1, 0.2, 0.8, 0.9], [False, True, False, True])["value"]
    0.75
    """
    from scipy.stats import rankdata

    scores, positive = np.asarray(scores, dtype=float), np.asarray(positive, dtype=bool)
    high, low = scores[positive], scores[~positive]
    ranks = rankdata(np.concatenate([high, low]))
    above = (ranks[: len(high)] - rankdata(high)) / len(low)
    below = 1 - (ranks[len(high) :] - rankdata(low)) / len(high)
    spread = sum(part.var(ddof=1) / len(part) for part in (above, below))
    return _figure(float(above.mean()), spread, len(scores), (0.0, 1.0))


def explained(
    values: np.ndarray, guesses: np.ndarray, seed: int = 0, instead_of: np.ndarray | None = None
) -> Figure:
    """The share of a variance that guesses account for (R squared), with a bootstrap interval.

    With other guesses to compare with, how much larger the share is than theirs.
    """
    worst = values.mean() if instead_of is None else instead_of
    gained = (values - worst) ** 2 - (values - guesses) ** 2
    spread = (values - values.mean()) ** 2
    shares = []
    rng = np.random.default_rng(seed)
    for _ in range(1_000):
        drawn = rng.integers(0, len(values), len(values))
        shares.append(gained[drawn].sum() / spread[drawn].sum())
    low, high = np.quantile(shares, [0.025, 0.975])
    value = gained.sum() / spread.sum()
    return {"value": float(value), "low": float(low), "high": float(high), "n": len(values)}


def _figure(
    value: float, variance: float, n: int, bounds: tuple[float, float] = (-np.inf, np.inf)
) -> Figure:
    """A mean of a thousand or more: the normal interval is as good as any."""
    margin = 1.96 * float(np.sqrt(variance))
    low, high = np.clip([value - margin, value + margin], *bounds)
    return {"value": value, "low": float(low), "high": float(high), "n": n}


# All of it


class Exploration:
    """What is found in one table of problems (`described`), each part computed when asked for."""

    def __init__(self, frame: pd.DataFrame, seed: int = 0):
        self.frame, self.seed = frame, seed

    @cached_property
    def answers(self) -> dict[str, dict[str, int]]:
        """How answers are written, split by split: counts of rows, commas, negatives and zeros."""
        return {
            split: {
                "rows": len(part),
                "commas": int(part["gold"].str.contains(",").sum()),
                "negative": int((part["answer"] < 0).sum()),
                "zero": int((part["answer"] == 0).sum()),
                "largest": int(part["answer"].max()),
                "without notes": int((part["steps"] == 0).sum()),
            }
            for split, part in self.frame.groupby("split", sort=False)
        }

    @cached_property
    def steps(self) -> dict[str, Any]:
        """The steps of the solutions, and how far the notes can be trusted.

        `shares`: split -> share of the problems with 0, 1, 2 ... steps; `means`: split -> figure;
        `difference`: test less train; `notes are lines`: how often there are as many of both.
        """
        parts = {split: part["steps"] for split, part in self.frame.groupby("split", sort=False)}
        most = int(self.frame["steps"].max())
        variances = {split: steps.var() / len(steps) for split, steps in parts.items()}
        train, test = (float(parts[split].mean()) for split in SPLITS)
        return {
            "shares": {
                split: [float((steps == n).mean()) for n in range(most + 1)]
                for split, steps in parts.items()
            },
            "means": {s: _figure(float(p.mean()), variances[s], len(p)) for s, p in parts.items()},
            "difference": _figure(test - train, sum(variances.values()), len(self.frame)),
            "notes are lines": float((self.frame["steps"] == self.frame["lines"]).mean()),
        }

    @cached_property
    def leaks(self) -> dict[str, Any]:
        """How many test questions have a training question that tells the same story.

        `exact`: test questions that stand in train word for word; `numbers aside`: those that do
        but for their numbers; `test` and `train`: how many questions have another in train with
        at least so many shingles in common, for the shares of `SHARES`; `pairs`: ids and share of
        the test questions at `SAME_STORY` and above, each with its nearest training question.
        """
        test = (self.frame["split"] == "test").to_numpy()
        bare = self.frame["question"].str.lower().str.findall(r"\w+").str.join(" ")
        masked = self.frame["question"].map(_words).str.join(" ")
        pairs = similar_pairs(self.frame)
        turned = pairs.rename(columns={"first": "second", "second": "first"})
        both_ways = pd.concat([pairs, turned])
        both_ways = both_ways[~test[both_ways["second"]]]
        nearest = both_ways.sort_values("share", ascending=False, kind="stable")
        nearest = nearest.drop_duplicates("first")
        at = {"train": nearest[~test[nearest["first"]]], "test": nearest[test[nearest["first"]]]}
        ids = self.frame["id"].to_numpy()
        close = at["test"][at["test"]["share"] >= SAME_STORY]
        close = sorted(zip(close["share"], ids[close["first"]], ids[close["second"]], strict=True))
        return {
            "exact": int(bare[test].isin(set(bare[~test])).sum()),
            "numbers aside": int(masked[test].isin(set(masked[~test])).sum()),
            "shares": list(SHARES),
            **{name: [int((at[name]["share"] >= s).sum()) for s in SHARES] for name in SPLITS},
            "pairs": [
                {"test": int(a), "train": int(b), "share": float(share)}
                for share, a, b in close[: -PAIRS - 1 : -1]
            ],
        }

    @cached_property
    def embedding(self) -> Embedding:
        """The questions as vectors."""
        return embed(list(self.frame["question"]), self.seed)

    @cached_property
    def near(self) -> np.ndarray:
        """`(questions, NEIGHBOURS)` positions of each question's nearest."""
        return neighbours(self.embedding.vectors)

    @cached_property
    def labels(self) -> np.ndarray:
        """`(questions,)` the cluster of each by k-means on the vectors; 0 is the largest."""
        from sklearn.cluster import KMeans

        vectors = self.embedding.vectors
        number = min(CLUSTERS, len(np.unique(vectors.round(6), axis=0)))
        found = KMeans(number, n_init=4, random_state=self.seed).fit_predict(vectors)
        order = np.argsort(-np.bincount(found, minlength=number), kind="stable")
        return np.argsort(order)[found]

    @cached_property
    def topics(self) -> list[dict[str, Any]]:
        """One entry a cluster, the largest first.

        `name`: the words it uses most, above the average; `rows`; `test`: share of the rows in
        the test split; `purity`: share of a question's nearest that lie in its cluster; `family`:
        share that names a relative; `steps`: their mean.
        """
        words, terms = self.embedding.words, self.embedding.terms
        overall = np.asarray(words.mean(axis=0)).ravel()
        kin = self.frame["question"].str.contains(rf"(?i)\b(?:{RELATIVES})\b")
        same = (self.labels[self.near] == self.labels[:, None]).mean(axis=1)
        facts = []
        for k in range(self.labels.max() + 1):
            inside = self.labels == k
            more = np.asarray(words[inside].mean(axis=0)).ravel() - overall
            facts.append(
                {
                    "name": ", ".join(terms[np.argsort(-more)[:5]]),
                    "rows": int(inside.sum()),
                    "test": float((self.frame["split"][inside] == "test").mean()),
                    "purity": float(same[inside].mean()),
                    "family": float(kin[inside].mean()),
                    "steps": float(self.frame["steps"][inside].mean()),
                }
            )
        return facts

    @cached_property
    def map(self) -> dict[str, list]:
        """Some questions in the plane: `x` and `y` in hundredths, `cluster`, `test` (0 or 1).

        t-SNE keeps neighbours together (van der Maaten and Hinton 2008); distances between heaps,
        and the size of a heap, mean nothing.
        """
        from sklearn.manifold import TSNE

        chosen = np.random.default_rng(self.seed).permutation(len(self.frame))[:POINTS]
        wide = min(30, (len(chosen) - 1) / 3)
        flat = TSNE(perplexity=wide, init="pca", max_iter=500, random_state=self.seed)
        places = flat.fit_transform(self.embedding.vectors[chosen])
        places = np.round(100 * places / np.abs(places).max()).astype(int)
        return {
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
            "cluster": self.labels[chosen].tolist(),
            "test": (self.frame["split"].to_numpy()[chosen] == "test").astype(int).tolist(),
        }

    @cached_property
    def splits(self) -> dict[str, Figure]:
        """Whether train and test can be told apart: by words, by vectors, by counting the numbers.

        `control` is the same classifier on the same vectors asked something else: which questions
        take more steps than the middle one. A test that finds nothing there would prove nothing.
        """
        test, steps = self.frame["split"] == "test", self.frame["steps"]
        vectors = self.embedding.vectors
        return {
            "words": tell_apart(self.embedding.words, test, self.seed),
            "vectors": tell_apart(vectors, test, self.seed),
            "numbers": area(self.frame["numbers"], test),
            "control": tell_apart(vectors, steps > steps.median(), self.seed),
        }

    @cached_property
    def difficulty(self) -> dict[str, Figure]:
        """How much of the number of steps can be foreseen from a question: shares of its variance.

        `length`: from the words and numbers of the question; `vectors`: from its embedding;
        `both`; `neighbours`: from the mean of its nearest; `beyond length`: `both` less `length`.
        Each is judged on questions it was not fitted to; 0 is what saying the mean would get.
        """
        from sklearn.linear_model import RidgeCV
        from sklearn.model_selection import KFold, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        steps = self.frame["steps"].to_numpy(dtype=float)
        length = self.frame[["words", "numbers"]].to_numpy(dtype=float)
        features = {
            "length": length,
            "vectors": self.embedding.vectors,
            "both": np.hstack([length, self.embedding.vectors]),
            "neighbours": steps[self.near].mean(axis=1, keepdims=True),
        }
        folds = KFold(FOLDS, shuffle=True, random_state=self.seed)
        model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 4, 9)))
        said = {
            name: cross_val_predict(model, x, steps, cv=folds).clip(steps.min(), steps.max())
            for name, x in features.items()
        }
        figures = {name: explained(steps, guesses, self.seed) for name, guesses in said.items()}
        more = explained(steps, said["both"], self.seed, instead_of=said["length"])
        return figures | {"beyond length": more}


PARTS = ("answers", "steps", "leaks", "topics", "map", "splits", "difficulty")


def record() -> dict[str, Any]:
    """All parts of the real problems; numbers and cluster names only."""
    found = Exploration(real_problems())
    return {
        "provenance": found.frame.attrs["provenance"],
        "seed": found.seed,
        "embedding": found.embedding.made_by,
        **{part: getattr(found, part) for part in PARTS},
    }


def llama_text(messages: Sequence[Mapping[str, str]], date: str = "26 Jul 2024") -> str:
    """A list of messages as Llama 3.1 Instruct is given it, ready for the answer.

    After the format that Meta publishes for Llama 3.1. Its template puts two lines about dates
    before any system prompt; `date` is the default of the tokenizer's template.

    >>> text = llama_text([{"role": "user", "content": "2 + 2?"}])
    >>> text.count("<|eot_id|>"), text.endswith("assistant<|end_header_id|>\\n\\n")
    (2, True)
    """
    dates = f"Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n"
    has_system = bool(messages) and messages[0]["role"] == "system"
    system = dates + (messages[0]["content"].strip() if has_system else "")
    turns = [(turn["role"], turn["content"].strip()) for turn in messages[has_system:]]
    text = "".join(
        f"<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>"
        for role, content in [("system", system), *turns]
    )
    return f"<|begin_of_text|>{text}<|start_header_id|>assistant<|end_header_id|>\n\n"
