"""What a GPU run's bundle comes to, from import to verdict.

No such run is at hand. These bundles are made up: completions that a model might have written, and
around them the record that the harness would leave. What is tested is who believes what.
"""

import json

import numpy as np
import pandas as pd

from casebook import records
from casebook.bundle import archive, contents, measured
from casebook.paths import plain
from casebook.settings import checked
from casebook.training.log import curve
from casebook.training.measure import input_digests

END = 151_645
GPU = {
    "versions": {"python": "3.12.11", "torch": "2.11.0+cu126", "unsloth": "2026.10.9"},
    "hardware": {
        **{"cpu": "Intel(R) Xeon(R) CPU @ 2.00GHz", "cores": 2, "memory_gb": 12.7},
        **{"gpu": "Tesla T4", "gpu_memory": "15360 MiB", "gpu_driver": "550.54.15"},
        "cuda": "12.6",
    },
    "threads": None,
    "machine": {"processor": "GenuineIntel 6 85", "flags": "0a1b2c3d", "torch": "2.11.0+cu126"},
    "git": {"revision": "8" * 40, "dirty": False},
    "time": "2026-12-01T10:00:00+00:00",
}


def written(case, plans, rows, share, rng):
    """Completions of each file: the oracle's for so large a share, and nonsense else."""
    files = {}
    for name, one in plans.items():
        asked, lines = list(rows.of(one.variant, one.limit)), []
        for row, decoding, sample in one.jobs(range(len(asked))):
            right = rng.random() < share
            text = case.reference(asked[row], one.variant) if right else "I cannot tell."
            ids = [*rng.integers(100, 1000, size=5).tolist(), END]
            line = {"row": row, "decoding": decoding, "sample": sample}
            lines.append(line | {"ids": ids, "completion": text})
        files[name] = lines
    return files


def made_up(seed, before=0.2, after=0.8, **overrides):
    """The bytes of a bundle of poker/t4."""
    settings = plain(checked(("poker", "t4"), {"seed": seed, **overrides}))
    config = contents.to_read(settings)
    plans, rows = measured.plan(config), measured.Rows("poker", "t4")
    model = {
        **{"name": settings["model_name_or_path"], "weights": None, "revision": "9" * 40},
        **{"dtype": "float16", "load_in_4bit": False, "generator": "unsloth"},
    }
    logged = [{"kind": "train", "step": s, "reward": s / 200} for s in range(1, 151)]
    record = {
        **{"case": "poker", "profile": "t4", "arm": None, "seed": seed, "config": settings},
        **{"provenance": GPU | {"model": model}, "inputs": input_digests(config)},
        **{"steps": 150, "samples": 4800, "train_seconds": 4000.5, "measure_seconds": 800.0},
        **{"samples_per_second": 1.2, "peak_memory_mb": 9000, "rows_dropped": 0},
        **{"curve": curve(pd.DataFrame(logged)), "validation": {}},
    }
    files, rng = {}, np.random.default_rng(seed)
    for when, share in (("before", before), ("after", after)):
        lines = written(rows.case, plans, rows, share, rng)
        found = {n: measured.graded(rows, plans[n], lines[n], [END]) for n in plans}
        record[when] = measured.figures(plans, found)
        kept = "completions_before" if when == "before" else "completions"
        record[kept] = measured.kept(when, found["test"])
        for name, part in lines.items():
            files[f"completions/{when}/{name}.jsonl"] = archive.lines_bytes(part)
    record = plain(record)
    small = {
        **{
            "record": record,
            "config": settings,
            "environment": contents.environment(GPU | {"model": model}),
        },
        "model": model | {"adapter": f"{seed:064x}"},
        "measured": plain(contents.decodings(plans, [END], {})),
    }
    files |= {f"{name}.json": archive.json_bytes(value) for name, value in small.items()}
    files["metrics.jsonl"] = archive.lines_bytes(logged)
    about = {"case": "poker", "profile": "t4", "seed": seed}
    return archive.packed(files, about | {"overrides": contents.overrides(settings)})


def verdict():
    (claim,) = [c for c in records.load_claims("poker") if c["id"] == "accuracy-rises-larger"]
    return claim


def test_three_seeds_from_strangers_decide_a_claim(take_in, results):
    assert verdict()["verdict"] == "not run here"
    for seed, said in enumerate(("inconclusive", "inconclusive", "reproduced")):
        code, out, err = take_in(made_up(seed))
        assert code == 0, err
        assert "1,024 completions graded again" in out
        assert "not checked: that the texts are what their tokens say" in out
        claim = verdict()
        assert (claim["evidence"], claim["verdict"]) == ("other real model", said)
    assert (results / "poker" / "t4" / "as_configured" / "seed2.json").exists()
    assert "3 seeds" in claim["measured"]


def test_a_second_run_of_a_seed_does_not_count(take_in):
    assert take_in(made_up(0))[0] == take_in(made_up(1))[0] == 0
    code, _, err = take_in(made_up(1, after=0.9))
    assert code == 1
    assert "seed 1 of poker/t4/as_configured is there already" in err
    assert verdict()["verdict"] == "inconclusive"


def test_another_batch_size_is_another_arm(take_in, results):
    assert take_in(made_up(0, gradient_accumulation_steps=8))[0] == 0
    assert verdict()["verdict"] == "not run here"
    (record,) = map(records.read_record, results.rglob("seed0.json"))
    assert record["arm"].startswith("own_")
    assert record["contributed"]["overrides"] == {"gradient_accumulation_steps": 8}


def test_where_it_ran_is_kept(take_in, results):
    take_in(made_up(0))
    (record,) = map(records.read_record, results.rglob("seed0.json"))
    environment = record["contributed"]["environment"]
    assert (environment["gpu"], environment["driver"]) == ("Tesla T4", "550.54.15")
    assert (environment["cuda"], environment["generator"]) == ("12.6", "unsloth")
    assert record["provenance"]["model"]["revision"] == "9" * 40


def test_without_the_published_problems_nothing_can_be_said(take_in, results, monkeypatch):
    """A bundle of GSM8K on a machine that has no GSM8K: exit code 2, and no record."""
    monkeypatch.delenv("CASEBOOK_DATA_DIR", raising=False)
    files = archive.unpacked(made_up(0))[1]
    settings = plain(checked(("gsm8k", "t4"), {"seed": 0}))
    record = json.loads(files["record.json"]) | {"case": "gsm8k", "config": settings}
    model = record["provenance"]["model"] | {"name": settings["model_name_or_path"]}
    record["provenance"]["model"] = model
    plans = measured.plan(contents.to_read(settings))
    changed = {
        **{"record": record, "config": settings, "model": model | {"adapter": "0" * 64}},
        "measured": plain(contents.decodings(plans, [END], {})),
    }
    kept = {n: c for n, c in files.items() if not n.startswith("completions/")}
    for when in measured.WHEN:
        kept |= {f"completions/{when}/{name}.jsonl": b"" for name in plans}
    kept |= {f"{name}.json": archive.json_bytes(value) for name, value in changed.items()}
    about = {"case": "gsm8k", "profile": "t4", "seed": 0, "overrides": {}}
    code, _, err = take_in(archive.packed(kept, about))
    assert code == 2, err
    assert err.startswith("casebook: the rows of gsm8k are not here: ")
    assert "CASEBOOK_DATA_DIR" in err
    assert not list(results.rglob("*.json"))
