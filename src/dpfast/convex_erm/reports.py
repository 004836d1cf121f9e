"""Pictures of a classifier's probabilities, on rows that are declared public by being given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Classes whose curves are told apart in one picture.
_DRAWN = 4


def draw_classes(
    picture: Callable[..., Axes],
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    positive: object,
    options: tuple[Any, str | None, str | None, str | None],
) -> Axes:
    """Draw classes against the rest, on public rows."""
    probabilities, labels, classes = (
        np.asarray(model.predict_proba(X)),
        np.asarray(y).reshape(-1),
        model.classes_.tolist(),
    )
    if len(labels) != len(probabilities):
        raise ValueError(f"y_public must have a label a row, {len(probabilities)}, got {len(labels)}")
    if not np.all(np.isin(labels, model.classes_)):
        raise ValueError("y_public must hold declared classes alone")
    if positive is not None and positive not in classes:
        raise ValueError(f"positive must be one of the classes {classes}, got {positive!r}")
    ax, title, label, unit = options
    if positive is None and len(classes) > _DRAWN:
        true = labels[:, None] == model.classes_
        return picture(true.ravel(), probabilities.ravel(), ax=ax, title=title, label=label, unit=unit)
    shown = [positive] if positive is not None else classes[1:] if len(classes) == 2 else classes
    for one in shown:
        names = [str(name) for name in (label, one if len(shown) > 1 else None) if name is not None]
        mine = probabilities[:, classes.index(one)]
        ax = picture(labels == one, mine, ax=ax, title=title, label=", ".join(names) or None, unit=unit)
    axes: Axes = ax
    return axes
