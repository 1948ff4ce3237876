"""Every `casebook …` command that a reader is shown is one that the command line takes.

Notebooks (their text, code and outputs), pages, claims, settings and messages of the package: each
command is parsed as typed, names of files and cases included, and nothing is run.
"""

import re
import shlex

import nbformat
import pytest
import typer
import yaml

from casebook import cli, paths

COMMAND = typer.main.get_command(cli.app)
USAGE = typer.BadParameter.__mro__[1]  # what every wrong call is, of the click that typer has
# A line of a shell block, or what stands between two quotes of a kind.
LINE = re.compile(r"^[ \t]*(?:[-$!%>#+] ?|\.venv/bin/)?casebook ([a-z][^`\n|;)]*)", re.MULTILINE)
QUOTED = re.compile(r"([`\"'])casebook ([a-z][^`\n|;]*?)\1")
# Up to what follows the command in a sentence or a shell line, unless it stands in quotes.
COMMAND_ALONE = re.compile(r"""(?:"[^"]*"|'[^']*'|(?! && | > |…|\s\#|,\s|:\s|\.(?:\s|$)).)*""")
# Words that follow the name in a sentence, or in Python.
PROSE = re.compile(r"(import|is|has|in|and|can|does|for|needs|takes|was|on|knows|of|as|to|with)\b")
STANDS_FOR = {"CASE": "poker", "SEED": "0", "N": "1", "STEPS": "1"}


def commands_in(text):
    """The commands that a text shows, without `casebook`; continued lines are joined."""
    text = re.sub(r"[ \t]*\\\n\s*", " ", text)
    for shown in [f[1] for f in LINE.finditer(text)] + [f[2] for f in QUOTED.finditer(text)]:
        typed = COMMAND_ALONE.match(shown)[0].strip()
        if not PROSE.match(typed):
            yield typed


def refused(typed):
    """Why the command line would not take it, or `None`."""
    try:
        words = shlex.split(re.sub(r"\{+[^}]*\}+", "1", typed))
    except ValueError as error:
        return str(error)
    words = [STANDS_FOR.get(word, word) for word in words]
    command = COMMAND
    while hasattr(command, "commands"):
        if not words:
            return "a command is missing"
        if words[0] not in command.commands:
            return f"there is no command {words[0]!r}"
        command = command.commands[words.pop(0)]
    if not words:  # a command named alone, as in "`casebook train` writes"
        return None
    try:
        command.make_context(command.name, words)
    except typer.Exit:  # --help
        return None
    except USAGE as error:
        return error.format_message()
    return None


def texts():
    """Where a reader meets text: name -> the text."""
    for path in sorted(paths.NOTEBOOKS.rglob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        parts = [cell.source for cell in cells]
        for cell in cells:
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                parts += [output.get("text", ""), data.get("text/plain", "")]
                parts.append(data.get("text/markdown", ""))
        yield path, "\n".join(parts)
    root = paths.ROOT
    pages = [root / "README.md", root / "CONTRIBUTING.md", *root.glob("docs/**/*.md")]
    code = [*root.glob("src/casebook/**/*.py"), *root.glob("slurm/*")]
    data = [*root.glob("configs/**/*.yaml"), *root.glob("src/casebook/cases/*/*.yaml")]
    for path in sorted([*pages, *code, *data]):
        if path.name == "claims.yaml":
            claims = yaml.safe_load(path.read_text())
            yield path, "\n".join(f"`{command}`" for command in strings_of(claims))
        else:
            yield path, path.read_text()


def strings_of(value):
    """Every string inside of nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings_of(part)


TEXTS = dict(texts())


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(paths.ROOT)))
def test_each_command_that_is_shown_is_one(path):
    wrong = {typed: why for typed in commands_in(TEXTS[path]) if (why := refused(typed))}
    assert not wrong


def test_a_command_that_does_not_exist_is_found_and_refused():
    text = 'print("casebook train \\\n  --case math") from casebook import load_case'
    (typed,) = commands_in(text)
    assert "No such option: --case" in refused(typed)
    assert refused("trian --seed 3") == "there is no command 'trian'"
