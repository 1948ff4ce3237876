"""One short run of the embedded model, and its bundle."""

import shutil
import sys

import pytest

from casebook import cli, paths

SETTINGS = {
    "max_steps": 2,
    "per_device_train_batch_size": 16,
    "evaluate_every": 2,
    "evaluate_rows": 8,
    "test_limit": 8,
    "test_samples": 2,
    "pass_at_k_rows": 3,
    "pass_at_k_samples": 4,
    "also_evaluate": {"label alone": {"variant": "label", "limit": 5}},
}


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The folder of a finished run of poker on the embedded model, measured in every way."""
    from casebook import training

    config = training.read_config(("poker", "nano"), SETTINGS)
    return training.train(config, tmp_path_factory.mktemp("runs") / "run").path


@pytest.fixture(scope="session")
def bundle(run, tmp_path_factory):
    """The bytes of its bundle."""
    from casebook.bundle import export_run

    path = tmp_path_factory.mktemp("bundles") / "run.zip"
    return export_run(run, path, say=lambda line: None).read_bytes()


@pytest.fixture(scope="session")
def predicted_run(run, tmp_path_factory):
    """The same run with a preflight before it, and with what the preflight predicted."""
    from casebook import preflight, records
    from casebook.preflight.afterwards import against

    folder = tmp_path_factory.mktemp("predicted") / "run"
    found = preflight.preflight(paths.CONFIGS / "poker" / "nano.yaml", overrides=SETTINGS)
    file = preflight.write(found, folder)
    leave = shutil.ignore_patterns("checkpoints")
    shutil.copytree(run, folder, ignore=leave, dirs_exist_ok=True)
    record = records.read_record(folder / "record.json")
    predicted = against(file, record, record["peak_memory_mb"] * 2**20)
    paths.write_json(folder / "record.json", record | {"predicted": predicted})
    return folder


@pytest.fixture(scope="session")
def predicted_bundle(predicted_run, tmp_path_factory):
    """The bytes of its bundle."""
    from casebook.bundle import export_run

    path = tmp_path_factory.mktemp("bundles") / "predicted.zip"
    return export_run(predicted_run, path, say=lambda line: None).read_bytes()


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder of results."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def take_in(tmp_path, results, monkeypatch, capsys):
    """`casebook record import` of some bytes: exit code, and what was said to whom."""

    def run(content: bytes) -> tuple[int, str, str]:
        path = tmp_path / "bundle.zip"
        path.write_bytes(content)
        monkeypatch.setattr(sys, "argv", ["casebook", "record", "import", str(path)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return end.value.code or 0, said.out, said.err

    return run
