"""The verifier: what it reads, what it calls equal, and that no text hurts it."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook import CasebookError, problem_sets
from casebook.cases.math import verify, worker
from casebook.cases.math.notation import LONGEST
from casebook.cases.math.rewards import grade
from casebook.cases.math.studies.verifiers import HOSTILE
from casebook.cases.math.verify import POLICIES, answer_of, equivalent, last_boxed, prepare


@pytest.fixture(scope="module", autouse=True)
def workers():
    """Workers that have started, and patience: no verdict depends on how busy the machine is."""
    pytest.importorskip("math_verify")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "PATIENCE", 300.0)
        assert prepare(300)
        yield


@pytest.fixture
def forgotten():
    """Nothing remembered of earlier checks."""
    verify._remembered.clear()


@pytest.fixture
def no_worker(monkeypatch):
    """Every question to a worker is answered at once: they differ."""
    monkeypatch.setattr(worker, "ask", lambda *_: worker.DIFFERENT)
    monkeypatch.setattr(verify, "_remembered", {})


# Reading


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{3} then \boxed{4}", "4"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ 1 \right\}}", r"\left\{ 1 \right\}"),
        (r"\boxed{x_{1}^{2_{3}}}.", "x_{1}^{2_{3}}"),
        (r"\boxed { 5 }", "5"),
        (r"\boxed 5", "5"),
        (r"\fbox{6}", "6"),
        (r"\boxed{}", ""),
        ("\\boxed{a\nb}", "a\nb"),
        (r"\boxed{7} and \boxed{8", "7"),
        (r"\boxed{1 \boxed{2}", "2"),
        (r"} } \boxed{9}", "9"),
        (r"{ { \boxed{9}", "9"),
        (r"\boxed{\boxed{7}}", r"\boxed{7}"),
        ("x" * 1_000_000 + r"\boxed{7}", "7"),
        (r"\boxed{7}" + "x" * 1_000_000, "7"),
    ],
)
def test_the_last_balanced_box(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    "text",
    ["", "7", r"\boxed", r"\boxed{", r"\boxed{\frac{1}{2}", r"\box{7}", "boxed{7}", None, 7, b"x"],
)
def test_no_balanced_box(text):
    assert last_boxed(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"the answer is 3, so \boxed{4}", "4"),
        (r"$x = 3$, so the answer is $5$.", "5"),
        ("The final answer is $\\frac12$. I hope it is correct.", r"\frac12"),
        ("Answer: 15", "15"),
        ("the answer is 2. No, the answer is 3.", "3"),
        (r"first $1$, then $2$", "2"),
        (r"thus \(3\)", "3"),
        (r"thus \[x + 1\]", "x + 1"),
        (r"\boxed{2} or \boxed{3}", "2 or 3"),
        (r"\boxed{2}, \boxed{3}", "2, 3"),
        (r"<think>\boxed{2}</think> Answer: 3", "3"),
        (r"\boxed{5 \text{ since } 2+3=5}", "5"),
        ("$1$ and $2$", "1, 2"),
        (r"\boxed{1\frac12} or \boxed{\frac32}", r"\frac32"),
        (r"\boxed{3} is wrong, it is \boxed{4}", "4"),
        (r"\boxed{\boxed{7}}", "7"),
    ],
)
def test_the_answer_a_completion_gives(text, answer):
    assert answer_of(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "I do not know", "costs $5", r"\(open", r"\boxed{}", None, 3.0),
        *(r"<think>\boxed{5}", r"\boxed{5} \boxed{6}", "at least $5$", r"\boxed{not 5}"),
    ],
)
def test_no_answer(text):
    assert answer_of(text) is None


# The table of examples, which the grade follows too


TABLE = yaml.safe_load(verify.ANSWERS.read_text("utf-8"))["examples"]


def test_every_policy_has_right_and_other_examples():
    for rule in POLICIES:
        paid = {row["grade"] in ("strict", "lenient") for row in TABLE if row["rule"] == rule}
        assert paid == {True, False}, rule


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_decides_its_examples(policy):
    wrong = [
        row
        for row in TABLE
        if row["rule"] == policy
        and equivalent(row["completion"], row["gold"]) != (row["grade"] in ("strict", "lenient"))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("prediction", "gold", "same"),
    [
        ("5", r"\boxed{5}", True),
        ("$5$", "The answer is 5.", True),
        ("Thus there are 12 apples in the basket.", "12", True),
        ("Steps 1, 2 and 3 together gave 7 of them.", "7", True),
        ("We then have that it is 5 or 6", "5, 6", True),
        ("We then have that it is 6 or 5", "5", False),
        ("We then have that it is 5 dozen", "5", False),
        ("We then have that it is -(5)", "5", False),
        ("this is not the number 5", "5", False),
        ("we can rule out 1, 2, 3, 4 and 5", "5", False),
        ("it is more than 5 in the end", "5", False),
    ],
)
def test_a_side_may_be_a_bare_answer_or_a_sentence(prediction, gold, same):
    assert equivalent(prediction, gold) is same


# No hedge is paid

ANSWERS = [  # a right answer and another one
    ("5", "6"),
    ("-3", "3"),
    ("1000", "100"),
    (r"\frac{1}{2}", r"\frac{1}{3}"),
    ("0.25", "0.5"),
    (r"\sqrt{2}", r"\sqrt{3}"),
    (r"2\pi", r"3\pi"),
    (r"12 \text{ cm}", r"13 \text{ cm}"),
    (r"50\%", r"40\%"),
    ("x+1", "x+2"),
    ("y=2x+3", "y=2x+4"),
    ("(1,2)", "(2,1)"),
    ("[1,2]", "[1,3]"),
    ("(A)", "(B)"),
    (r"\text{(C)}", r"\text{(D)}"),
    (r"\text{even}", r"\text{odd}"),
    ("10:30", "11:30"),
]
HEDGES = (
    "{right} or {other}",
    "{other} or {right}",
    r"{right} \text{{ or }} {other}",
    r"{other} \text{{ or maybe }} {right}",
    "either {other} or {right}",
    "${right}$ or ${other}$",
    "${other}$ or ${right}$",
    "{right}, {other}",
    "{other}, {right}",
    "{right} and {other}",
    "{other} (or {right})",
    "{other}, alternatively {right}",
    "{right} as well as {other}",
    r"{right} \approx {other}",
    "not {right}",
    "not ${right}$",
    r"\text{{not }} {right}",
    "never {right}",
    "anything but {right}",
    r"{right} \text{{ is wrong}}",
    "{right} not {other}",
    "at least {right}",
    "more than {right}",
    "{right} or more",
    r"{right} \text{{ million}}",
    "{right} dozen",
    r"{right} \text{{ plus one}}",
    r"{right} \text{{ maybe}}",
    "{right}?",
)
OF_NUMBERS = ("{other} = {right}", r"{other} \approx {right}", r"{other} \Rightarrow {right}")
FRAMES = (
    r"\boxed{{{}}}",
    r"<think>x=5</think>\boxed{{{}}}",
    "{}",
    "${}$",
    "The answer is {}.",
    "The answer is ${}$",
    "So we conclude that it must be ${}$.",
)
AROUND = (
    r"\boxed{{{right}}} or \boxed{{{other}}}",
    r"\boxed{{{other}}} or \boxed{{{right}}}",
    r"\boxed{{{right}}}\boxed{{{other}}}",
    r"\boxed{{{other}}} \boxed{{{right}}}",
    r"\boxed{{{other}}}, maybe \boxed{{{right}}}",
    r"\boxed{{{right}}}. No, \boxed{{{other}}}",
    r"\boxed{{{right}}} or {other}",
    r"\boxed{{{right}}} or ${other}$",
    r"${other}$ or $\boxed{{{right}}}$",
    r"not \boxed{{{right}}}",
    r"maybe \boxed{{{right}}}",
    r"I don't think that it is \boxed{{{right}}}.",
    r"anything but \boxed{{{right}}}",
    r"$x \ne \boxed{{{right}}}$",
    r"$-\boxed{{{right}}}$",
    r"$7 \cdot \boxed{{{right}}}$",
    r"$7\boxed{{{right}}}$",
    r"$\frac{{7}}{{\boxed{{{right}}}}}$",
    r"$\boxed{{{right}}}^7$",
    r"$\boxed{{{right}}} + 7$",
    r"$\boxed{{{right}}} \cdot 7$",
    r"\boxed{{{right}}} million",
    r"\boxed{{{right}}}?",
    r"\boxed{{{right}}}. Wrong.",
    r"\boxed{{{right}}}. This is not correct.",
    r"\boxed{{{right}}} unless it is ${other}$",
    r"\boxed{{{right}}}. It could be ${other}$.",
    r"It isn't $\boxed{{{right}}}$.",
    r"\boxed{{{right}}} is wrong.",
    r"<think>\boxed{{{right}}}",
    r"<think>\boxed{{{right}}}</think>",
    "It cannot be ${right}$.",
    "We can rule out ${right}$.",
    "It is at least ${right}$.",
    "It is ${other}$. Or ${right}$.",
    "Perhaps it is ${right}$.",
    "It is wrong that the answer is ${right}$.",
    "The answer is not ${right}$.",
    "The answer is {other}. The answer is {right}.",
    r"\boxed{{{right}}} The answer is ${other}$.",
    "The answer is ${right}$. Or ${other}$.",
    "not The answer is ${right}$.",
    "The answer is ${other}$ or ${right}$, but I do not know which of them.",
)


def unpaid(completion, gold):
    return not equivalent(completion, gold) and not any(
        grade(completion, gold, variant).correct for variant in ("reason", "answer")
    )


@pytest.mark.parametrize("hedge", HEDGES)
def test_no_hedge_is_paid_in_a_box_between_dollars_or_in_prose(hedge):
    texts = [
        (frame.format(hedge.format(right=right, other=other)), right)
        for right, other in ANSWERS
        for frame in FRAMES
    ]
    assert [text for text in texts if not unpaid(*text)] == []


@pytest.mark.parametrize("around", AROUND)
def test_no_hedge_is_paid_around_a_box_or_a_formula(around):
    texts = [(around.format(right=right, other=other), right) for right, other in ANSWERS]
    assert [text for text in texts if not unpaid(*text)] == []


def alter_and_check(number, other, way, frame):
    """A wrong second answer, a denial or an alternative never makes a completion right."""
    hedges = (*HEDGES, *OF_NUMBERS)
    hedge = hedges[way % len(hedges)].format(right=number, other=other)
    assert unpaid(FRAMES[frame % len(FRAMES)].format(hedge), str(number))
    around = AROUND[way % len(AROUND)].format(right=number, other=other)
    assert unpaid(around, str(number))


numbers = st.integers(-999, 10_000)


@settings(max_examples=100, deadline=None)
@given(numbers, numbers, st.integers(0, 99), st.integers(0, 99))
def test_a_hedge_of_any_two_numbers_is_not_paid(number, other, way, frame):
    if number != other:
        alter_and_check(number, other, way, frame)


@pytest.mark.heavy
def test_ten_thousand_hedges_are_not_paid():
    generator = random.Random(3)
    for _ in range(10_000):
        number, other = generator.sample(range(-999, 10_000), 2)
        alter_and_check(number, other, generator.randrange(99), generator.randrange(99))


REASONS = (
    r"\boxed{{{} \text{{ since }} 2+3=5}}",
    r"\boxed{{{} \text{{ because it is not 6}}}}",
    r"\boxed{{{}}} because it is not 6",
    r"\boxed{{{}}}, which is not 6 or 7.",
    r"\boxed{{{}}} because it is not 6 or 7.",
    "The answer is {}, since 2+3=5.",
    "The answer is ${}$ because 6 is no prime.",
    r"It is not $6$. Hence \boxed{{{}}}",
    r"As x isn't 0, it is \boxed{{{}}}.",
    "\\boxed{{{}}}\n\nIs there anything else?",
    r"**$\boxed{{{}}}$** and that is all",
    r"First \boxed{{77}}, but that is wrong, so \boxed{{{}}}.",
)


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_does_not_turn_a_right_answer_wrong(reason):
    wrong = [
        right
        for right, _ in ANSWERS
        if not (
            equivalent(reason.format(right), right) and grade(reason.format(right), right).correct
        )
    ]
    assert wrong == []


@settings(deadline=None)
@given(value=st.fractions(-1000, 1000, max_denominator=1000), reason=st.sampled_from(REASONS))
def test_a_reason_behind_any_fraction_is_left_out(value, reason):
    assert equivalent(reason.format(value), str(value))


@pytest.mark.parametrize(
    "unit", ["cm", "square units", "miles per hour", "people", "boxes", "different ways", "degrees"]
)
def test_a_known_unit_may_be_left_out(unit):
    assert equivalent(rf"\boxed{{12 \text{{ {unit}}}}}", "12")
    assert equivalent(r"\boxed{12}", rf"12 \text{{ {unit}}}")


@pytest.mark.parametrize(
    "word",
    [
        *("million", "thousand", "dozen", "factorial", "squared", "halves", "plus one", "not"),
        *("is wrong", "maybe", "pi", "i", "hundred", "thirds", "cubed", "or so", "zorks"),
        *("times two", "billion cm"),
    ],
)
def test_any_other_word_is_no_unit(word):
    for text in (rf"\boxed{{5 \text{{ {word}}}}}", rf"\boxed{{5\text{{{word}}}}}", f"5 {word}"):
        assert not equivalent(text, "5"), text


# Notation, and what a computer algebra system is for


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\dfrac{1}{2}", r"\frac12"),
        (r"\tfrac{3}{4}", "3/4"),
        (r"1\frac{1}{2}", r"\frac{3}{2}"),
        ("½", "0.5"),
        ("−3", "-3"),
        (r"0.\overline{3}", r"\frac{1}{3}"),
        (r"5.83 \times 10^{-5}", ".0000583"),
        (r"\left( 1,\, 2 \right)", "(1,2)"),
        (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt3}{3}"),
        (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}"),
        ("(x-1)(x+1)", "x^2-1"),
        ("6 - 5i", "-5i+6"),
        ("(1+i)^2", "2i"),
        (r"e^{i\pi}", "-1"),
        (r"e^{x^2+y^2}", r"e^{y^2+x^2}"),
        ("2xy = 2", "xy = 1"),
        (r"\sin^2 x + \cos^2 x", "1"),
        (r"\log_2 8", "3"),
        (r"\binom{6}{2}", "15"),
        (r"10x + 4y = 6", "5x + 2y - 3 = 0"),
        ("3x > 6", "x > 2"),
    ],
)
def test_the_same_in_another_form_whichever_is_gold(one, other):
    assert equivalent(one, other)
    assert equivalent(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"\frac{1}{1801!}", r"\frac{1}{1803!}"),
        (r"\frac{1}{2^{120}}", r"\frac{1}{2^{119}}"),
        (r"2 - \frac{1}{\mathrm{e}}", r"2 + \frac{1}{\mathrm{e}}"),
        ("e^{x+1}", "e^x+1"),
        ("R^2", "r^2"),
        ("x", "y"),
        (r"\sin x", r"\cos x"),
        ("x^2+y^2=4", "x^2+y^2=2"),
        ("1 1/2", "11/2"),
        ("[5,5]", "5"),
        ("2,3", "[2,3]"),
        ("4:1", "4"),
        ("12, 345", "12,345"),
        ("3:2", "1.5"),
        ("12", "1,2"),
        ("123456789012345678901", "123456789012345678902"),
    ],
)
def test_what_only_looks_alike(one, other):
    assert not equivalent(one, other)
    assert not equivalent(other, one)


fractions = st.fractions(min_value=-1000, max_value=1000, max_denominator=1000)


@settings(deadline=None)  # nothing here depends on how busy the machine is
@given(value=fractions)
def test_a_fraction_is_itself_in_every_notation(value):
    above, below = value.numerator, value.denominator
    forms = [f"{above}/{below}", rf"\frac{{{above}}}{{{below}}}", rf"\boxed{{{above}/{below}}}"]
    whole, rest = divmod(abs(above), below)
    if rest and whole:
        forms.append(("-" if above < 0 else "") + rf"{whole}\frac{{{rest}}}{{{below}}}")
    assert all(equivalent(one, other) for one in forms for other in forms)


@settings(deadline=None)
@given(one=fractions, other=fractions)
def test_two_fractions_are_equivalent_only_if_equal(one, other):
    given_answer = rf"\frac{{{one.numerator}}}{{{one.denominator}}}"
    assert equivalent(given_answer, str(other)) == (one == other)


@settings(deadline=None)
@given(
    digits=st.integers(0, 10**12),
    places=st.integers(0, 5),
    other=st.integers(0, 10**12),
)
def test_two_short_decimals_are_equivalent_only_if_equal(digits, places, other):
    def written(number):
        text = str(number).rjust(places + 1, "0")
        return f"{text[:-places]}.{text[-places:]}" if places else text

    same = Fraction(digits) == Fraction(other)
    assert equivalent(written(digits), written(other)) == same


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_characters="{}\\"), max_size=60))
def test_any_answer_is_its_own(text):
    boxed = rf"\boxed{{{text}}}"
    found = answer_of(boxed)
    assert equivalent(boxed, boxed) == bool(found and found.strip())


# What is no answer


@pytest.mark.parametrize("other", [None, 7, 7.0, b"7", ["7"], float("nan")])
def test_what_is_not_a_string_is_not_equivalent(other):
    assert equivalent(other, "7") is False
    assert equivalent("7", other) is False


@pytest.mark.parametrize("text", ["", " ", "$$", r"\boxed{}", r"\boxed{ }", "\x00", "."])
def test_nothing_is_equivalent_to_nothing_else(text):
    assert not equivalent(text, "0")
    assert not equivalent("0", text)


def test_an_answer_of_a_thousand_digits_is_compared_as_a_string():
    long = "1" * (LONGEST + 1)
    assert equivalent(long, long)
    assert not equivalent(long, long + "0")


# Hostile texts


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_not_paid(name):
    text = HOSTILE[name]
    assert equivalent(text, "7") is False
    assert equivalent("x + 1", text) is False
    assert answer_of(text) is None or isinstance(answer_of(text), str)


@pytest.mark.parametrize(
    "text",
    [
        "10^{10^{10}}",
        "9^{9^{9^{9}}}",
        "3^{3^{27}}",
        "2^{99999999}",
        "100000!",
        "99999999!",
        "((9!)!)!",
        "9!!!!",
        r"\binom{1000000}{500000}",
        "1" * 500,
    ],
)
def test_what_nobody_can_compute_is_not_even_asked(text, monkeypatch, forgotten):
    def refuse(*_):
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(worker, "ask", refuse)
    assert not equivalent(text, "x + 1")
    assert not equivalent("x + 1", text)


@pytest.mark.parametrize("text", ["2^{2007}", "5!", r"\binom{10}{3}", "x^{2^{3}}", "10^{-5}"])
def test_what_can_be_computed_is_asked(text):
    assert not verify._hopeless(text)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch {path}')",
        r"\text{{__import__('os').system('touch {path}')}}",
        "exec(\"open('{path}', 'w')\")",
        "[x for x in ().__class__.__base__.__subclasses__()]; open('{path}', 'w')",
        r"\boxed{{lambda: open('{path}', 'w')}}",
        "1+1; open('{path}', 'w')",
    ],
)
def test_text_is_never_run_as_code(code, tmp_path):
    path = tmp_path / "paid"
    text = code.format(path=path)
    for prediction, gold in [(text, "7"), ("7", text), (text, "x+1"), (text, text + " ")]:
        equivalent(prediction, gold)
    assert not path.exists()


def test_a_worker_may_not_start_programs_or_write(tmp_path):
    script = f"""
