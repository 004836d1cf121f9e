"""``dpfast ledger PATH``: print the costs that a ledger file has spent and holds, and settle those held.

A process that died may have drawn noise under the cost it held, and somebody may have seen the noise. Only the owner
knows. Nothing is therefore settled unless the owner requests it and confirms.
"""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpfast._documents import spelled_out
from dpfast.ledger.ledger import Ledger, Reservation


def add(commands: Any) -> None:
    """Add the command to those of a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ledger", help="show what a ledger has spent and has left, and settle what ended processes hold"
    )
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    settle = parser.add_mutually_exclusive_group()
    settle.add_argument("--forfeit", action="store_true", help="count what ended processes hold as spent")
    settle.add_argument(
        "--give-back",
        action="store_true",
        help="return what ended processes hold: only if nobody can have seen their output",
    )
    parser.add_argument(
        "--reservation",
        type=int,
        metavar="NUMBER",
        help="settle this one only; on other machines and in containers no process counts as ended",
    )
    parser.add_argument("--yes", action="store_true", help="confirm: without it nothing is settled")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show a ledger, or settle held costs."""
    ledger = Ledger.open(options.path)
    if options.forfeit or options.give_back:
        _settle(ledger, options)
    elif options.reservation is not None or options.yes:
        raise ValueError("--reservation and --yes go with --forfeit or --give-back")
    print(json.dumps(spelled_out(described(ledger)), indent=1) if options.json else shown(ledger))
    return 0


def held_by_the_dead(ledger: Ledger) -> str:
    """Describe how much ended processes hold, and what can be done about it; an empty text if they hold nothing."""
    held = ledger.abandoned
    if not held or ledger.path is None:
        return ""
    costs = "; ".join(f"{one.privacy}, since {one.since}" for one in held)
    subject = "a process that has ended still holds" if len(held) == 1 else "processes that have ended still hold"
    return (
        f"{subject} budget ({costs}): 'dpfast ledger {shlex.quote(ledger.path)}' shows it, and counts it as spent "
        "(--forfeit) or, where nothing drawn under it was seen, gives it back (--give-back)"
    )


def shown(ledger: Ledger) -> str:
    """Return the ledger's report, and the costs held with the numbers that settle them."""
    note = held_by_the_dead(ledger)
    return "\n".join([ledger.report(), *map(_held, ledger.reservations), *([note] if note else [])])


def described(ledger: Ledger) -> dict[str, Any]:
    """Return the same report as a dictionary for programs."""
    return {
        "path": ledger.path,
        **{name: asdict(getattr(ledger, name)) for name in ("budget", "spent", "promised", "remaining")},
        "composition": ledger.composition,
        "limits": ledger._limits.to_dict(),
        "unit": ledger.unit,
        "spending": [asdict(one) for one in ledger.spending],
        "entries": [{"number": number} | entry.to_dict() for number, entry in ledger._storage.read().items()],
        "releases": [release.to_dict(values=False) for release in ledger.releases],
        "reservations": [
            asdict(one.privacy)
            | {"number": one.number, "since": one.since, "holder": one.holder, "ended": one.abandoned}
            for one in ledger.reservations
        ],
    }


def _settle(ledger: Ledger, options: argparse.Namespace) -> None:
    chosen = ledger.abandoned
    if options.reservation is not None:
        chosen = tuple(one for one in ledger.reservations if one.number == options.reservation)
        if not chosen:
            raise ValueError(f"--reservation must be the number of one that is held, got {options.reservation}")
    if not options.yes:
        listed = "; ".join(map(_held, chosen)) or "nothing is held by a process that has ended"
        verb = "count as spent" if options.forfeit else "give back"
        raise ValueError(f"nothing was changed: --yes is needed to {verb} {listed}")
    if options.give_back and any(one.drawn for one in chosen):
        drawn = "; ".join(_held(one).strip() for one in chosen if one.drawn)
        raise ValueError(f"nothing was changed: noise was drawn for what can only be forfeited: {drawn}")
    for reservation in chosen:
        if options.forfeit:
            reservation.forfeit()
        else:
            reservation.give_back()


def _held(reservation: Reservation) -> str:
    ended = ", which has ended" if reservation.abandoned else ""
    return f"  held [{reservation.number}]  {reservation.privacy}, by {reservation.holder}{ended}, {reservation.since}"
