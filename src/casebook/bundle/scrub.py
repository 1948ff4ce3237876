"""What of a machine and its owner does not belong into a file that is sent around.

Paths, the names of user and host, addresses, tokens and keys are replaced by what they were,
`[path]`. It is done where the bundle is made, and whoever takes a bundle refuses one in which
something of the kind is left. Completions are left alone: a model wrote them from the case's own
prompts, and their grade hangs on every character.
"""

import getpass
import os
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from casebook.case import CasebookError

FOLDER = r"(?:[\w.@+ -]*[\w.@+-]/)"
# A part of it has a letter, since 1/2 is no path; the others need none.
ABSOLUTE = (
    rf"(?<![\w./<\]])/(?={FOLDER}*(?:(?:(?![A-Za-z])[\w.@+ -])*[A-Za-z][\w.@+ -]*(?<! )/"
    rf"|[\w.@+-]*[A-Za-z])){FOLDER}*[\w.@+-]*"
)
# The order counts: a key inside an address goes with the key's name.
PATTERNS = {
    "secret": re.compile(
        r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[\w-]{16,}"
        r"|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|wandb_v1_\w{16,}"
        r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|(?i:bearer)\s+[\w.~+/-]{12,}=*|(?<=://)[^/\s:@]+:[^/\s@]+@"
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    ),
    "e-mail address": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}"),
    "network address": re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
    "path": re.compile(
        rf"{ABSOLUTE}"
        r"|(?<!\w)~[\w.-]*/[\w.@+/-]*|(?<!\w)[A-Za-z]:[\\/][^\s\"'<>|]+|\\\\[\w.$-]+\\[^\s\"'<>|]+"
        r"|file://\S+"
    ),
}
# Fields whose text is a secret whatever it looks like; `num_tokens` is a number.
SECRET_FIELD = re.compile(
    r"(?i)(?:^|[_-])(?:api_?key|secret(?:_?key)?|passw(?:or)?d|credentials?|access_?key"
    r"|(?:hf|hub|access|auth|wandb|github)_?token|token)$"
)
SECRET_VARIABLE = re.compile(r"(?i)token|api_?key|secret|passw|credential")
SHORTEST_NAME = 4  # shorter ones are words, or parts of them
COMMON = {  # accounts and machines that name nobody
    *("root", "user", "ubuntu", "jovyan", "colab", "kaggle", "docker", "runner", "admin", "home"),
    *("localhost", "content", "nobody", "default", "debian", "notebook", "workspace"),
}
MARK = "[{}]"


class Scrubber:
    """Replaces what is private, and counts it by kind.

    Args:
        names: literal texts that are private on this machine -> their kind; see `names_here`.

    >>> scrubber = Scrubber({})
    >>> scrubber.scrub({"note": "in /data/ann/runs, ask ann@example.org"})
    {'note': 'in [path], ask [e-mail address]'}
    >>> dict(scrubber.found)
    {'e-mail address': 1, 'path': 1}
    """

    def __init__(self, names: Mapping[str, str]):
        self.found: Counter[str] = Counter()
        ordered = sorted(names, key=len, reverse=True)
        self.names = {_whole(name): names[name] for name in ordered}

    def scrub(self, value: Any, field: str = "") -> Any:
        """The same value without anything private, in keys and texts at any depth.

        Keys keep the names of user and host: they are the casebook's own words, or a library's.

        Raises:
            CasebookError: two keys beside each other would become one.
        """
        if isinstance(value, str):
            if value and SECRET_FIELD.search(field):
                return self._mark("secret")
            return self._text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list | tuple):
            return [self.scrub(entry, field) for entry in value]
        return value

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, entry in value.items():
            name = self._text(str(key), key=True)
            if name in made:
                raise CasebookError(
                    f"two keys would both read {name!r} without what is private in them, and one "
                    "would be lost: rename one of them"
                )
            made[name] = self.scrub(entry, str(key))
        return made

    def _text(self, text: str, key: bool = False) -> str:
        names = ((p, kind) for p, kind in self.names.items() if kind == "secret" or not key)
        for pattern, kind in [*((p, k) for k, p in PATTERNS.items()), *names]:
            text = pattern.sub(lambda match, kind=kind: self._mark(kind), text)
        return text

    def _mark(self, kind: str) -> str:
        self.found[kind] += 1
        return MARK.format(kind)


def private_in(value: Any) -> str | None:
    """What kind of private text a value holds, by its looks alone; `None` where there is none.

    >>> private_in({"model": "Qwen/Qwen2.5-1.5B-Instruct", "rewards/correct/mean": 1})
    >>> private_in({"model": "/data/models/qwen"})
    'path'
    """
    scrubber = Scrubber({})
    for field, text in texts_in(value):
        scrubber.scrub(_without_marks(text), field)
    return next(iter(scrubber.found), None)


def texts_in(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Every key and text of a value, with the field that a text is in."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield "", str(key)
            yield from texts_in(entry, str(key))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from texts_in(entry, field)


def names_here(
    environment: Mapping[str, str] | None = None, words: Iterable[str] = ()
) -> dict[str, str]:
    """What is private on this machine and has no looks of its own: user, host, secrets.

    Args:
        environment: this process's by default; the values of variables that look like secrets by
            their names are private wherever they stand.
        words: texts that mean something in a bundle. What is a word of theirs is left out: a
            machine called `train` is named by nothing that says `train`.
    """
    environment = os.environ if environment is None else environment
    names = dict.fromkeys(_long([_user(), Path.home().name]), "user name")
    host = socket.gethostname()
    names |= dict.fromkeys(_long([host, host.split(".")[0], socket.getfqdn()]), "host name")
    for name, value in environment.items():
        if SECRET_VARIABLE.search(name) and len(value) >= 8 and not value.startswith("/"):
            names[value] = "secret"
    words = list(words)
    return {name: kind for name, kind in names.items() if not is_word(name, words)}


def is_word(name: str, texts: Iterable[str]) -> bool:
    """Whether a name is a word of one of these texts.

    >>> is_word("poker", ["data/nano/poker"]), is_word("poke", ["data/nano/poker"])
    (True, False)
    """
    return any(map(_whole(name).search, texts))


def _whole(name: str) -> re.Pattern[str]:
    """A name as a word of its own."""
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")


def _long(names: Iterable[str]) -> list[str]:
    return [name for name in names if len(name) >= SHORTEST_NAME and name.lower() not in COMMON]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for its user
        return ""


def _without_marks(text: str) -> str:
    """A text without the marks that a scrubber leaves, which are nobody's secret."""
    kinds = "|".join([*map(re.escape, PATTERNS), "user name", "host name"])
    return re.sub(rf"\[(?:{kinds})\]", "", text)
