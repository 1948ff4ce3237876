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
from hypothesis import given, settings
from hypothesis import strategies as st

from casebook import CasebookError
from casebook.cases.math import verify, worker
from casebook.cases.math.studies.verifiers import HOSTILE
from casebook.cases.math.verify import POLICIES, answer_of, equivalent, last_boxed, prepare
from casebook.records import problems


@pytest.fixture(scope="module", autouse=True)
def workers():
    """Workers that have started, and time: no verdict here depends on how busy the machine is."""
    pytest.importorskip("math_verify")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "TIMEOUT", 300.0)
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
        (r"\boxed{2} or \boxed{3}", "2, 3"),
        (r"\boxed{1\frac12} or \boxed{\frac32}", r"\frac32"),
        (r"\boxed{3} is wrong, it is \boxed{4}", "4"),
        (r"\boxed{\boxed{7}}", "7"),
    ],
)
def test_the_answer_a_completion_gives(text, answer):
    assert answer_of(text) == answer


@pytest.mark.parametrize("text", ["", "   ", "I do not know", "costs $5", r"\(open", None, 3.0])
def test_no_answer(text):
    assert answer_of(text) is None


# Policies: what is the same (True) and what is not, for each

CASES = {
    "no box": [
        ("the answer is 7.", "7", True),
        ("We get $x = 7$ from the first line.", "7", True),
        ("7", "$7$", True),
        ("We get $x = 8$ and then $y = 7$ from it.", "8", False),
        ("I cannot say", "7", False),
    ],
    "several boxes": [
        (r"\boxed{3}. No: \boxed{4}.", "4", True),
        (r"\boxed{3}. No: \boxed{4}.", "3", False),
        (r"\boxed{3} and \boxed{4}", "4, 3", True),
        (r"\boxed{3} and \boxed{4}", "4", False),
    ],
    "equation": [
        ("x = 5", "5", True),
        ("5", "x=5", True),
        ("y = 2x + 3", "2x+3", True),
        ("2x - y + 3 = 0", "y = 2x + 3", True),
        ("x = 5", "y = 5", False),
        ("x = 5", "6", False),
        ("3x - y = 0", "0", False),
        ("y = 2x + 3", "x = 2y + 3", False),
    ],
    "chain": [
        ("3+4=7", "7", True),
        (r"x = \frac{6}{8} = \frac{3}{4}", "0.75", True),
        ("3+4=7", "3", False),
        ("3+4=8", "7", False),
    ],
    "value": [("3+4", "7", True), ("2^{10}", "1024", True), ("3+4", "8", False)],
    "rounding": [
        ("0.333333", r"\frac{1}{3}", True),
        ("1.41421356", r"\sqrt{2}", True),
        ("0.50", "0.5", True),
        ("0.33", r"\frac{1}{3}", False),
        ("3.14", r"\pi", False),
        ("0.0000583", "0.0000582", False),
        ("1.0000001", "1", False),
    ],
    "percent": [
        (r"50\%", "50", True),
        ("50%", "0.5", True),
        (r"\frac12", r"50\%", True),
        ("20 percent", r"20\%", True),
        ("50", "0.5", False),
        (r"50\%", "5", False),
        (r"0.5\%", r"50\%", False),
    ],
    "units": [
        (r"5 \text{ cm}", "5", True),
        ("5", r"5\mbox{ cm}^2", True),
        ("12 inches", r"12 \text{ in}", True),
        (r"30^\circ", "30 degrees", True),
        (r"5 \text{ cm}", r"5 \text{ m}", False),
        ("3 hours", "3 minutes", False),
        (r"15 \text{ cm}", r"15 \text{ cm}^2", False),
        ("5x", "5", False),
    ],
    "money": [
        (r"\$5.00", "5", True),
        (r"\$36", "36 dollars", True),
        ("€20", "20", True),
        (r"\$5", r"5 \text{ cents}", False),
        (r"\$5", "500", False),
    ],
    "thousands": [
        ("1,000", "1000", True),
        (r"10\,000", "10{,}000", True),
        (r"20,\!160", "20160", True),
        ("1,000", "(1, 0)", False),
        ("1,000", "1", False),
        ("1, 000", "1000", False),
        ("1,2/3", "4", False),
    ],
    "list": [
        ("1, 2", "2,1", True),
        ("1 and 2", "1, 2", True),
        (r"x=1 \text{ or } x=2", "2, 1", True),
        (r"1 \pm \sqrt{2}", r"1-\sqrt2, 1+\sqrt2", True),
        ("1, 2", "1, 2, 3", False),
        ("1, 1", "1, 2", False),
        (r"\pm 3", "3", False),
        ("a=1, b=2", "a=2, b=1", False),
    ],
    "tuple": [
        ("(1, 2)", "(1,2)", True),
        ("1, 2", "(1, 2)", True),
        ("x = 1, y = 2", "(1, 2)", True),
        ("(2, 1)", "(1, 2)", False),
        ("2, 1", "(1, 2)", False),
        ("(1, 2)", "(1, 2, 3)", False),
    ],
    "set": [
        (r"\{2, 1\}", r"\{1, 2\}", True),
        ("1, 2", r"\{1, 2\}", True),
        (r"\{1 \pm \sqrt5\}", r"\{1-\sqrt5, 1+\sqrt5\}", True),
        ("(1, 2)", r"\{1, 2\}", False),
        (r"\{1, 2\}", r"\{1, 3\}", False),
        (r"\emptyset", r"\{0\}", False),
    ],
    "interval": [
        (r"x \in [1, 2]", "[1, 2]", True),
        (r"1 \le x \le 2", "[1,2]", True),
        ("x > 2", r"(2, \infty)", True),
        (r"(3, 4) \cup (0, 1)", r"(0,1) \cup (3,4)", True),
        ("[1, 2)", "[1, 2]", False),
        ("(1, 2)", "[1, 2]", False),
        ("x > 2", r"x \ge 2", False),
        (r"(0,8) \cup (8,35)", "(0, 35)", False),
    ],
    "matrix": [
        (
            r"\begin{bmatrix} 1 \\ 1/2 \end{bmatrix}",
            r"\begin{pmatrix} 1 \\ 0.5 \end{pmatrix}",
            True,
        ),
        (
            r"\begin{pmatrix} 1 & 2 \end{pmatrix}",
            r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            False,
        ),
        (
            r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}",
            r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            False,
        ),
    ],
    "base": [
        ("101_2", "101_{2}", True),
        ("101", "101_2", True),
        (r"302_{\text{five}}", "302_5", True),
        ("101_2", "101_3", False),
        ("5", "101_2", False),
    ],
    "choice": [
        (r"\text{(A)}", "A", True),
        ("A.", "(A)", True),
        (r"\text{(A) } 12", "A", True),
        ("(A)", "(B)", False),
        ("(A)", "12", False),
    ],
    "words": [
        ("Marigold", r"\text{Marigold}", True),
        ("EAST.", r"\text{east}", True),
        ("an ellipse", r"\text{ellipse}", True),
        (r"\text{not even}", r"\text{even}", False),
        ("odd", "even", False),
        ("west", r"\text{east}", False),
    ],
    "time": [
        ("10:30", "10:30", True),
        ("2:4", "1:2", True),
        ("3:2", r"\frac{3}{2}", True),
        ("12:15", "2:15", False),
        ("10:30", "10:03", False),
        ("2:3", "3:2", False),
    ],
}


def test_every_policy_has_cases_on_both_sides():
    assert set(CASES) == set(POLICIES)
    for cases in CASES.values():
        assert {same for *_, same in cases} == {True, False}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_decides_its_cases(policy):
    wrong = [case for case in CASES[policy] if equivalent(case[0], case[1]) != case[2]]
    assert wrong == []


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
    long = "1" * (verify.LONGEST + 1)
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

HARD = r"\int_0^1 \int_0^1 e^{-x^2 y^2}\sin(xy) \, dx \, dy"
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


def test_an_answer_that_comes_late_is_not_taken_for_the_next_one():
    pool = worker.Pool(size=1)
    assert pool.ask("x+1", "1+x", far()) == worker.EQUAL
    assert pool.ask("7", HARD, time.monotonic() + 0.01) is None
    assert pool.ask("x+1", "1+x", far()) == worker.EQUAL
    pool._end_all(pool._parents)


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
    if not problems.available("math500"):
        pytest.skip("CASEBOOK_DATA_DIR names no folder with MATH-500")
    return problems.read("math500", "test")


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