import os, runpy, sys
worker = runpy.run_path({worker.__file__!r}, run_name="worker")
worker["_restrict"]()
for attempt in (
    lambda: os.system("true"),
    lambda: open({str(tmp_path / "x")!r}, "w"),
    lambda: os.remove(sys.executable),
    lambda: __import__("subprocess").run(["true"]),
    lambda: __import__("socket").create_connection(("127.0.0.1", 9)),
):
    try:
        attempt()
    except PermissionError as error:
        assert "may not" in str(error), error
    else:
        raise SystemExit("it could")
print(open({worker.__file__!r}).read(3))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, '"""\n', "")


PIECES = (
    *"0123456789+-*/^_=<>()[]{}|!,.;:&%$#~'\"\\ \n\t",
    *("\\frac", "\\sqrt", "\\boxed{", "\\text{", "\\left", "\\right", "\\pm", "\\cup", "\\in"),
    *("\\begin{pmatrix}", "\\end{pmatrix}", "\\\\", "\\{", "\\}", "\\%", "\\$", "\\circ", "\\pi"),
    *("\\le", "\\approx", "\\overline{", "\\binom", "\\infty", "x", "y", "i", "e", "sin", "and"),
    *("or", "cm", "answer is", "percent", "base", "1,000", "10:30", "(A)", "\x00", "\ud800"),
    *("\u202e", "½", "−", "√", "π", "²", "\ufffd", "\ue000", "\ue001", "\ue002", "😀", "٣", "Ⅷ"),
)


