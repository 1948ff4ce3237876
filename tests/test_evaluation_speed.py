"""The benchmark of an evaluation: one whole record, on the embedded model."""

import json

import torch


def test_the_record_has_every_way_with_and_without_the_shared_beginning(script, tmp_path, capsys):
    output = tmp_path / "record.json"
    script("evaluation_speed").main(output, hands=8, threads=1, rounds=1, profile="nano")
    record = json.loads(output.read_text())
    hows = ("prompts once", "every prompt whole")
    assert set(record["seconds"]) == {f"{way}, {how}" for way in ("free", "trie") for how in hows}
    assert all(seconds > 0 for seconds in record["seconds"].values())
    assert record["hands"] == 8
    assert record["tokens_of_a_prompt"] > 8
    assert torch.get_num_threads() == record["torch_threads"] == 1
    assert capsys.readouterr().out.count("8 hands, 1 threads") == 4
