"""Estimators that predict by a linear function of the features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dpfast import _arguments as check
from dpfast import io, plotting
from dpfast._arrays import FloatArray
from dpfast._redacted import suppress_float_warnings
from dpfast.estimator.base import PrivateEstimator
from dpfast.estimator.bounded import rows_to_predict
from dpfast.estimator.representation import outcome_names
from dpfast.io.summaries import Estimates
from dpfast.statistics.rows import RowMap, limits_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

#: What tables call the constant feature.
INTERCEPT = "(intercept)"


class Names(NamedTuple):
    """The names of features and outcomes in files; None for the estimator's names."""

    features: Sequence[Any] | None = None
    sides: Sequence[Any] | None = None


#: Those that the estimator has.
OWN_NAMES = Names()
#: The change of a feature that a coefficient is drawn for.
Per: TypeAlias = Literal["unit", "range"]
#: Ranges that differ so many times are those that coefficients are drawn for.
UNLIKE = 10.0


def explained_shares(
    outcomes: FloatArray, fitted: FloatArray, *, has_intercept: bool, weights: FloatArray | None = None
) -> FloatArray:
    """Return R-squared for each outcome; without an intercept of variances about zero."""
    mean = np.average(outcomes, axis=0, weights=weights) if has_intercept else 0.0
    rest, total = (np.average(off**2, axis=0, weights=weights) for off in (outcomes - fitted, outcomes - mean))
    return np.asarray(1.0 - rest / np.maximum(total, np.finfo(np.float64).tiny))