def fuzzed(count, seed, longest):
    generator = random.Random(seed)
    for _ in range(count):
        yield "".join(generator.choices(PIECES, k=generator.randrange(longest)))


@pytest.mark.slow
def test_ten_thousand_strings_are_read_without_an_exception(no_worker):
    golds = ["7", "x+1", "(1,2)", r"\text{even}", r"\frac{1}{2}", "[0, 1)", r"50\%"]
    for number, text in enumerate(fuzzed(10_000, 1, 40)):
        gold = golds[number % len(golds)]
        assert isinstance(equivalent(text, gold), bool)
        assert isinstance(equivalent(gold, text), bool)


@pytest.mark.slow
def test_three_hundred_strings_pass_through_the_workers():
    for text in fuzzed(300, 2, 12):
        assert isinstance(equivalent(text, "x+1"), bool)


@settings(deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_is_read_without_an_exception(text):
    assert answer_of(text) is None or isinstance(answer_of(text), str)
    assert last_boxed(text) is None or isinstance(last_boxed(text), str)


# The guard

HARD = r"\int_0^1 \int_0^1 e^{-x^2 y^2}\sin(xy) \, dx \, dy"  # more than a second's thought
QUESTIONS = [
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt2}{2}", True),
    ("x^2-1", "(x-1)(x+1)", True),
    ("x+1", "x+2", False),
    (r"\sqrt{12}", r"2\sqrt3", True),
]


