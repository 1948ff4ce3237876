"""The red team names the fault of each faulty reward, and finds none in a sound one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from casebook import CasebookError
from casebook.cli import main
from casebook.redteam import lines, redteam
from casebook.redteam.form import apart

FAULTY = Path(__file__).with_name("faulty.py")
NUMBERS = [("3 boxes of 4 pens. How many pens?", "3*4=12", "12", "7"),
           ("5 and 2.", "5+2=7", "7", "12"), ("50 and 7", "50+7=57", "57", "43")]  # fmt: skip
HANDS = [("2H 2D 2C 9S 9H", "2 2 2 9 9", "full house", "flush"),
         ("2H 4H 6H 9H KH", "all H", "flush", "high card"),
         ("2H 4D 6H 9H KH", "nothing", "high card", "flush")]  # fmt: skip
NAMES = [("Which variable is read first?", "line 1 reads it", "nMax", "nmax"),
         ("Which one is written?", "line 2", "N", "n")]  # fmt: skip


def examples(folder, tasks, thought="{}\n", prompt="{}"):
    """A file of right and wrong completions."""
    rows = []
    for question, reason, right, wrong in tasks:
        for answer in (right, wrong):
            text = f"<think>{thought.format(reason)}</think>\n<answer>{answer}</answer>"
            row = {"prompt": prompt.format(question), "completion": text, "answer": right}
            rows.append(row | {"right": answer == right})
    path = folder / "examples.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def kinds(report):
    return {found["kind"] for found in report["findings"]}


FAULTS = {
    "endless": "never_ends",
    "batch_mean": "batch_dependent",
    "first_answer": "batch_dependent",
    "one_line": "multiline_refused",
    "evaluated": "runs_code",
    "exact": "right_answer_refused",
    "last_number": "answer_outside_paid",
    "contains": "near_miss_paid",
    "empty_is_right": "empty_paid",
    "longer_is_better": "length_paid",
    "any_case": "wrong_answer_paid",
    "leaking_prompt": "prompt_leak",
    "raising": "raises",
    "wavering": "nondeterministic",
    "sign_lost": "near_miss_paid",
    "unreadable_gold": "unreadable_gold_paid",
    "not_a_number": "constant_paid",
    "counting": "repetition_paid",
    "searching": "multiline_refused",
    "form_anywhere": "form_ignored",
    "popping": "changes_its_input",
    "literal": "raises",
}
IN_PART = {"nearly": "near_miss_paid", "encouraging": "length_paid"}
IN_PART |= {"in_any_order": "form_ignored", "shortest": "long_reasoning_refused"}
IN_PART |= {"lavish": "right_answer_refused"}
TASKS = {"numbers": NUMBERS, "any_case": NAMES, "leaking_prompt": HANDS, "sound_label": HANDS}
FORM = ("counting", "searching", "form_anywhere", "in_any_order", "sound_form")


def attacked(folder, name):
    prompt = "high card, one pair, flush, full house\n{}" if TASKS.get(name) is HANDS else "{}"
    file = examples(folder, TASKS.get(name, NUMBERS), prompt=prompt)
    return redteam(f"{FAULTY}:{name}", file, kind="form" if name in FORM else "answer")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named_and_its_test_fails(name, tmp_path):
    report = attacked(tmp_path, name)
    (found,) = (it for it in report["findings"] if it["kind"] == FAULTS[name])
    if name in ("endless", "last_number", "first_answer", "one_line", "evaluated"):
        file = tmp_path / "test_found.py"
        file.write_text(found["test"])
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
        )
        assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), IN_PART.items())
def test_what_is_paid_in_part_is_named_and_its_test_fails(name, kind, tmp_path):
    (found,) = (it for it in attacked(tmp_path, name)["findings"] if it["kind"] == kind)
    with pytest.raises(AssertionError):
        exec(found["test"] + f"test_{kind}()", {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sound_number", "sound_label", "sound_form", "abstaining"])
def test_a_sound_reward_raises_no_alarm(name, tmp_path):
    report = attacked(tmp_path, name)
    assert report["findings"] == []
    assert report["complete"]
    empty = {"sound_form": "paid", "abstaining": "paid in part"}.get(name, "refused")  # no fault
    assert report["habits"]["the form with nothing in it"] == empty
    behind = "paid in part" if name == "abstaining" else "refused"
    assert report["habits"]["text behind the answer"] == behind
    assert f"{empty}: " in "".join(lines(report))


@pytest.mark.parametrize(
    ("completion", "answer", "thought", "slot"),
    [
        ("<think>\n2+2\n</think>\n<answer>4</answer>", "4", "\n2+2\n", "4"),
        ("2+2</think><answer> 4 </answer>", 4, "2+2", "4"),  # the prompt has opened it
        ("2+2=4\n#### 4", "4", "2+2=4\n", "4"),
        (r"So $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}", "So", r"\frac{1}{2}"),
        (r"<think>a</think><answer>\boxed{4}</answer>", "4", "a", "4"),
        ("2 and 2. The answer is 4.", "4", "2 and 2. ", "4"),
        ('{"why": "so", "answer": "yes"}', "yes", None, "yes"),
        ("<answer>(6*4)</answer>", "24", None, "(6*4)"),
        ("<think>so 24</think><answer>6*4</answer>", "24", "so 24", "6*4"),
        (" flush\n", "flush", None, "flush"),
    ],
)
def test_the_form_is_learnt(completion, answer, thought, slot):
    row = {"prompt": "?", "completion": completion, "answer": answer, "right": True}
    (example,) = apart([row])
    assert (example.text, example.thought, example.slot) == (completion, thought, slot)
    assert example.told("X").replace("X", slot) == completion


OWN = {
    "poker": {"correct": "answer", "tag_format": "form", "answer_grammar": "form"},
    "gsm8k": {"correctness": "answer", "soft_correctness": "answer", "answer_reward": "answer"}
    | dict.fromkeys(("xml_count", "soft_format", "strict_format", "integer"), "form"),
    "landuse": {"label_match": "answer", "tag_format": "form"},
    "math": {"equivalence": "answer", "boxed_format": "form", "think_format": "form"},
}


@pytest.mark.heavy
@pytest.mark.parametrize("case", OWN)
def test_our_own_rewards_in_use_pass(case):
    for name, kind in OWN[case].items():
        known = {"form_ignored"} if name == "xml_count" else set()  # the write-up's counts tags
        assert kinds(redteam(f"{case}:{name}", kind=kind)) == known, name


CHAT = """
def right(completions, answer):
    said = [messages[0]["content"].strip() for messages in completions]
    return [float(one == gold or one == "{gold}") for one, gold in zip(said, answer)]