class LinearEstimator(PrivateEstimator):
    """An estimator with `coef_` and, if it fits one, `intercept_`."""

    coef_: FloatArray
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    outcome_names_in_: NDArray[np.object_]
    box_x_: FloatArray

    @suppress_float_warnings
    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict the outcomes of new rows.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n_rows, n_features)
            Need not be bounded; predictions of private rows are private and not covered by what was released.

        Returns
        -------
        ndarray of shape (n_rows,), or (n_rows, n_outcomes) where there are several
            A frame, if `set_output` requested one.
        """
        return self._presented_outcomes(self._linear(X), X)

    def summary(self) -> DataFrame:
        """Tabulate the coefficients.

        Returns
        -------
        pandas.DataFrame
            A row a feature, below one for the intercept, if there is one, with a first index level ``outcome`` where
            there are several. Column ``estimate``: the released coefficients, in the units of the data.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return self._estimates().frame()

    def _estimates(self, names: Names = OWN_NAMES) -> Estimates:
        """Return the columns of `summary`, for files by names of their own."""
        check_is_fitted(self)
        columns = {"estimate": self._coefficients(self.coef_, getattr(self, "intercept_", 0.0))}
        return self._tabulated(columns, self._header(r_squared=self._exact_r_squared(), note=self._note), names)

    def _exact_r_squared(self) -> dict[Any, float] | None:
        """Return the explained part of outcomes' variance, by name, as a fit of least squares without noise told it."""
        shares = self.releases_[-1].values.get("r_squared")
        return None if shares is None else dict(zip(self._sides()[1], np.atleast_1d(shares).tolist(), strict=True))

    @property
    def _note(self) -> str | None:
        """What is said above these columns."""
        return None

    def _tabulated(
        self, columns: dict[str, FloatArray], header: dict[str, Any], names: Names, *, chosen: Any = slice(None)
    ) -> Estimates:
        """Return arrays of shape (n_sides, n_rows) as columns, by the names of sides and rows."""
        features = names.features
        if features is None:
            features = getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()
        rows = [*([INTERCEPT] if self._has_intercept else []), *np.array(features, object)[chosen].tolist()]
        level, sides = self._sides()
        named = len(sides) > 1 or self._names_one_side or names.sides is not None
        sides = sides if names.sides is None else names.sides
        index = {level: [side for side in sides for _ in rows]} if named else {}
        values = {name: np.ravel(column) for name, column in columns.items()}
        return Estimates(index | {"feature": rows * len(sides)}, values, header)

    def _coefficients(self, coef: FloatArray, intercept: Any) -> FloatArray:
        """Return the table's values for each side: for its intercept, if there is one, and for its features."""
        coef = np.atleast_2d(coef)
        if not self._has_intercept:
            return coef
        return np.column_stack([np.broadcast_to(intercept, len(coef)), coef])

    @property
    def _has_intercept(self) -> bool:
        return bool(getattr(self, "fit_intercept", False))

    @property
    def _predicted_map(self) -> RowMap:
        """The map that clips rows for prediction."""
        return RowMap()

    @property
    def _names_one_side(self) -> bool:
        """Whether tables name an only outcome."""
        return False

    def _sides(self) -> tuple[str, Sequence[Any]]:
        """Return the names of the rows of coefficients, and the kind of thing that they name."""
        return "outcome", getattr(self, "outcome_names_in_", np.arange(len(np.atleast_2d(self.coef_)))).tolist()

    def _presented_outcomes(self, predicted: FloatArray, X: Any) -> NDArray[Any]:
        names = getattr(self, "outcome_names_in_", None)
        return self._in_output_type(predicted, X, *outcome_names(names, predicted.ndim == 1))

    def plot(
        self,
        *,
        feature_names: Sequence[object] | None = None,
        outcome_names: Sequence[object] | None = None,
        reference: ArrayLike | None = None,
        ax: Axes | None = None,
        title: str | None = None,
        label: str | None = None,
        unit: str | None = None,
    ) -> Axes:
        """Draw the coefficients, for the whole range of each feature if widths of `box_x` differ more than tenfold.

        Privacy: drawn from what was released. Limits are drawn where they are known.

        Parameters
        ----------
        feature_names, outcome_names : sequence, optional
            By default those of the fit, or numbers.
        reference : array of the shape of `coef_`, optional
            Public values to compare with: declared public by being given.
        ax, title, label, unit
            As for `dpfast.plotting.coefficients`.

        Returns
        -------
        matplotlib Axes
            ``axes.figure.savefig(path)`` writes them to a file.

        Examples
        --------
        >>> import numpy as np
        >>> from dpfast import SparseRegression
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1.0, 1.0, size=(40_000, 20))
        >>> y = 0.8 * X[:, 3] - 0.6 * X[:, 11] + 0.1 * rng.normal(size=40_000)
        >>> axes = SparseRegression(1.0, 1e-6, n_nonzero=2, box_x=(-1, 1), random_state=0).fit(X, y).plot(unit="days")
        >>> [tick.get_text() for tick in axes.get_yticklabels()], axes.get_xlabel()
        (['3', '11'], 'coefficient (days)')
        """
        check_is_fitted(self)
        options = {"ax": ax, "title": title, "label": label, "unit": unit}
        return self._plot_coefficients(np.atleast_2d(self.coef_), feature_names, outcome_names, reference, options)

    def _plot_coefficients(
        self,
        values: FloatArray,
        feature_names: Sequence[object] | None,
        outcome_names: Sequence[object] | None,
        reference: ArrayLike | None,
        options: dict[str, Any],
        *,
        per: Per | None = None,
    ) -> Axes:
        """Draw coefficients of the features that are kept, with their names."""
        widths, bounds = self._drawn_widths(per), self._drawn_bounds(per)
        if widths is not None or bounds is not None:
            scale = (1.0 if widths is None else widths) / (1.0 if bounds is None else bounds[:, np.newaxis])
            values = values * scale
            limits = {name: options[name] for name in ("noise", "total") if name in options}
            options |= {name: tuple(side * scale for side in sides) for name, sides in limits.items()}
            reference = None if reference is None else check.array("reference", reference) * scale
            quantity = "coefficient" if widths is None else "coefficient for the whole range of its feature"
            options["quantity"] = quantity if bounds is None else f"{quantity}, as a share of the outcome's bound"
        (outcomes, features), kept = values.shape, self._drawn_features
        given = getattr(self, "feature_names_in_", range(features)) if feature_names is None else feature_names
        called = self._drawn_sides() if outcome_names is None else outcome_names
        for name, names, count in (("feature_names", given, features), ("outcome_names", called, outcomes)):
            check.names(name, names, count)
        if reference is not None:
            drawn = check.array("reference", reference)
            sides = zip(drawn.shape[::-1], values.shape[::-1], strict=False)
            if drawn.ndim > 2 or any(side not in (1, whole) for side, whole in sides):
                raise ValueError(f"reference must be coefficients of shape {values.shape}, got {drawn.shape}")
            options["reference"] = np.broadcast_to(drawn, values.shape)[:, kept]
        shown = np.array([str(name) for name in given], object)[kept]
        return plotting.coefficients(shown, list(called), values[:, kept], **options)

    def _drawn_widths(self, per: Per | None) -> FloatArray | None:
        """Return the factors of coefficients in pictures; None where they are drawn as they are."""
        if per is not None:
            check.choice("per", per, ("unit", "range"))
        box: Any = tuple(self.box_x_) if hasattr(self, "box_x_") else getattr(self, "box_x", None)
        if hasattr(box, "keys"):
            pairs = self._as_fitted(box, "feature_names_in_")
            box = pairs if pairs is None else tuple(np.transpose(pairs))
        if box is None:
            if per == "range":
                raise ValueError("per='range' needs limits of the features: box_x was not given for all of them")
            return None
        low, high = limits_of(box, self.n_features_in_)
        widths = high - low
        some = widths[widths > 0.0]
        are_unlike = len(some) > 0 and np.max(some) > UNLIKE * np.min(some)
        return widths if per == "range" or (per is None and are_unlike) else None

    def _drawn_bounds(self, per: Per | None) -> FloatArray | None:
        """Return the outcomes' bounds that pictures are in shares of; None where they are alike, as one is."""
        return None

    def _as_fitted(self, given: Any, attribute: str) -> list[Any] | None:
        """Return declarations by name in the order of the fit; None where encoded columns declared some themselves."""
        names = list(getattr(self, attribute, ()))
        return [given[name] for name in names] if set(given.keys()) == set(names) else None

    @property
    def _drawn_features(self) -> Any:
        """Which features are drawn: all."""
        return slice(None)

    def _drawn_sides(self) -> Sequence[object]:
        """Return the names of rows of coefficients in pictures; an only row without a name has none."""
        sides = self._sides()[1]
        return sides if len(sides) > 1 or hasattr(self, "outcome_names_in_") else [""]

    def _linear(self, X: ArrayLike) -> FloatArray:
        """Return the linear function of rows, for each row of coefficients: of each on its own, to the bit.

        A score of held-out people counts on that (dpfast.selection): beside other rows none is predicted otherwise.
        """
        check_is_fitted(self)
        basis = np.ascontiguousarray(np.atleast_2d(self.coef_).T)
        row_map = replace(self._predicted_map, basis=basis)
        blocks = (np.asarray(block) for block, _ in io.blocks(X)) if io.is_sparse(X) else [X]
        products = np.concatenate([row_map(rows_to_predict(self, block)) for block in blocks])
        return (products if self.coef_.ndim == 2 else products[:, 0]) + getattr(self, "intercept_", 0.0)
