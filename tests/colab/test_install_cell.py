"""The real install cell in a real kernel on a machine that looks like Colab's.

The folder, the zip, `unzip` and the kernel are real; `pip install` is answered by `machine/pip`
from what Colab's image held (image.yaml) and what the pinned wheels require (wheels.json), and
`nvidia-smi` by a stand-in. Nothing is downloaded.
"""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from casebook.site.colab import install_cell

HERE = Path(__file__).parent
IMAGE = yaml.safe_load((HERE / "image.yaml").read_text())
# Unsloth is installed without its requirements; that some are missing does not stop it.
UNSLOTH = re.compile(r"unsloth(-zoo)? \S+ requires (.*: None|certifi\b.*)")

# As `make colab` and GitHub's button make it: all below one folder.
ARCHIVE = ("archive", "--format=zip", "--prefix={}/", "--output", "{}.zip", "HEAD")

pytestmark = pytest.mark.heavy


class Machine:
    """A pretended Colab machine whose kernel can be started, restarted and asked."""

    def __init__(self, folder: Path, capability: str, torch: str, drive: str = "") -> None:
        from jupyter_client import KernelManager

        self.content, self.state = folder / "content", folder / "machine"
        self.content.mkdir(parents=True)
        self.state.mkdir()
        installed = IMAGE["packages"] | {"torch": torch}
        (self.state / "installed.json").write_text(json.dumps(installed))
        bin = folder / "bin"
        bin.mkdir()
        shutil.copy(HERE / "machine/bin/nvidia-smi", bin)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CASEBOOK_", "UNSLOTH_"))}
        self.environment = kept | {
            "PATH": f"{bin}:{os.environ['PATH']}",
            "PYTHONPATH": f"{HERE / 'machine'}:{self.state / 'modules'}",
            "PRETENDED_MACHINE": str(self.state),
            "PRETENDED_CAPABILITY": capability,
            "PRETENDED_DRIVE": drive,
        }
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=self.environment, cwd=str(self.content))
        self._connect()

    def _connect(self) -> None:
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code: str) -> str:
        """What a cell prints.

        Raises:
            AssertionError: the cell failed; with what it said.
        """
        printed = []

        def keep(message):
            content = message["content"]
            printed.append(content.get("text") or "\n".join(content.get("traceback", [])))

        reply = self.client.execute_interactive(code, timeout=300, output_hook=keep)
        assert reply["content"]["status"] == "ok", "".join(printed)[-3000:]
        return "".join(printed)

    def restart(self) -> None:
        """As people do after running out of memory; what pip installed stays."""
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self._connect()

    @property
    def installed(self) -> dict[str, str]:
        return json.loads((self.state / "installed.json").read_text())

    @property
    def conflicts(self) -> list[str]:
        return json.loads((self.state / "conflicts.json").read_text())

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def archive(tmp_path_factory, copy_checkout):
    """`archive(name)`: a zip of the files as they are, below a folder of that name."""
    folder = tmp_path_factory.mktemp("archive")
    but = ("results/", "figures/", "notebooks/", "docs/", "tests/")
    repository = copy_checkout(folder, *but)

    def make(name: str) -> Path:
        copy_checkout.git(repository, *(word.format(name) for word in ARCHIVE))
        return folder / f"{name}.zip"

    return make


@pytest.fixture
def machine(tmp_path, archive):
    """`machine(capability, torch)`: a machine, with a zip uploaded where its name is given."""
    started = []

    def start(capability="", torch=IMAGE["packages"]["torch"], upload="casebook", drive=""):
        folder = tmp_path / f"machine{len(started)}"
        started.append(Machine(folder, capability, torch, drive))
        if upload:
            shutil.copy(archive(upload), started[-1].content)
        return started[-1]

    yield start
    for one in started:
        one.stop()


WHERE = "import casebook, os; print(os.getcwd(), casebook.__file__)"


@pytest.mark.parametrize(
    ("capability", "torch", "expected"),
    [
        ("", "2.11.0+cu128", set()),
        ("7.5", "2.11.0+cu128", {"unsloth", "bitsandbytes"}),
        ("8.0", "2.11.0+cu128", {"unsloth", "bitsandbytes", "vllm"}),
        ("8.0", "2.13.0+cu130", {"unsloth", "bitsandbytes", "vllm", "vllm-bnb-plugin"}),
        ("8.0", "2.12.0+cu128", {"unsloth", "bitsandbytes"}),
    ],
    ids=["no GPU", "T4", "A100", "A100, CUDA 13", "A100, another torch"],
)
def test_the_cell_installs_what_fits_and_runs_again_after_a_restart(
    machine, capability, torch, expected
):
    colab = machine(capability, torch)
    cell = install_cell("train", "poker")
    said = colab.run(cell)
    where = colab.run(WHERE).split()
    checkout = colab.content / "casebook"
    assert where == [str(checkout), str(checkout / "src/casebook/__init__.py")]
    first = colab.installed
    gpu_only = {"unsloth", "bitsandbytes", "vllm", "vllm-bnb-plugin"}
    assert gpu_only & set(first) == expected
    # What Colab built against its own torch stays as it is.
    kept = {name: first[name] for name in ("torch", "numpy", "pillow")}
    assert kept == {**{n: IMAGE["packages"][n] for n in kept}, "torch": torch}
    assert (first["trl"], first["transformers"]) == ("1.14.2", "5.17.0")
    assert not [c for c in colab.conflicts if not UNSLOTH.fullmatch(c)]
    assert "vllm" in expected or not capability or "vLLM" in said, f"it left vLLM out: {said!r}"

    colab.run(cell)
    colab.restart()
    colab.run(cell)
    assert colab.run(WHERE).split() == where
    assert colab.installed == first


def test_a_kernel_that_holds_an_older_library_is_told_to_restart(machine):
    """pandas brings Colab's pyarrow along; another one beneath it breaks `import datasets`."""
    colab = machine("7.5")
    cell = install_cell("train", "poker")
    colab.run("import pyarrow")
    with pytest.raises(AssertionError, match=r"pyarrow 18\.1\.0 \(now 21.*restart"):
        colab.run(cell)
    colab.restart()
    colab.run(cell)


def test_a_zip_of_githubs_button_is_uploaded_once_and_kept_on_drive(machine, tmp_path):
    drive = tmp_path / "drive"
    drive.mkdir()
    cell = install_cell("light")
    first = machine(upload="casebook-main", drive=str(drive))
    first.run(cell)
    assert first.run(WHERE).split()[0] == str(first.content / "casebook-main")
    assert [file.name for file in drive.iterdir()] == ["casebook-main.zip"]
    second = machine(upload=None, drive=str(drive))
    second.run(cell)
    assert second.run(WHERE).split()[0] == str(second.content / "casebook-main")


def test_without_a_file_the_cell_says_where_one_comes_from(machine):
    with pytest.raises(AssertionError, match=r"make colab.*Download ZIP"):
        machine(upload=None).run(install_cell("light", "gsm8k"))