"""


@pytest.mark.slow
def test_a_reward_for_messages_at_the_command_line(tmp_path, capsys, monkeypatch):
    rows = [{"prompt": "?", "completion": a, "answer": a, "right": True} for a in ("soy", "corn")]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def run(*options):
        place = (f"{tmp_path}/chat.py:right", "--examples", str(tmp_path / "e.jsonl"))
        monkeypatch.setattr(sys, "argv", ["casebook", "redteam", *place, *options])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, capsys.readouterr()

    (tmp_path / "chat.py").write_text(CHAT.replace("{gold}", "maize"))
    code, printed = run("--json")
    report = json.loads(printed.out)
    assert code == 1
    assert kinds(report) == {"right_answer_refused"}  # a capital letter
    assert set(report["findings"][0]) >= {"kind", "completion", "expected", "got", "test"}
    assert report["calls"] > 100
    assert "right_answer_refused: " in lines(report)[0]
    (tmp_path / "chat.py").write_text(CHAT.replace("strip()", "strip().lower()"))
    code, printed = run()
    assert code == 0
    assert "No fault found" in printed.out
    (tmp_path / "chat.py").write_text("import nothing_like_it")
    code, printed = run()
    assert code == 2
    assert "ModuleNotFoundError" in printed.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "cannot be read"), ('{"prompt": 1}', "'completion'"), ("", "no example is right")],
)
def test_examples_that_cannot_be_read_are_a_sentence(text, sentence, tmp_path):
    (tmp_path / "e.jsonl").write_text(text)
    with pytest.raises(CasebookError, match=sentence):
        redteam(f"{FAULTY}:exact", tmp_path / "e.jsonl")
