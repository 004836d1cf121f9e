"""The audit as it is printed, and as JSON.

The document is an object of these members:

- ``schema``: "dpfast-audit/1"; the number changes when a member changes its meaning or goes;
- ``version``: of dpfast;
- ``claim``: the epsilon and delta requested, at which our own mechanisms were attacked;
- ``confidence``: joint confidence of all lower bounds, and of all judgements of forms of noise;
- ``complete``: whether every available attack was run;
- ``expected``: whether every sound claim held and every broken one was caught: the exit code is 0 if so;
- ``findings``: a list of objects, with the members below.

A finding has these members:

- ``mechanism``: a unique name;
- ``epsilon``, ``delta`` and ``adjacency``: the claim;
- ``found``: a lower bound on epsilon at that delta, null if it is infinite;
- ``attainable``: the largest bound possible on these tables with noise as recorded, null if the noise is private or
  unknown;
- ``share``: the part of the claim found;
- ``fits``: whether noise has the stated form;
- ``broken``, ``expected``, and ``verdict`` in words;
- ``defect``: the flaw of a mechanism of the literature, "" for a claim that must hold;
- ``runs``: outputs on either table;
- ``seconds``.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from dpfast import audit
from dpfast._optional import optional
from dpfast.attack import Attack, Finding
from dpfast.privacy import Privacy

#: Joint confidence of all bounds and of all judgements of forms.
_CONFIDENCE = 0.999
_RUNS = {False: 100, True: 400}


def run(
    privacy: Privacy,
    *,
    runs: int | None = None,
    mechanism: str | None = None,
    thorough: bool = False,
    document: Path | None = None,
) -> list[Finding]:
    """Attack every mechanism once, or with `thorough` under every claim, and print or write the findings.

    Parameters
    ----------
    privacy : Privacy
        As for `all_attacks`.
    runs : int, optional
        Outputs on either table.
    mechanism : str, optional
        Part of the names of the mechanisms to attack, under every claim.
    thorough : bool, default False
        Whether to attack under every claim.
    document : Path, optional
        File to write the JSON to, or "-" to print it instead of the table.
    """
    runs = _RUNS[thorough] if runs is None else runs
    if runs < 100:
        raise ValueError(f"--runs must be at least 100, got {runs}")
    if privacy.delta == 0.0 or math.isinf(privacy.epsilon):
        raise ValueError("--epsilon must be finite and --delta above 0: claims of delta 0 are attacked beside those")
    printed = document == Path("-")
    if document is not None and not document.parent.is_dir():
        raise ValueError(f"--json must name a file in a folder that is there, got {str(document)!r}")
    with warnings.catch_warnings():
        # Warnings that the answer is mostly noise are expected here.
        warnings.simplefilter("ignore")
        ours = list(audit.all_attacks(privacy))
    everything = [*ours, *audit.broken_attacks()]
    chosen = everything if thorough or mechanism else [*audit.one_claim_each(ours), *everything[len(ours) :]]
    chosen = [attack for attack in chosen if mechanism is None or mechanism in attack.name]
    if not chosen:
        raise ValueError(f"--mechanism must be part of a name that `dpfast audit` prints, got {mechanism!r}")
    # Joint error: each bound, and each judgement of a form of noise, has its part of one in a thousand.
    error = (1.0 - _CONFIDENCE) / (2.0 * len(everything))
    findings = list(_shown(chosen, runs, error, table=not printed))
    if document is not None:
        text = json.dumps(_document(privacy, findings, complete=len(chosen) == len(everything)), indent=2)
        if printed:
            print(text)
        else:
            document.write_text(f"{text}\n", encoding="utf-8")
    if not printed:
        _conclude(findings, len(everything))
    for is_known, said in (
        (False, "More privacy is lost than claimed, or noise is of another form, by"),
        (True, "Known to be broken, and not caught"),
    ):
        names = [one.name for one in findings if not one.expected and bool(one.defect) == is_known]
        if names:
            print(f"{said}: {'; '.join(names)}", file=sys.stderr)
    return findings


def _document(privacy: Privacy, findings: Sequence[Finding], *, complete: bool) -> dict[str, object]:
    return {
        "schema": "dpfast-audit/1",
        "version": version("dpfast"),
        "claim": {"epsilon": privacy.epsilon, "delta": privacy.delta},
        "confidence": _CONFIDENCE,
        "complete": complete,
        "expected": all(finding.expected for finding in findings),
        "findings": [finding.to_dict() for finding in findings],
    }


def _shown(attacks: Sequence[Attack], runs: int, error: float, *, table: bool) -> Iterator[Finding]:
    """Run attacks, print a line for each, and show the number left on a terminal."""
    width = max(len(attack.name) for attack in attacks)
    for attack, say in _progress(attacks):
        if table and attack is attacks[0]:
            say(f"{'mechanism':{width}} {'epsilon':>7} {'delta':>7} {'found':>6} {'share':>6} {'runs':>7} verdict")
        finding = attack.run(runs, error)
        if table:
            claim = f"{finding.privacy.epsilon:7.3f} {finding.privacy.delta:7.0e}"
            found = f"{finding.epsilon:6.3f} {finding.share:6.0%} {finding.runs:7d}"
            form = "" if finding.fits else ", noise of another form"
            say(f"{finding.name:{width}} {claim} {found} {finding.verdict}{form}")
        yield finding


def _progress(attacks: Sequence[Attack]) -> Iterator[tuple[Attack, Callable[[str], object]]]:
    """Yield attacks, each with a function that prints a line; on a terminal it prints above the progress bar."""
    if find_spec("tqdm") is None or not sys.stderr.isatty():
        for attack in attacks:
            yield attack, lambda line: print(line, flush=True)
        return
    with optional("tqdm", "a progress bar").tqdm(attacks, desc="attacks", unit="", leave=False) as bar:
        for attack in bar:
            yield attack, bar.write


def _conclude(findings: Sequence[Finding], everything: int) -> None:
    print("'found' is a lower bound on epsilon at this delta: with 99.9% confidence all of them at once are.")
    for defect, names in _defects(findings).items():
        print(f"  {'; '.join(names)}: {defect}")
    sound = [not finding.broken for finding in findings if not finding.defect]
    known = [finding.broken for finding in findings if finding.defect]
    said = [f"{sum(sound)} of {len(sound)} claims hold"] if sound else []
    said += [f"{sum(known)} of {len(known)} known to be broken are caught"] if known else []
    print(f"{', '.join(said)}; {sum(finding.seconds for finding in findings):.0f} seconds.")
    if len(findings) < everything:
        print(f"There are {everything} attacks in all: --thorough runs every one.")


def _defects(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """Return the defects of mechanisms known to be broken, with the names of these mechanisms."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        if finding.defect:
            found.setdefault(finding.defect, []).append(finding.name.removesuffix(f", {finding.privacy.adjacency}"))
    return found