def asked(number):
    """The verdicts on `QUESTIONS`, from another start each time; in any process or thread."""
    verify._remembered.clear()
    turned = QUESTIONS[number % 4 :] + QUESTIONS[: number % 4]
    return all(equivalent(one, other) == same for one, other, same in turned)


def far():
    return time.monotonic() + 300


def test_a_question_that_takes_too_long_is_answered_and_the_next_one_too():
    assert worker.ask("7", HARD, far()) == worker.DIFFERENT
    assert worker.ask("x+1", "1+x", far()) == worker.EQUAL


@pytest.fixture
def pool(monkeypatch):
    """One worker, which may think for a fifth of a second."""
    monkeypatch.setattr(worker, "CPU_SECONDS", 0.2)
    pool = worker.Pool(size=1)
    yield pool
    pool._end_all(pool._parents)


def test_an_answer_that_comes_late_is_not_taken_for_the_next_one(pool):
    assert pool.ask("x+1", "1+x", far()) == worker.EQUAL
    assert pool.ask("7", HARD, time.monotonic() + 0.01) is None
    assert pool.ask("x+1", "1+x", far()) == worker.EQUAL


def test_what_a_question_uses_is_taken_from_its_budget(pool):
    budget = worker.Budget(0.3)
    assert pool.ask("x+1", "1+x", far(), budget=budget) == worker.EQUAL
    for _ in range(2):
        assert pool.ask("7", HARD, far(), budget=budget) == worker.DIFFERENT
    assert budget.left < 0.01
    assert pool.ask("x+1", "1+x", far(), budget=budget) == worker.DIFFERENT  # nobody was asked


