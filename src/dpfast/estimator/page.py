"""Notebook view of an estimator: its parameters and the cost of a fit, or its spending and releases.

All of it is public: parameters are the analyst's own, and the rest is said of releases. A seed is not shown, as whoever
has it can take the noise off.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from dpfast._html import Fact, card, caution, facts, folded, section, shortened
from dpfast.ledger import Ledger, Release
from dpfast.ledger.release import guarantee_html, guarantee_of, releases_html
from dpfast.privacy import Privacy
from dpfast.privacy.guarantee import NEIGHBOURS, plain_words

# What the page says elsewhere.
_SAID = ("epsilon", "delta", "adjacency", "ledger")


def page_of(model: Any) -> str:
    """Return the page of an estimator, fitted or not."""
    fitted = hasattr(model, "releases_")
    body = [spent_html(model.releases_, model.privacy_spent_)] if fitted else [*_cost(model)]
    ledger = model.ledger
    if isinstance(ledger, Ledger):
        left = ledger.remaining
        body.append(facts([("left in its ledger", f"epsilon {left.epsilon:.6g}, delta {left.delta:.6g}")]))
    if fitted:
        body.append(section("Releases", releases_html(model.releases_)))
    parameters = facts(_parameters(model))
    body.append(folded("Parameters", parameters) if fitted else section("Parameters", parameters))
    state = "not fitted" if not fitted else "fitted" if model._is_solved else "paid for and not solved: call complete()"
    return card(f"{type(model).__name__}, {state}", *body)


def spent_html(releases: Sequence[Release], privacy: Privacy) -> str:
    """State the joint cost of releases, and their guarantee."""
    kept = guarantee_of(releases, privacy) == str(privacy)
    said = [("spent", privacy), ("neighbours", NEIGHBOURS[privacy.adjacency])]
    return (
        facts([*said, ("meaning", plain_words(privacy))]) if kept else facts(said) + guarantee_html(releases, privacy)
    )


def _cost(model: Any) -> Iterator[str]:
    """State the cost of a fit, if a fit accepts the parameters."""
    try:
        privacy, mu = model._cost()
    except (TypeError, ValueError) as error:
        yield caution(f"A fit will be refused: {error}")
        return
    composed = None if mu is None else f"as mu = {mu:.4g} of Gaussian noise"
    rows: list[Fact] = [
        ("a fit costs", privacy),
        ("neighbours", NEIGHBOURS[privacy.adjacency]),
        ("meaning", plain_words(privacy)),
        ("adds up", composed),
    ]
    yield facts(rows)
    if model.random_state is not None:
        yield caution("Noise will come from a seed: what is released has no guarantee, for anybody.")


def _parameters(model: Any) -> Iterator[Fact]:
    """Yield parameters as Python shows them, first those that are not at their default."""
    defaults = {name: one.default for name, one in inspect.signature(type(model)).parameters.items()}
    parameters = {name: one for name, one in model.get_params(deep=False).items() if name not in _SAID}
    for name in sorted(parameters, key=lambda name: parameters[name] is defaults[name]):
        value = parameters[name]
        shown = shortened(str(getattr(value, "__name__", None) or repr(value)))
        if name == "random_state" and value is not None:
            shown = "given, not shown"
        yield name, f"{shown} (default)" if value is defaults[name] else shown
