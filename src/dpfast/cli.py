"""The command line: ``dpfast demo``, ``new``, ``check``, ``plan``, ``fit``, ``ledger`` and ``audit``."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfast import registry
from dpfast._arguments import nearest
from dpfast._documents import printed
from dpfast.ledger import BudgetExceeded
from dpfast.ledger import command as ledger_command
from dpfast.privacy import Privacy

# Sizes, as users call them.
_SHORT = {"n": "rows", "n_features": "features", "n_outcomes": "outcomes", "n_subsample": "subsample"}
# What decides no error, or is given elsewhere.
_NOT_PLANNED = {"epsilon", "delta", "random_state", "n_threads", "ledger"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those the process was started with.

    Returns
    -------
    int
        0 if it went well, 1 if an audit caught a mechanism above its claim or for anything unexpected, 2 for unusable
        arguments, jobs or tables, 3 if a budget has too little left, 130 if interrupted, 143 if terminated.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser(arguments).parse_args(arguments)
    try:
        with warnings.catch_warnings():
            # A line, as errors are: which line of Python warned is nothing to those who run a command.
            warnings.showwarning = lambda message, *_: print(
                f"dpfast {options.command}: {printed(str(message))}", file=sys.stderr
            )
            status = int(options.run(options))
            # What could not be written is noticed here, and not when the interpreter ends.
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # Whoever read has enough, as `head` has; the rest goes nowhere. The code is that of the signal.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as stop:
        # Of jobs, which are not imported for other commands.
        print(f"dpfast {options.command}: {getattr(stop, 'said', 'interrupted')}", file=sys.stderr)
        return int(getattr(stop, "status", 130))
    except Exception as error:
        if getattr(options, "debug", False):
            raise
        status, message = _failure(error, traced=hasattr(options, "debug"))
        print(f"dpfast {options.command}: {' '.join(printed(message).split())}", file=sys.stderr)
        return status


def _failure(error: Exception, *, traced: bool) -> tuple[int, str]:
    """Return the exit code and the line that belong to an error."""
    match error:
        case BudgetExceeded():
            return 3, str(error)
        case OSError(strerror=str() as problem, filename=str() | Path() as name):
            return 2, f"{problem}: {str(name)!r}"
        case ValueError() | TypeError() | OSError() | ImportError():
            return 2, str(error)
    # Its message may be another library's, and quote data.
    shown = "; --debug shows where (a traceback may quote data)" if traced else ", a defect of dpfast: please report it"
    return 1, f"unexpected {type(error).__name__}{shown}"


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpfast",
        description="Differentially private estimators.",
        epilog="Exit codes: 0 done, 1 unexpected or caught by an audit, 2 unusable arguments, job or table, "
        "3 too little left of a budget, 130 interrupted, 143 terminated.",
    )
    parser.add_argument("--version", action=_Version)
    parser.set_defaults(run=lambda _: _help(parser))
    commands = parser.add_subparsers(dest="command", metavar="command")

    demo = commands.add_parser("demo", help="compare every estimator with its non-private fit, in a few seconds")
    demo.add_argument(
        "--output", type=Path, default=Path("dpfast-demo"), metavar="DIR", help="where files go (default: dpfast-demo)"
    )
    demo.set_defaults(run=_demo)

    fit = commands.add_parser("fit", help="run a job: a TOML file with table, bounds, estimator, budget and outputs")
    fit.add_argument("job", type=Path, metavar="JOB.toml", help="written by `dpfast new`, and filled in")
    fit.add_argument("--force", action="store_true", help="make and pay for a new release, and replace the outputs")
    fit.add_argument("--quiet", action="store_true", help="no progress bar")
    fit.add_argument("--debug", action="store_true", help="show the traceback of an error, which may quote data")
    fit.set_defaults(run=_fit)

    new = commands.add_parser("new", help="write a job to fill in, with every key explained")
    new.add_argument("kind", nargs="?", metavar="FAMILY", help="the kind of job; without it, all kinds are listed")
    new.add_argument("--output", type=Path, metavar="JOB.toml", help="where to write it (default: standard output)")
    new.add_argument("--schema", action="store_true", help="print the JSON schema of jobs instead, for editors")
    new.set_defaults(run=_new)

    check = commands.add_parser("check", help="check a job without reading rows: keys, files, bounds, budget")
    check.add_argument("job", type=Path, metavar="JOB.toml", help="written by `dpfast new`, and filled in")
    check.set_defaults(run=_check)

    plan = commands.add_parser(
        "plan",
        help="compute the expected error and the people needed, from public numbers",
        usage="dpfast plan JOB.toml [--people N] [--target ERROR], or dpfast plan --estimator NAME --delta DELTA ...",
    )
    of_job = arguments[:1] == ["plan"] and len(arguments) > 1 and not arguments[1].startswith("-")
    if of_job:
        plan.add_argument("job", type=Path, metavar="JOB.toml", help="its data is not read, and need not exist")
        plan.add_argument("--people", type=int, metavar="N", help="number of people (default: as many as needed)")
        plan.add_argument("--target", type=float, metavar="ERROR", help="the error for which people needed are counted")
        plan.set_defaults(run=_plan_job)
    else:
        _add_privacy(plan, delta=None)
        _add_estimator(plan, arguments if "plan" in arguments[:1] else ())
        plan.set_defaults(run=_plan)

    ledger_command.add(commands)

    audit = commands.add_parser(
        "audit", help="attack every mechanism, and some broken ones; compare claims with findings"
    )
    audit.add_argument(
        "--thorough",
        action="store_true",
        help="attack every claim, with both kinds of noise and both adjacencies, by 400 outputs (minutes)",
    )
    audit.add_argument(
        "--runs", type=int, help="outputs drawn for each of two tables (default: 100, or 400 with --thorough)"
    )
    audit.add_argument("--mechanism", metavar="TEXT", help="only mechanisms with this in their names, every claim")
    audit.add_argument(
        "--json", nargs="?", type=Path, const=Path("-"), metavar="FILE", help="findings as JSON (default: printed)"
    )
    _add_privacy(audit, delta=1e-5)
    audit.set_defaults(run=_audit)
    return parser


class _Version(argparse.Action):
    """Print the version, which is looked up on request."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"dpfast {version('dpfast')}")
        parser.exit()


