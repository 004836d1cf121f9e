"""The first page of a job's report, for those who answer for the data: in plain words, made of public numbers only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from dpfast.jobs.report import Part
from dpfast.jobs.specification import Job
from dpfast.ledger import Release
from dpfast.ledger.release import guarantee_of
from dpfast.ledger.report import IF_BEFOREHAND
from dpfast.privacy.guarantee import NEIGHBOURS, UNITS, plain_words

_NOT_PROMISED = (
    "what is true of people in general, such as that a treatment works, can be concluded of anybody, also of those who "
    "are not in the table"
)


def first_page(job: Job, model: Any) -> list[Part]:
    """Return the promise, its recipients, the spending, the computations, and the facts that could void the promise."""
    ledger = model.ledger
    kept = guarantee_of(model.releases_, model.privacy_spent_) == str(model.privacy_spent_)
    promise = plain_words(model.privacy_spent_) if kept else "nothing: see what could void it"
    promised = [
        ("what", promise),
        ("to whom", f"everybody who is in the table; {UNITS[ledger.unit or job.unit]}"),
        ("compared with", f"a table in which {NEIGHBOURS[job.budget.adjacency]}"),
        ("not promised", _NOT_PROMISED),
    ]
    spent = [
        ("by this job", str(model.privacy_spent_)),
        ("by all computations so far", f"{ledger.spent}: at the delta of the budget, and {IF_BEFOREHAND}"),
        ("of a budget of", str(ledger.budget)),
        ("all that may be spent promises", plain_words(ledger.promised)),
    ]
    computations = {"computations": _computations(ledger.releases)}
    return [
        Part("What was promised", promised),
        Part("What was spent", spent, tables=computations),
        Part("What could void it", list(_voids(job, model))),
    ]


def _computations(releases: tuple[Release, ...]) -> dict[str, list[Any]]:
    """Return the computations that released something, in their order: releases of one kind after one another."""
    grouped = [list(group) for _, group in groupby(releases, key=lambda one: one.name.partition(":")[0])]
    return {
        "computation": [group[0].name.partition(":")[0] for group in grouped],
        "releases": [len(group) for group in grouped],
        "first": [group[0].time for group in grouped],
        "last": [group[-1].time for group in grouped],
    }


def _voids(job: Job, model: Any) -> Iterator[tuple[str, str]]:
    """Yield the assumptions of a promise that no computer can check, and the facts by now against it."""
    if any(one.reproducible for one in model.releases_):
        yield "voided", "the noise came from a seed: whoever has it can take the noise off"
    if not all(one.guaranteed for one in model.releases_):
        yield "not reached", "the printed algorithm that was asked for does not give what is printed with it"
    yield "looking first", "limits, bounds, levels and constants of the job that somebody read from these records"
    if job.ledger_path is None:
        yield "other computations", "this job has a ledger of its own: what others release of these people adds to it"
    else:
        here = repr(job.ledger_path.name)
        yield "other computations", f"what is released of these people and is not in the ledger {here}"
    if job.unit == "row":
        yield "several rows of a person", "who has several rows in the table is promised less, the more there are"
    yield "a seen computer", "whoever sees the table, the memory or the temporary files of the computer that ran this"
    yield "predictions", "published predictions for people of the table: each tells of the record it is computed from"
