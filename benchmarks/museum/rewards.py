"""Published reward functions, rebuilt from how they behave: those with a known fault come first.

Each follows TRL's signature, takes a completion as text or as messages, and does what the published
one does to it; `museum.yaml` says where it comes from and what is wrong with it. None is an example
to follow, except for the sound ones at the end.
"""

import ast
import json
import math
import operator
import re
import string
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from math_verify import LatexExtractionConfig, parse, verify


def text(completion):
    """The reply's text: TRL gives a string, or a list of messages of which the last counts."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


def each(score, completions, *columns):
    """`score(reply, values of the row's columns)` for every completion."""
    return [float(score(text(c), *row)) for c, *row in zip(completions, *columns, strict=True)]


# --- open-r1 ------------------------------------------------------------------------------------


def open_r1_format(completions, **_):
    """Thoughts and answer in tags on lines of their own; `$` also stands at the end of a line."""
    form = re.compile(
        r"<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", re.DOTALL | re.MULTILINE
    )
    return each(lambda t: bool(form.match(t)), completions)


def open_r1_tag_count(completions, **_):
    """A quarter for each of four tags that stands exactly once, wherever it stands."""
    tags = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
    return each(lambda t: sum(0.25 for tag in tags if t.count(tag) == 1), completions)


def open_r1_accuracy(completions, solution, **_):
    """Symbolic comparison with the solution; a solution without LaTeX makes every reply right."""

    def score(reply, gold):
        gold = parse(gold, extraction_config=[LatexExtractionConfig()])
        if not gold:
            return 1.0
        way = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
        return verify(gold, parse(reply, extraction_config=[way]))

    return each(score, completions, solution)


def open_r1_reasoning_steps(completions, **_):
    """A third for each word or bullet that marks a step, at most one."""
    mark = re.compile(r"Step \d+:|^\d+\.|\n[-*]|(?:First|Second|Next|Finally),")
    return each(lambda t: min(1.0, len(mark.findall(t)) / 3), completions)


def open_r1_code_format(completions, **_):
    """Tags as in `open_r1_format`, with a fenced block of Python in the answer."""
    lazy = r"<think>\n.*?\n</think>\n<answer>\n.*?```python.*?```.*?\n</answer>$"
    form = re.compile(lazy, re.DOTALL | re.MULTILINE)
    return each(lambda t: bool(form.match(t)), completions)


def boxed_equals(reply, gold):
    """Whether the reply's box is the gold, by math-verify."""
    way = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)
    return verify(parse(f"${gold}$"), parse(reply, extraction_config=[way]))


def open_r1_cosine(completions, answer, max_len=1000, **_):
    """Right 1 to 0.5 and wrong -1 to -0.5, on a cosine of the length in characters."""

    def score(reply, gold):
        low, high = (0.5, 1.0) if boxed_equals(reply, gold) else (-0.5, -1.0)
        return low + (high - low) * (1 + math.cos(math.pi * len(reply) / max_len)) / 2

    return each(score, completions, answer)


def kimi_length(completions, answer, **_):
    """Half for the shortest of the batch to minus a half for the longest; a wrong one at most 0."""
    sizes = [len(text(c)) for c in completions]
    if min(sizes) == max(sizes):
        return [0.0 for _ in completions]

    def score(reply, gold):
        share = 0.5 - (len(reply) - min(sizes)) / (max(sizes) - min(sizes))
        return share if boxed_equals(reply, gold) else min(0.0, share)

    return each(score, completions, answer)


# --- the GRPO demo, and what grew out of it -----------------------------------------------------


def demo_span(reply):
    """What follows the last opening tag, up to a closing tag if there is one."""
    return reply.split("<answer>")[-1].split("</answer>")[0].strip()


def grpo_demo_correctness(completions, answer, **_):
    """Two for the answer's exact text."""
    return each(lambda t, gold: 2.0 * (demo_span(t) == gold), completions, answer)


