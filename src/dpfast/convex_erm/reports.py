"""Pictures of a classifier's probabilities, on rows that are declared public by being given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import plotting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Classes whose curves are told apart in one picture.
_DRAWN = 4


class ClassPictures:
    """Calibration and receiver operating characteristic of an estimator that gives classes probabilities."""

    classes_: NDArray[Any]

    @abstractmethod
    def predict_proba(self, X: ArrayLike) -> Any:
        """Probabilities of the classes."""

    def plot_calibration(
        self,
        X_public: ArrayLike,
        y_public: ArrayLike,
        *,
        positive: object = None,
        n_bins: int = 10,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw how often a class came true of public rows that were given a probability of it.

        Privacy: the rows are drawn as they are, and are declared public by being given; of private ones the picture
        would be covered by no guarantee.

        Parameters
        ----------
        X_public : array or DataFrame of shape (n_rows, n_features)
            Public rows.
        y_public : array of shape (n_rows,)
            Their labels.
        positive : label, optional
            The class that is meant. By default the second of two, each of up to four, and of more all together: every
            row then counts for each class.
        n_bins, ax, title, label, unit
            As for `dpfast.plotting.calibration`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Raises
        ------
        ValueError
            If a label, or `positive`, is none of the classes.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import ObjectivePerturbationClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 3))
        >>> y = np.where(X @ [1.0, 0.0, -2.0] > 0.0, "yes", "no")
        >>> model = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=["no", "yes"], random_state=0)
        >>> axes = model.fit(X[:19_000], y[:19_000]).plot_calibration(X[19_000:], y[19_000:], title="Held out")
        >>> axes.get_title()
        'Held out'
        """
        return self._plot_sides(
            partial(plotting.calibration, n_bins=n_bins), X_public, y_public, positive, (ax, title, label, unit)
        )

    def plot_roc(
        self,
        X_public: ArrayLike,
        y_public: ArrayLike,
        *,
        positive: object = None,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw the receiver operating characteristic on public rows.

        Privacy: as for `plot_calibration`, the rows are declared public by being given.

        Parameters
        ----------
        X_public, y_public, positive
            As for `plot_calibration`.
        ax, title, label, unit
            As for `dpfast.plotting.roc`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Raises
        ------
        ValueError
            If a label, or `positive`, is none of the classes, or no row has one that is drawn, or all have.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import ObjectivePerturbationClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 3))
        >>> y = np.where(X @ [1.0, 0.0, -2.0] > 0.0, "yes", "no")
        >>> model = ObjectivePerturbationClassifier(1.0, 1e-6, bound_x=1.0, classes=["no", "yes"], random_state=0)
        >>> model.fit(X[:19_000], y[:19_000]).plot_roc(X[19_000:], y[19_000:]).get_xlabel()
        'false positive rate'
        """
        return self._plot_sides(plotting.roc, X_public, y_public, positive, (ax, title, label, unit))

    def _plot_sides(
        self, picture: Callable[..., Axes], X: ArrayLike, y: ArrayLike, positive: object, options: tuple[Any, ...]
    ) -> Axes:
        """Draw classes against the rest, on public rows."""
        probabilities, labels, classes = (
            np.asarray(self.predict_proba(X)),
            np.asarray(y).reshape(-1),
            self.classes_.tolist(),
        )
        if len(labels) != len(probabilities):
            raise ValueError(f"y_public must have a label a row, {len(probabilities)}, got {len(labels)}")
        if not np.all(np.isin(labels, self.classes_)):
            raise ValueError("y_public must hold declared classes alone")
        if positive is not None and positive not in classes:
            raise ValueError(f"positive must be one of the classes {classes}, got {positive!r}")
        ax, title, label, unit = options
        if positive is None and len(classes) > _DRAWN:
            true = labels[:, None] == self.classes_
            return picture(true.ravel(), probabilities.ravel(), ax=ax, title=title, label=label, unit=unit)
        shown = [positive] if positive is not None else classes[1:] if len(classes) == 2 else classes
        for one in shown:
            names = [str(name) for name in (label, one if len(shown) > 1 else None) if name is not None]
            mine = probabilities[:, classes.index(one)]
            ax = picture(labels == one, mine, ax=ax, title=title, label=", ".join(names) or None, unit=unit)
        axes: Axes = ax
        return axes