def _add_privacy(parser: argparse.ArgumentParser, delta: float | None) -> None:
    parser.add_argument("--epsilon", type=float, default=1.0, metavar="E", help="of the guarantee (default: 1)")
    said = "of the guarantee: at most one in the number of people" if delta is None else f"(default: {delta:g})"
    parser.add_argument("--delta", type=float, default=delta, required=delta is None, metavar="D", help=said)


def _add_estimator(plan: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the choice of an estimator, and the inputs of the chosen one's plan."""
    choice, known = argparse.ArgumentParser(plan.prog, add_help=False, allow_abbrev=False), registry.ESTIMATORS
    names = f"{', '.join(known)} (default: MultiOutcomeRidge), of which --help shows the arguments"
    for parser in (choice, plan):
        parser.add_argument("--estimator", choices=known, default="MultiOutcomeRidge", metavar="NAME", help=names)
    if not arguments:
        return
    from dpfast._arguments import entries

    estimator = registry.estimator(choice.parse_known_args(arguments)[0].estimator)
    said = entries(estimator.__doc__ or "") | entries(estimator.plan.__doc__ or "")
    requested = inspect.signature(estimator.plan).parameters | inspect.signature(estimator).parameters
    for name, parameter in requested.items():
        if parameter.kind is not parameter.VAR_KEYWORD and name not in _NOT_PLANNED:
            flags = dict.fromkeys(f"--{key.replace('_', '-')}" for key in (_SHORT.get(name, name), name))
            required = parameter.default is parameter.empty
            meaning = _first_sentence(said.get(name, "")) + " (required)" * required
            options: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "required": required}
            plan.add_argument(*flags, type=_value, metavar="VALUE", help=meaning, **options)


def _first_sentence(entry: str) -> str:
    """Return the first sentence of a docstring's entry, as plain text."""
    text = re.sub(r"\*\*(\w+(?: \w+)*)\*\*", r"\1", " ".join(entry.partition("\n")[2].split()))
    text = re.sub(r"`|(?<=\])_", "", text)
    return re.split(r"(?<=[a-z\d)\"])\. (?=[A-Z\"])", text, maxsplit=1)[0].removesuffix(".").replace("%", "%%")


def _value(text: str) -> Any:
    """Return a number, a list or a tuple as Python writes it; anything else as text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _help(parser: argparse.ArgumentParser) -> int:
    parser.print_help(sys.stderr)
    return 2


def _demo(options: argparse.Namespace) -> int:
    from dpfast.demo import run

    run(options.output)
    return 0


def _fit(options: argparse.Namespace) -> int:
    from dpfast.jobs import OutputError, run

    try:
        print(run(options.job, force=options.force, progress=not options.quiet))
    except OutputError as error:
        print(f"dpfast fit: {error}", file=sys.stderr)
        return 1
    return 0


def _new(options: argparse.Namespace) -> int:
    from dpfast.jobs.job_types import kinds, schema, template

    known = kinds()
    if options.kind is None and not options.schema:
        width = max(map(len, known))
        for name, kind in known.items():
            print(f"{name:{width}}  {kind.summary.removeprefix('Differentially private ')}")
        return 0
    chosen = list(known.values()) if options.kind is None else [known[_named(options.kind, known)]]
    text = json.dumps(schema(chosen), indent=1) + "\n" if options.schema else template(chosen[0])
    if options.output is None:
        print(text, end="")
        return 0
    with options.output.open("x", encoding="utf-8") as file:
        file.write(text)
    return 0


def _named(name: str, known: Mapping[str, Any]) -> str:
    """Return the kind of job by its name, or by the name of its estimator."""
    names = {kind.ESTIMATOR.__name__: key for key, kind in known.items()} | {key: key for key in known}
    if name not in names:
        raise ValueError(f"there is no family {name!r}; {nearest(name, names) or ', '.join(known)}")
    return names[name]


def _check(options: argparse.Namespace) -> int:
    from dpfast.jobs import check

    print(check(options.job))
    return 0


def _plan_job(options: argparse.Namespace) -> int:
    from dpfast.jobs import plan

    print(plan(options.job, options.people, options.target))
    return 0


def _plan(options: argparse.Namespace) -> int:
    given = {name: value for name, value in vars(options).items() if name not in ("command", "run", "estimator")}
    print(registry.estimator(options.estimator).plan(**given))
    return 0


def _audit(options: argparse.Namespace) -> int:
    from dpfast.audit import report

    chosen = {name: getattr(options, name) for name in ("runs", "mechanism", "thorough")}
    findings = report.run(Privacy(options.epsilon, options.delta), document=options.json, **chosen)
    return int(not all(finding.expected for finding in findings))