def grpo_demo_int(completions, **_):
    """A half where the answer is made of digits."""
    return each(lambda t: 0.5 * demo_span(t).isdigit(), completions)


def grpo_demo_strict_format(completions, **_):
    """A half for tags on lines of their own; the dot does not match a newline."""
    form = re.compile(r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$")
    return each(lambda t: 0.5 * bool(form.match(t)), completions)


def grpo_demo_soft_format(completions, **_):
    """A half for a reply that begins with both blocks; the dot does not match a newline."""
    form = re.compile(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>")
    return each(lambda t: 0.5 * bool(form.match(t)), completions)


def grpo_demo_xmlcount(completions, **_):
    """An eighth a tag that stands once, less a thousandth for a character behind the last tag."""

    def score(reply):
        points = sum(reply.count(tag) == 1 for tag in ("<reasoning>\n", "\n</reasoning>\n")) / 8
        if reply.count("\n<answer>\n") == 1:
            points += 1 / 8 - len(reply.split("\n</answer>\n")[-1]) / 1000
        if reply.count("\n</answer>") == 1:
            points += 1 / 8 - (len(reply.split("\n</answer>")[-1]) - 1) / 1000
        return points

    return each(score, completions)


def writeup_soft_correctness(completions, answer, **_):
    """One where the first run of digits between the tags is the answer; without digits it is 0."""

    def score(reply, gold):
        digits = re.search(r"\d+", demo_span(reply).replace(",", ""))
        return (digits.group() if digits else "0") == gold

    return each(score, completions, answer)


# --- Unsloth's later notebooks ------------------------------------------------------------------

SOLUTION = re.compile(r"</think>.*?<SOLUTION>(.+?)</SOLUTION>\s*$", flags=re.DOTALL | re.MULTILINE)


def unsloth_check_answer(completions, answer, **_):
    """Five for the answer's text, less for one near to it, minus something for one far from it."""

    def score(reply, gold):
        found = SOLUTION.search(reply)
        if not found:
            return -2.0
        guess = found.group(1)
        if guess == gold:
            return 5.0
        if guess.strip() == gold.strip():
            return 3.5
        try:
            ratio = float(guess) / float(gold)
        except (ValueError, ZeroDivisionError):
            return -4.5
        return 2.0 if 0.9 <= ratio <= 1.1 else 1.5 if 0.8 <= ratio <= 1.2 else -2.5

    return each(score, completions, answer)


def unsloth_check_numbers(completions, answer, **_):
    """One and a half where the first digits after the opening tag are the answer's number."""

    def score(reply, gold):
        found = re.search(r"<SOLUTION>.*?([\d.]+)", reply, re.DOTALL)
        try:
            return 1.5 * (float(found.group(1)) == float(gold)) if found else 0.0
        except ValueError:
            return 0.0

    return each(score, completions, answer)


def unsloth_format_approximately(completions, **_):
    """A half for each tag that stands once, minus one for each other."""
    tags = ("</think>", "<SOLUTION>", "</SOLUTION>")
    return each(lambda t: sum(0.5 if t.count(tag) == 1 else -1.0 for tag in tags), completions)


# --- countdown ----------------------------------------------------------------------------------


def evaluated(equation, numbers, goal):
    """Whether the equation uses the numbers and has the value, by Python's own `eval`."""
    if sorted(int(n) for n in re.findall(r"\d+", equation)) != sorted(numbers):
        return False
    if not re.match(r"^[\d+\-*/().\s]+$", equation):
        return False
    try:
        return abs(eval(equation, {"__builtins__": None}, {}) - goal) < 1e-5
    except Exception:  # whatever the model wrote
        return False


def tinyzero_countdown(completions, target, nums, **_):
    """One for an equation that is right, a tenth for anything in the tags; the last line counts."""

    def score(reply, goal, numbers):
        spans = re.findall(r"<answer>(.*?)</answer>", reply.split("\n")[-1])
        if not spans:
            return 0.0
        return 1.0 if evaluated(spans[-1].strip(), numbers, goal) else 0.1

    return each(score, completions, target, nums)


def mini_r1_equation(completions, target, nums, **_):
    """One for an equation that is right, in the first tags that stand on one line."""

    def score(reply, goal, numbers):
        span = re.search(r"<answer>(.*?)</answer>", reply)
        return span is not None and evaluated(span.group(1).strip(), numbers, goal)

    return each(score, completions, target, nums)


def mini_r1_format(completions, **_):
    """Thoughts without another tag of theirs, a newline, the answer's tags, the end."""
    form = re.compile(r"<think>(?:(?!</?think>)[\s\S])*</think>\n<answer>[\s\S]*?</answer>$")
    return each(lambda t: bool(form.match(t)), completions)


# --- verl and its relatives ---------------------------------------------------------------------


def verl_gsm8k_strict(completions, answer, **_):
    """The first number behind four hashes, without its commas, as text."""

    def score(reply, gold):
        found = re.search(r"#### (-?[0-9.,]+)", reply)
        return found is not None and found.group(1).replace(",", "") == gold

    return each(score, completions, answer)


def verl_gsm8k_flexible(completions, answer, **_):
    """The last run of digits, points and commas in the reply, as text."""

    def score(reply, gold):
        runs = [r for r in re.findall(r"-?[0-9.,]+", reply) if r not in ("", ".")]
        return bool(runs) and runs[-1] == gold

    return each(score, completions, answer)


def open_instruct_gsm8k(completions, answer, **_):
    """The last number of the reply as text; a sign is read with a decimal point only."""

    def score(reply, gold):
        found = re.findall(r"[-+]?\d*\.\d+|\d+", re.sub(r"(\d),(\d)", r"\1\2", reply))
        return (found[-1] if found else reply).lower() == gold.lower()

    return each(score, completions, answer)


def simple_grpo_correct(completions, answer, **_):
    """One where the last unsigned number of the reply equals the answer, else minus one."""

    def score(reply, gold):
        found = re.findall(r"\d+\.\d+|\d+/\d+|\d+", reply)
        return 1.0 if found and verify(parse(f"${gold}$"), parse(f"${found[-1]}$")) else -1.0

    return each(score, completions, answer)


def tora_math_equal(completions, answer, **_):
    """The last box; numbers agree within 1e-4 of either, its hundredth or a hundred times it."""

    def score(reply, gold):
        boxes = re.findall(r"\\boxed\{([^{}]*)\}", reply)
        if not boxes:
            return 0.0
        if boxes[-1].strip().lower() == gold.strip().lower():
            return 1.0
        try:
            guess, value = (float(s.replace(",", "").rstrip("%")) for s in (boxes[-1], gold))
        except ValueError:
            return 0.0
        return any(math.isclose(v, guess, rel_tol=1e-4) for v in (value / 100, value, 100 * value))

    return each(score, completions, answer)


def pyrros_boxed(completions, answer, **_):
    """The first box without braces in it, and the solution's digits behind four hashes."""

    def score(reply, gold):
        box = re.search(r"\\boxed\{(.*?)\}", reply)
        value = re.search(r"#### (\d+)", gold)
        return (box.group(1) if box else "") == (value.group(1) if value else "")

    return each(score, completions, answer)


def mindrlhf_accuracy(completions, solution, **_):
    """The last number of the reply beside the first run of digits in the solution."""

    def score(reply, gold):
        numbers = re.findall(r"[-+]?\d*\.\d+|\d+", re.sub(r"(\d),(\d)", r"\1\2", reply))
        return (numbers[-1] if numbers else reply) == re.findall(r"\d+", gold)[0]

    return each(score, completions, solution)


# --- words --------------------------------------------------------------------------------------


def squad(answer):
    """Lower case, without punctuation and articles, single spaces."""
    bare = "".join(c for c in answer.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", bare).split())


def closed_span(reply, tag="answer"):
    """What stands in the last closed pair of tags, or None."""
    spans = re.findall(rf"<{tag}>(.*?)</{tag}>", reply, re.DOTALL)
    return spans[-1].strip() if spans else None


def search_r1_substring(completions, answer, **_):
    """The answer occurs in the last tags, after SQuAD's normalisation."""

    def score(reply, gold):
        span = closed_span(reply)
        return span is not None and squad(gold) in squad(span)

    return each(score, completions, answer)


def visual_rft_classification(completions, answer, **_):
    """The answer occurs in the first tags, or what stands there occurs in the answer."""

    def score(reply, gold):
        span = re.search(r"<answer>(.*?)</answer>", reply)
        guess = (span.group(1) if span else reply).strip()
        guess, gold = (s.replace(" ", "").replace("_", "").lower() for s in (guess, gold))
        return gold in guess or guess in gold

    return each(score, completions, answer)


def r1_v_accuracy(completions, solution, **_):
    """Symbolic comparison of the whole reply; failing that, the text of the first tags."""

    def score(reply, gold):
        try:
            if verify(parse(reply), parse(gold)):
                return 1.0
        except Exception:  # math-verify on free text
            pass
        spans = [re.search(r"<answer>(.*?)</answer>", s) for s in (reply, gold)]
        guess, value = (
            (m.group(1) if m else s).strip() for m, s in zip(spans, (reply, gold), strict=True)
        )
        return guess == value

    return each(score, completions, solution)


def reasoning_gym_decimal(completions, answer, **_):
    """One for the number, a hundredth for any text, and a share where the answer occurs in it."""

    def score(reply, gold):
        guess = closed_span(reply)
        if not guess:
            return 0.0
        guess, gold = guess.replace(",", ""), gold.replace(",", "")
        if gold in guess:
            return len(gold) / len(guess)
        try:
            return 1.0 if Decimal(guess) == Decimal(gold) else 0.01
        except InvalidOperation:
            return 0.01

    return each(score, completions, answer)


def trl_think_format(completions, **_):
    """One pair of thinking tags at the start, and anything behind it."""
    form = re.compile(r"<think>(?!.*<think>).*?</think>", re.DOTALL)
    return each(lambda t: bool(form.match(t)), completions)


# --- sound --------------------------------------------------------------------------------------


def last_tag_exact(completions, answer, **_):
    """The last closed tags hold the answer's text and nothing else."""
    return each(lambda t, gold: closed_span(t) == gold.strip(), completions, answer)


def whole_form(completions, **_):
    """One block of thoughts, one block of answer, neither of them empty, and nothing else."""
    form = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)

    def score(reply):
        found = form.fullmatch(reply)
        once = all(reply.count(t) == 1 for t in ("<think>", "</think>", "<answer>", "</answer>"))
        return found is not None and once and all(part.strip() for part in found.groups())

    return each(score, completions)


def number(written):
    """A plain decimal number as Decimal, commas only between thousands; anything else is None."""
    plain = re.fullmatch(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", written.strip())
    return Decimal(written.strip().replace(",", "")) if plain else None


def hashes_decimal(completions, answer, **_):
    """The line behind the last four hashes is a number, and it is the answer."""

    def score(reply, gold):
        _, found, tail = reply.rpartition("####")
        guess = number(tail.strip().split("\n")[0].rstrip(".").lstrip("$")) if found else None
        return guess is not None and guess == number(gold)

    return each(score, completions, answer)


def last_box(reply):
    """What stands in the last box that is closed, its braces counted."""
    start = reply.rfind("\\boxed{")
    depth, begin = 0, start + len("\\boxed{")
    for i in range(begin, len(reply)) if start >= 0 else ():
        if reply[i] == "}" and depth == 0:
            return reply[begin:i]
        depth += {"{": 1, "}": -1}.get(reply[i], 0)
    return None


def last_box_verified(completions, answer, **_):
    """The last box, whole, is one value and equivalent to the answer."""

    def score(reply, gold):
        box = last_box(reply)
        if box is None or set(box) & set("$=%[]"):
            return False
        return verify(parse(f"$\\boxed{{{gold}}}$"), parse(f"$\\boxed{{{box}}}$"))

    return each(score, completions, answer)


def choice_letter(completions, answer, **_):
    """The last line says `Answer:` and one letter, and it is the right one."""

    def score(reply, gold):
        lines = reply.strip().splitlines()
        found = re.fullmatch(r"Answer: ([A-D])", lines[-1].strip()) if lines else None
        return found is not None and found.group(1) == gold

    return each(score, completions, answer)


def json_call(completions, answer, **_):
    """The last tags hold a JSON object with the same function and the same arguments."""

    def score(reply, gold):
        try:
            call = json.loads(closed_span(reply, "tool_call") or "")
        except (ValueError, RecursionError):
            return False
        same = json.dumps(call, sort_keys=True) == json.dumps(json.loads(gold), sort_keys=True)
        return isinstance(call, dict) and same

    return each(score, completions, answer)


def sorted_list(completions, answer, **_):
    """The last tags hold the numbers in order, separated by commas."""

    def score(reply, gold):
        parts = [number(p) for p in (closed_span(reply) or "").split(",")]
        return None not in parts and parts == [number(p) for p in gold.split(",")]

    return each(score, completions, answer)


OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value(node, used):
    """An expression of whole numbers and the four operators as a Fraction; notes what it used."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value(node.left, used), value(node.right, used))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    raise ValueError("not a sum of whole numbers")


def countdown_parsed(completions, target, nums, **_):
    """The last tags hold an expression of the four operators that uses each number once."""

    def score(reply, goal, numbers):
        used = []
        try:
            result = value(ast.parse((closed_span(reply) or "")[:200], mode="eval").body, used)
        except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
            return False
        return result == goal and sorted(used) == sorted(numbers)

    return each(score, completions, target, nums)


def sudoku_grid(completions, puzzle, **_):
    """The last tags hold a filled 4 by 4 grid that keeps the clues and the rules."""

    def score(reply, clues):
        rows = [line.split() for line in (closed_span(reply) or "").splitlines()]
        if [len(r) for r in rows] != [4] * 4 or any(c not in "1234" for r in rows for c in r):
            return False
        given = [line.split() for line in clues.splitlines()]
        pairs = [p for a, b in zip(given, rows, strict=True) for p in zip(a, b, strict=True)]
        boxes = [[rows[i + k // 2][j + k % 2] for k in range(4)] for i in (0, 2) for j in (0, 2)]
        units = [*rows, *zip(*rows, strict=True), *boxes]
        return all(g in ("_", c) for g, c in pairs) and all(len(set(u)) == 4 for u in units)

    return each(score, completions, puzzle)


def search_r1_exact(completions, answer, **_):
    """The last tags hold the answer, after SQuAD's normalisation."""

    def score(reply, gold):
        span = closed_span(reply)
        return span is not None and squad(span) == squad(gold)

    return each(score, completions, answer)


def knights_and_knaves(completions, answer, **_):
    """The last tags hold one role for each person, a line each, and nothing else."""

    def roles(written):
        lines = [
            re.fullmatch(r"(\w+) is a (knight|knave)\.?", s.strip()) for s in written.splitlines()
        ]
        return None if None in lines else dict(m.groups() for m in lines)

    def score(reply, gold):
        lines = (closed_span(reply) or "").splitlines()
        return len(lines) == len(gold.splitlines()) and roles("\n".join(lines)) == roles(gold)

    return each(score, completions, answer)