def test_waiting_for_a_worker_is_not_thinking(monkeypatch, forgotten, pool):
    monkeypatch.setattr(worker, "_pool", pool)
    monkeypatch.setattr(verify, "TIMEOUT", 0.2)
    hard = [threading.Thread(target=pool.ask, args=("7", HARD, far())) for _ in range(3)]
    for thread in hard:
        thread.start()
    assert equivalent("(x+1)^2", "x^2+2x+1")
    for thread in hard:
        thread.join()


def test_threads_are_served_in_the_order_in_which_they_came(pool):
    busy = pool._take(far())
    served = []

    def wait(name):
        found = pool._take(far())
        served.append(name)
        pool._give_back(found)

    threads = []
    for name in range(5):
        threads.append(threading.Thread(target=wait, args=(name,)))
        threads[-1].start()
        while len(pool._line) <= name:
            time.sleep(0.001)
    pool._give_back(busy)
    for thread in threads:
        thread.join()
    assert served == list(range(5))


def test_one_worker_until_a_second_thread_needs_one_and_never_more_than_the_most(pool):
    pool.size = 2
    for _ in range(3):
        assert pool.ask("x+1", "1+x", far()) == worker.EQUAL
    assert pool._number == 1
    with ThreadPoolExecutor(5) as threads:
        asked = [threads.submit(pool.ask, "7", HARD, far()) for _ in range(5)]
        assert {one.result() for one in asked} == {worker.DIFFERENT}
    assert pool._number == 2


