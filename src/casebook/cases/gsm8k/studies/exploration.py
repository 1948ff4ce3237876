"""What a set of word problems looks like before a model meets it, and what is not to be seen.

The GSM8K write-up embeds all questions, looks at the picture, and takes three things away: train
and test are mixed at random, one small cluster is about ages, and similarity says nothing about
difficulty. A picture can show a cluster; the other two are statements about what is *not* there,
and need a test that would have found it. So each is one here, beside what else should be known
before training: how answers are written, how many steps they take, and whether a test question
is a training question with other numbers.

`Exploration` computes all of it, a part at a time, for any table of problems. What it found in
the real sets is kept in `results/gsm8k/data/exploration.json`, numbers only, because the problems
are not part of the casebook: `casebook study exploration` writes it anew.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from casebook import problem_sets
from casebook.case import CasebookError, load_case
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
    *("mother", "mom", "father", "dad", "parents", "sister", "brother", "siblings", "son"),
    *("daughter", "uncle", "aunt", "cousin", "grandmother", "grandma", "grandfather", "grandpa"),
    *("niece", "nephew", "wife", "husband", "family", "twin", "twins"),
)


_NUMBER = re.compile(r"\d+(?:[.,/]\d+)*")
_WORD = re.compile(r"[a-z]+|#")


# Problems


def real_problems() -> pd.DataFrame:
    """Train and test of GSM8K from the data folder, with the columns of `described`.

    `attrs["provenance"]` has that of both splits.

    Raises:
        CasebookError: no folder is named, or it does not hold the problems that were expected.
    """
    read = {split: problem_sets.read("gsm8k", split) for split in SPLITS}
    frame = described({split: table.to_dict("list") for split, table in read.items()})
    frame.attrs["provenance"] = [problem_sets.provenance(table) for table in read.values()]
    return frame


def generated_problems(seed: int = 0) -> pd.DataFrame:
    """Train and test as the casebook makes them, in the same columns."""
    case = load_case("gsm8k")
    rows = {split: case.load(split, profile="nano", seed=seed) for split in SPLITS}
    frame = described(
        {
            split: {"question": table["question"], "answer": table["solution"]}
            for split, table in rows.items()
        }
    )
    frame.attrs["provenance"] = [{"source": "generated", "rows": len(t)} for t in rows.values()]
    return frame


def described(splits: Mapping[str, Mapping[str, Sequence[str]]]) -> pd.DataFrame:
    """One row a problem, with all that can be counted in it.

    Args:
        splits: split -> `question` and `answer`, the worked solution, as in GSM8K.

    Returns:
        `split`, `id` (its row in the split, from 0), `question`, `solution`, `gold` (what stands
        after `####`), `answer` (a whole number), `steps` (calculator notes), `lines` (of the
        solution), `words` and `numbers` of the question.

    Raises:
        CasebookError: a solution without a whole number after its `####`.
    """
    parts = []
    for split, columns in splits.items():
        part = pd.DataFrame(
            {"question": list(columns["question"]), "solution": list(columns["answer"])}
        )
        part.insert(0, "id", range(len(part)))
        part.insert(0, "split", split)
        parts.append(part)
    frame = pd.concat(parts, ignore_index=True)
    frame["gold"] = [gold_of(solution) for solution in frame["solution"]]
    frame["answer"] = [_whole(*row) for row in frame[["gold", "split", "id"]].itertuples(False)]
    frame["steps"] = [solution.count("<<") for solution in frame["solution"]]
    frame["lines"] = [_lines(solution) for solution in frame["solution"]]
    frame["words"] = [len(question.split()) for question in frame["question"]]
    frame["numbers"] = [len(_NUMBER.findall(question)) for question in frame["question"]]
    return frame


def gold_of(solution: str) -> str:
    """What stands after the last `####` of a worked solution, as written there; else nothing.

    >>> gold_of("He pays 2*600=$<<2*600=1200>>1200.\\n#### 1,200")
    '1,200'
    """
    return solution.rpartition("####")[2].strip() if "####" in solution else ""


def _whole(gold: str, split: str, number: int) -> int:
    if not re.fullmatch(r"-?\d{1,3}(,\d{3})+|-?\d+", gold):
        raise CasebookError(
            f"problem {number} of {split}: a whole number was expected after ####, not {gold!r}"
        )
    return int(gold.replace(",", ""))


def _lines(solution: str) -> int:
    return sum(bool(line.strip()) for line in solution.rpartition("####")[0].splitlines())


# Answers and steps


def answer_facts(frame: pd.DataFrame) -> dict[str, dict[str, int]]:
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
        for split, part in frame.groupby("split", sort=False)
    }


def step_facts(frame: pd.DataFrame) -> dict[str, Any]:
    """The steps of the solutions: shares by number and split, and how far the notes can be trusted.

    Returns:
        `shares`: split -> share of the problems with 0, 1, 2 ... steps; `means`: split -> figure;
        `difference`: test less train, with its interval; `notes are lines`: how often a solution
        has as many notes as lines.
    """
    most = int(frame["steps"].max())
    parts = {split: part["steps"] for split, part in frame.groupby("split", sort=False)}
    shares = {
        split: [float((steps == n).mean()) for n in range(most + 1)]
        for split, steps in parts.items()
    }
    means = {split: _mean(steps) for split, steps in parts.items()}
    train, test = (means[split] for split in SPLITS)
    margin = float(np.hypot(train["high"] - train["value"], test["high"] - test["value"]))
    gap = test["value"] - train["value"]
    return {
        "shares": shares,
        "means": means,
        "difference": {"value": gap, "low": gap - margin, "high": gap + margin, "n": len(frame)},
        "notes are lines": float((frame["steps"] == frame["lines"]).mean()),
    }


def _mean(values: pd.Series) -> Figure:
    """A mean of a thousand counts or more: the normal interval is as good as any."""
    margin = 1.96 * values.std() / np.sqrt(len(values))
    value = float(values.mean())
    return {"value": value, "low": value - margin, "high": value + margin, "n": len(values)}


# The same story with other numbers


def shingles(question: str, size: int = SHINGLE) -> set[str]:
    """The runs of `size` words in a question, all numbers taken for one.

    >>> sorted(shingles("Ann buys 3 pens for $4.", size=3))
    ['# pens for', 'ann buys #', 'buys # pens', 'pens for #']
    """
    words = _WORD.findall(_NUMBER.sub("#", question.lower()))
    return {" ".join(words[i : i + size]) for i in range(len(words) - size + 1)}


def similar_pairs(frame: pd.DataFrame, least: float = SHARES[0]) -> pd.DataFrame:
    """Pairs of questions that share many runs of words, whatever their numbers.

    Returns:
        `first` and `second` (positions in `frame`, the first before the second), and `share`:
        common shingles over all shingles of the two (Jaccard's index), at least `least`;
        the most similar first. Only pairs in the same or different splits alike.
    """
    from scipy.sparse import csr_matrix, triu

    known: dict[str, int] = {}
    found = [
        [known.setdefault(run, len(known)) for run in sorted(shingles(question))]
        for question in frame["question"]
    ]
    sizes = np.array([len(runs) for runs in found])
    ends = np.concatenate([[0], sizes.cumsum()])
    runs = np.array([run for each in found for run in each], dtype=np.int64)
    ones = np.ones(len(runs), dtype=np.int32)
    table = csr_matrix((ones, runs, ends), shape=(len(found), max(len(known), 1)))
    # What one question alone says is in no pair, and what very many say would cost the most.
    common = triu(table @ table.T, k=1).tocoo()
    share = common.data / (sizes[common.row] + sizes[common.col] - common.data)
    pairs = pd.DataFrame({"first": common.row, "second": common.col, "share": share})
    pairs = pairs[pairs["share"] >= least]
    return pairs.sort_values(["share", "first", "second"], ascending=[False, True, True])


def leak_facts(frame: pd.DataFrame) -> dict[str, Any]:
    """How many test questions have a training question that tells the same story.

    Returns:
        `exact`: test questions that stand in train word for word; `numbers aside`: those that do
        but for their numbers; `test` and `train`: how many questions have another in train with
        at least so many shingles in common, for the shares of `SHARES`; `pairs`: ids and share of
        the test questions at `SAME_STORY` and above, each with its nearest training question (at
        most `PAIRS` of them).
    """
    split = frame["split"].to_numpy()
    bare = frame["question"].str.lower().str.findall(r"\w+").str.join(" ")
    masked = frame["question"].map(lambda q: " ".join(_WORD.findall(_NUMBER.sub("#", q.lower()))))
    pairs = similar_pairs(frame)
    both_ways = pd.concat([pairs, pairs.rename(columns={"first": "second", "second": "first"})])
    ids = frame["id"].to_numpy()
    nearest: dict[str, dict[int, tuple[float, int]]] = {name: {} for name in SPLITS}
    for one, other, share in both_ways.itertuples(index=False):
        if split[other] == "train" and share > nearest[split[one]].get(one, (0.0, 0))[0]:
            nearest[split[one]][one] = (float(share), int(other))
    close = sorted(
        (share, int(ids[one]), int(ids[other]))
        for one, (share, other) in nearest["test"].items()
        if share >= SAME_STORY
    )
    return {
        "exact": int(bare[split == "test"].isin(set(bare[split == "train"])).sum()),
        "numbers aside": int(masked[split == "test"].isin(set(masked[split == "train"])).sum()),
        "shares": list(SHARES),
        **{
            name: [sum(found >= s for found, _ in nearest[name].values()) for s in SHARES]
            for name in SPLITS
        },
        "pairs": [
            {"test": a, "train": b, "share": share} for share, a, b in close[: -PAIRS - 1 : -1]
        ],
    }


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


def embed(questions: Sequence[str], model: str | None = None, seed: int = 0) -> Embedding:
    """Vectors of questions: latent semantic analysis, or a sentence-transformers model.

    The offline way weighs each word by how rare it is (TF-IDF; numbers and the commonest English
    words left out) and keeps the `DIMENSIONS` directions that explain most (truncated SVD;
    Deerwester et al. 1990).

    Args:
        questions: the texts.
        model: name or folder of a sentence-transformers model, used for the vectors instead.
        seed: of the SVD.

    Raises:
        CasebookError: sentence-transformers is not installed, or has no such model here.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    weigh = TfidfVectorizer(
        stop_words="english", min_df=3, sublinear_tf=True, token_pattern=r"(?u)\b[a-zA-Z]{2,}\b"
    )
    words = weigh.fit_transform(questions)
    terms = weigh.get_feature_names_out()
    if model:
        return Embedding(words, terms, _sentences(questions, model), model)
    directions = min(DIMENSIONS, len(terms) - 1, len(words.indptr) - 2)
    vectors = normalize(TruncatedSVD(directions, random_state=seed).fit_transform(words))
    return Embedding(words, terms, vectors, f"TF-IDF and SVD, {directions} dimensions")


def _sentences(questions: Sequence[str], model: str) -> np.ndarray:
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError:
        raise CasebookError(
            "sentence-transformers is not installed here: pip install sentence-transformers, or "
            "leave the model away for TF-IDF and SVD"
        ) from None
    try:
        encoder = SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise CasebookError(
            f"sentence-transformers has no model {model!r} here: {str(error).splitlines()[0]}"
        ) from error
    return np.asarray(encoder.encode(list(questions), normalize_embeddings=True))


class Clusters(NamedTuple):
    """A division of the questions.

    Attributes:
        labels: `(questions,)` the number of each one's cluster; 0 is the largest.
        names: what each cluster is about, in its most telling words.
    """

    labels: np.ndarray
    names: list[str]


def cluster(embedding: Embedding, number: int = CLUSTERS, seed: int = 0) -> Clusters:
    """k-means on the vectors; a cluster's name is the words it uses most, above the average."""
    from sklearn.cluster import KMeans

    number = min(number, len(np.unique(embedding.vectors.round(6), axis=0)))
    found = KMeans(number, n_init=4, random_state=seed).fit_predict(embedding.vectors)
    order = np.argsort(-np.bincount(found, minlength=number), kind="stable")
    labels = np.argsort(order)[found]
    overall = np.asarray(embedding.words.mean(axis=0)).ravel()
    names = []
    for k in range(number):
        inside = np.asarray(embedding.words[labels == k].mean(axis=0)).ravel()
        names.append(", ".join(embedding.terms[np.argsort(overall - inside)[:5]]))
    return Clusters(labels, names)


def cluster_facts(frame: pd.DataFrame, clusters: Clusters, near: np.ndarray) -> list[dict]:
    """One entry a cluster: `name`, `rows`, and means of its questions.

    Args:
        frame: the problems.
        clusters: their division.
        near: the positions of each question's nearest, as `neighbours` gives them.

    Returns:
        `test`: share of the rows that are in the test split; `purity`: share of a question's
        nearest that lie in its cluster, which for a name without a place would be the cluster's
        share of all questions; `family`: share that names a relative; `steps`.
    """
    kin = frame["question"].str.contains(rf"(?i)\b(?:{'|'.join(RELATIVES)})\b")
    same = (clusters.labels[near] == clusters.labels[:, None]).mean(axis=1)
    facts = []
    for k, name in enumerate(clusters.names):
        inside = clusters.labels == k
        facts.append(
            {
                "name": name,
                "rows": int(inside.sum()),
                "test": float((frame["split"][inside] == "test").mean()),
                "purity": float(same[inside].mean()),
                "family": float(kin[inside].mean()),
                "steps": float(frame["steps"][inside].mean()),
            }
        )
    return facts


def neighbours(vectors: np.ndarray, number: int = NEIGHBOURS) -> np.ndarray:
    """`(questions, number)` positions of the nearest others by cosine, for vectors of length 1."""
    number = min(number, len(vectors) - 1)
    near = np.empty((len(vectors), number), dtype=np.int64)
    for start in range(0, len(vectors), 1_000):
        block = vectors[start : start + 1_000] @ vectors.T
        rows = np.arange(len(block))
        block[rows, start + rows] = -np.inf
        near[start : start + len(block)] = np.argpartition(-block, number - 1)[:, :number]
    return near


def layout(
    embedding: Embedding, points: int = POINTS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of some questions, drawn at random, and their place in the plane by t-SNE.

    t-SNE keeps neighbours together (van der Maaten and Hinton 2008); distances between heaps,
    and the size of a heap, mean nothing.
    """
    from sklearn.manifold import TSNE

    total = len(embedding.vectors)
    chosen = np.random.default_rng(seed).permutation(total)[: min(points, total)]
    flat = TSNE(
        perplexity=min(30, (len(chosen) - 1) / 3), init="pca", max_iter=500, random_state=seed
    )
    return chosen, flat.fit_transform(embedding.vectors[chosen])


# Is there something to be seen?


def tell_apart(features: Any, positive: ArrayLike, seed: int = 0) -> Figure:
    """How well a linear classifier tells two kinds of questions apart: 0.5 is not at all.

    The area under the ROC curve of a logistic regression, judged on questions it was not fitted
    to (`FOLDS` folds), with the 95 % interval of DeLong et al. (1988).
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
    """The chance that a positive scores above a negative (ties count half), with its interval.

    >>> area([0.1, 0.2, 0.8, 0.9], [False, True, False, True])["value"]
    0.75
    """
    from scipy.stats import rankdata

    scores, positive = np.asarray(scores, dtype=float), np.asarray(positive, dtype=bool)
    high, low = scores[positive], scores[~positive]
    if not len(high) or not len(low):
        raise CasebookError("two kinds of questions are needed to tell them apart")
    ranks = rankdata(np.concatenate([high, low]))
    above = (ranks[: len(high)] - rankdata(high)) / len(low)
    below = 1 - (ranks[len(high) :] - rankdata(low)) / len(high)
    value = float(above.mean())
    spread = sum(part.var(ddof=1) / len(part) if len(part) > 1 else 0.0 for part in (above, below))
    margin = 1.96 * float(np.sqrt(spread))
    return {
        "value": value,
        "low": max(value - margin, 0.0),
        "high": min(value + margin, 1.0),
        "n": len(scores),
    }


def split_facts(frame: pd.DataFrame, embedding: Embedding, seed: int = 0) -> dict[str, Figure]:
    """Whether train and test can be told apart: by words, by vectors, by counting the numbers.

    `control` is the same classifier on the same vectors asked something else: which questions
    take more steps than the middle one. A test that finds nothing there would prove nothing.
    """
    test = frame["split"] == "test"
    return {
        "words": tell_apart(embedding.words, test, seed),
        "vectors": tell_apart(embedding.vectors, test, seed),
        "numbers": area(frame["numbers"], test),
        "control": tell_apart(embedding.vectors, frame["steps"] > frame["steps"].median(), seed),
    }


def difficulty_facts(
    frame: pd.DataFrame, vectors: np.ndarray, near: np.ndarray, seed: int = 0
) -> dict[str, Figure]:
    """How much of the number of steps can be foreseen from a question: shares of its variance.

    Args:
        frame: the problems.
        vectors: `(questions, dimensions)` their embedding.
        near: the positions of each question's nearest, as `neighbours` gives them.
        seed: of folds and resamples.

    Returns:
        `length`: from the words and numbers of the question; `vectors`: from its embedding;
        `both`; `neighbours`: from the mean of its nearest; `beyond length`: `both` less `length`.
        Each is judged on questions it was not fitted to; intervals resample questions. 0 is what
        saying the mean each time would get.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    steps = frame["steps"].to_numpy(dtype=float)
    length = frame[["words", "numbers"]].to_numpy(dtype=float)
    features = {
        "length": length,
        "vectors": vectors,
        "both": np.hstack([length, vectors]),
        "neighbours": steps[near].mean(axis=1, keepdims=True),
    }
    folds = KFold(FOLDS, shuffle=True, random_state=seed)
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 4, 9)))
    said = {
        name: cross_val_predict(model, x, steps, cv=folds).clip(steps.min(), steps.max())
        for name, x in features.items()
    }
    figures = {name: explained(steps, guesses, seed) for name, guesses in said.items()}
    more = explained(steps, said["both"], seed, instead_of=said["length"])
    return figures | {"beyond length": more}


def explained(
    values: np.ndarray,
    guesses: np.ndarray,
    seed: int = 0,
    instead_of: np.ndarray | None = None,
    resamples: int = 1_000,
) -> Figure:
    """The share of a variance that guesses account for (R squared), with a bootstrap interval.

    Args:
        values: what is guessed at.
        guesses: one each.
        seed: of the bootstrap.
        instead_of: other guesses; the figure is then how much larger the share is than theirs.
        resamples: bootstrap samples.
    """
    worst = values.mean() if instead_of is None else instead_of
    gained = (values - worst) ** 2 - (values - guesses) ** 2
    spread = (values - values.mean()) ** 2
    shares = []
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        drawn = rng.integers(0, len(values), len(values))
        shares.append(gained[drawn].sum() / spread[drawn].sum())
    low, high = np.quantile(shares, [0.025, 0.975])
    value = gained.sum() / spread.sum()
    return {"value": float(value), "low": float(low), "high": float(high), "n": len(values)}


# All of it


class Exploration:
    """All that this module finds in one table of problems, each part computed when asked for."""

    def __init__(self, frame: pd.DataFrame, model: str | None = None, seed: int = 0):
        """`model`: see `embed`."""
        self.frame, self.model, self.seed = frame, model, seed

    @cached_property
    def embedding(self) -> Embedding:
        return embed(list(self.frame["question"]), self.model, self.seed)

    @cached_property
    def clusters(self) -> Clusters:
        return cluster(self.embedding, seed=self.seed)

    @cached_property
    def near(self) -> np.ndarray:
        return neighbours(self.embedding.vectors)

    @cached_property
    def answers(self) -> dict[str, dict[str, int]]:
        return answer_facts(self.frame)

    @cached_property
    def steps(self) -> dict[str, Any]:
        return step_facts(self.frame)

    @cached_property
    def leaks(self) -> dict[str, Any]:
        return leak_facts(self.frame)

    @cached_property
    def topics(self) -> list[dict[str, Any]]:
        return cluster_facts(self.frame, self.clusters, self.near)

    @cached_property
    def map(self) -> dict[str, list]:
        """Columns of the map's points: `x` and `y` in hundredths, `cluster`, `test` (0 or 1)."""
        chosen, places = layout(self.embedding, seed=self.seed)
        places = np.round(100 * places / np.abs(places).max()).astype(int)
        return {
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
            "cluster": self.clusters.labels[chosen].tolist(),
            "test": (self.frame["split"].to_numpy()[chosen] == "test").astype(int).tolist(),
        }

    @cached_property
    def splits(self) -> dict[str, Figure]:
        return split_facts(self.frame, self.embedding, self.seed)

    @cached_property
    def difficulty(self) -> dict[str, Figure]:
        return difficulty_facts(self.frame, self.embedding.vectors, self.near, self.seed)

    def record(self) -> dict[str, Any]:
        """All parts, and where the problems came from; numbers and cluster names only."""
        return {
            "provenance": self.frame.attrs["provenance"],
            "seed": self.seed,
            "embedding": self.embedding.made_by,
            **{part: getattr(self, part) for part in PARTS},
        }


PARTS = ("answers", "steps", "leaks", "topics", "map", "splits", "difficulty")


def record() -> dict[str, Any]:
    """All parts of the real problems.

    Raises:
        CasebookError: as `real_problems`.
    """
    return Exploration(real_problems()).record()


# For the Embedding Projector


def export(folder: str | os.PathLike, exploration: Exploration) -> tuple[Path, Path]:
    """Write vectors and metadata for https://projector.tensorflow.org, and return the two files.

    The metadata hold the questions: of real problems this belongs into a folder of one's own.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vectors, metadata = folder / "vectors.tsv", folder / "metadata.tsv"
    np.savetxt(vectors, exploration.embedding.vectors, fmt="%.5f", delimiter="\t")
    labels, names = exploration.clusters
    table = exploration.frame[["question", "split", "id", "steps", "answer"]].copy()
    table["question"] = table["question"].str.split().str.join(" ")  # tabs end a field there
    table["cluster"] = [names[k] for k in labels]
    lines = ["\t".join(map(str, row)) for row in [table.columns, *table.itertuples(index=False)]]
    metadata.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return vectors, metadata


# The chat template


def llama_text(messages: Sequence[Mapping[str, str]], date: str = "26 Jul 2024") -> str:
    """A list of messages as Llama 3.1 Instruct is given it, ready for the answer.

    After the format that Meta publishes for Llama 3.1. Its template puts two lines about dates
    before any system prompt; `date` is the default of the tokenizer's template.

    >>> text = llama_text([{"role": "user", "content": "2 + 2?"}])
    >>> text.count("<|eot_id|>"), text.endswith("assistant<|end_header_id|>\\n\\n")
    (2, True)
    """
    turns = list(messages)
    system = turns.pop(0)["content"].strip() if turns and turns[0]["role"] == "system" else ""
    dates = f"Cutting Knowledge Date: December 2023\nToday Date: {date}\n\n"
    turns = [{"role": "system", "content": dates + system}, *turns]
    text = "".join(
        f"<|start_header_id|>{turn['role']}<|end_header_id|>\n\n"
        f"{turn['content'] if turn is turns[0] else turn['content'].strip()}<|eot_id|>"
        for turn in turns
    )
    return f"<|begin_of_text|>{text}<|start_header_id|>assistant<|end_header_id|>\n\n"