def test_what_is_no_latex_is_unreadable():
    assert worker.ask("7", r"\frac{", far()) == worker.UNREADABLE


def test_when_time_is_up_it_is_not_equivalent_and_not_remembered(monkeypatch, forgotten):
    with monkeypatch.context() as patch:
        patch.setattr(worker, "ask", lambda *_: None)
        assert not equivalent("x+1", "1+x")
    assert equivalent("x+1", "1+x")


def test_a_verdict_is_remembered(monkeypatch, forgotten):
    assert equivalent("x+1", "1+x")
    monkeypatch.setattr(worker, "ask", lambda *_: None)
    assert equivalent("x+1", "1+x")


def test_workers_that_somebody_killed_are_replaced(forgotten):
    assert asked(0)
    os.killpg(worker._pool._parents[0]._child.pid, signal.SIGKILL)
    assert prepare(300)
    assert asked(0)


def test_from_eight_threads_at_once():
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(asked, range(16)))


def test_from_a_thread_while_another_asks_something_hard():
    hard = threading.Thread(target=lambda: worker.ask("7", HARD, far()))
    hard.start()
    assert worker.ask("x+1", "1+x", far()) == worker.EQUAL
    hard.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is the point
def test_in_a_forked_child_and_in_its_parent():
    assert asked(0)
    child = os.fork()
    if child == 0:
        os._exit(0 if prepare(300) and asked(1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert asked(2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inside_a_pool_of_processes():
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        assert pool.submit(prepare, 300).result()
        assert pool.submit(asked, 0).result()


SCRIPT = """
from casebook.cases.math import verify, worker
assert verify.prepare(300)
print(verify.equivalent("x+1", "1+x"), worker._pool._parents[0]._child.pid)
"""


@pytest.mark.parametrize("way", ["-c", "-"])
def test_without_a_main_file_silently_and_leaving_no_process(way):
    arguments, text = (["-c", SCRIPT], None) if way == "-c" else (["-"], SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", *arguments],
        input=text,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    verdict, pid = done.stdout.split()
    assert verdict == "True"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_a_missing_library_is_a_sentence(monkeypatch, forgotten):
    monkeypatch.setattr(worker, "_pool", worker.Pool())
    monkeypatch.setattr(worker.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CasebookError, match="math-verify is not installed"):
        equivalent("x+1", "1+x")
    with pytest.raises(CasebookError, match="math-verify is not installed"):
        prepare()


# The real problems


@pytest.fixture(scope="module")
def math500():
    if not problem_sets.available("math500"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with MATH-500")
    return problem_sets.read("math500", "test")


def test_the_last_box_of_every_reference_solution_is_its_answer(math500):
    wrong = [
        row.unique_id
        for row in math500.itertuples()
        if (last_boxed(row.solution) or "").strip() != row.answer.strip()
    ]
    assert wrong == []


def test_every_reference_solution_is_equivalent_to_its_answer(math500):
    wrong = [
        row.unique_id for row in math500.itertuples() if not equivalent(row.solution, row.answer)
    ]
    assert wrong == []


def test_no_reference_answer_is_another_problems_plain_number(math500):
    numbers = sorted({answer for answer in math500["answer"] if answer.isdigit()}, key=int)
    pairs = [(a, b) for a in numbers for b in numbers if a != b]
    assert [pair for pair in pairs if equivalent(*pair)] == []
