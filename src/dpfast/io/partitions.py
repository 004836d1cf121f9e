"""Tables in parts that lie elsewhere, and engines to go through them: a function of each part, results combined.

Sums here are exact. So a result does not depend on the cuts of a table, on the worker of a part, on the order of
results, nor on how often a part was lost and computed again. Parts stay in their place. Functions go to them, and sums
come back, each of the size of the estimate.

This is all that statistics know of engines. An engine writes `Partitions.run`, and statistics call `Partitions.reduce`.
A guard stands around every function of a part. It lets an error leave a worker only as a result, redacted: engines log
the errors of their workers together with the parts of these errors.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from dpfast import _arguments as check

#: What an engine calls of a part, and of two results.
Function = Callable[[Any], Any]
Combine = Callable[[Any, Any], Any]
#: What is called of x, y and ids of a part.
OfPart = Callable[[Any, Any, Any], Any]

PartitionedBy = Literal["person"]
Result = TypeVar("Result")

_FAILED = (
    "the engine failed while it went through the parts of the table; what it said may quote them: compute them by "
    "themselves to see"
)


class PersonIds:
    """The placeholder for `groups` if ids of people lie with the parts of a table."""


class EngineError(RuntimeError):
    """An engine's own error, about its workers and never about the contents of a table."""


class Partitions(ABC):
    """A table in parts, and the engine that goes through them: it replaces X and Y if rows lie elsewhere.

    Estimators take one in the place of X, with the outcomes in it, and see nothing but exact sums. An engine of one's
    own extends this class by one method, `run`.

    Parameters
    ----------
    n_features : int
        Columns of X, or periods of a panel; any number for trajectories.
    n_outcomes : int, default 0
        Columns of Y; 0 if there are no outcomes.
    feature_names : sequence of str, optional
        Names of the columns of X.
    outcome_names : sequence of str, optional
        Names of the columns of Y.
    partitioned_by : {"person"}, optional
        Declares that all rows of a person are in one part, and that parts hold ids, one for each row. Sums over people
        who own several rows need this. Public, and not checked by a fit: see `is_partitioned_by_person`.

    Examples
    --------
    An engine in a few lines: parts are kept in a list, and threads go through them.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from functools import reduce
    >>> import numpy as np
    >>> from dpfast import MultiOutcomeRidge
    >>> from dpfast.io import Partitions
    >>> class Threads(Partitions):
    ...     def __init__(self, parts, n_features, n_outcomes, **options):
    ...         super().__init__(n_features, n_outcomes, **options)
    ...         self.parts = parts
    ...
    ...     def run(self, function, combine):
    ...         with ThreadPoolExecutor(2) as pool:
    ...             return reduce(combine, pool.map(function, self.parts))
    >>> X, Y = np.eye(600)[:, :3], np.ones((600, 1))
    >>> ours = Threads([(X[:250], Y[:250]), (X[250:], Y[250:])], n_features=3, n_outcomes=1)
    >>> model = MultiOutcomeRidge(1.0, 1e-6, bound_x=1.0, bound_y=1.0, refine=3, random_state=0)
    >>> bool(np.all(model.fit(ours).coef_ == model.fit(X, Y).coef_))
    True
    """

    def __init__(
        self,
        n_features: int,
        n_outcomes: int = 0,
        *,
        feature_names: Sequence[str] | None = None,
        outcome_names: Sequence[str] | None = None,
        partitioned_by: PartitionedBy | None = None,
    ) -> None:
        self.n_features = check.positive_integer("n_features", n_features)
        self.n_outcomes = check.integer_of_at_least("n_outcomes", n_outcomes, 0)
        if feature_names is not None and len(feature_names) != self.n_features:
            raise ValueError(f"feature_names must be {self.n_features}, as many as there are features")
        if outcome_names is not None and len(outcome_names) != self.n_outcomes:
            raise ValueError(f"outcome_names must be {self.n_outcomes}, as many as there are outcomes")
        self.feature_names = None if feature_names is None else tuple(feature_names)
        self.outcome_names = None if outcome_names is None else tuple(outcome_names)
        if partitioned_by is not None:
            check.choice("partitioned_by", partitioned_by, get_args(PartitionedBy))
        self.partitioned_by = partitioned_by

    @abstractmethod
    def run(self, function: Function, combine: Combine) -> Any:
        """Call a function of every part and combine the results, two at a time, until one is left.

        Parameters
        ----------
        function : callable
            Takes a part: a table accepted by `blocks`; a tuple (x, y) or (x, y, ids) of such, None for a missing one; a
            list of blocks; Trajectories; or a function without arguments that returns one of these. It may be called
            again, anywhere, for a part with a lost result. It never raises because of the contents of a part. It can be
            pickled.
        combine : callable
            Associative and commutative.

        Returns
        -------
        object
            The result of all parts, of which there is at least one.

        Raises
        ------
        EngineError
            For an error of the engine itself, such as workers that keep on ending. Whatever else is raised is replaced
            by words that quote nothing.
        """

    def reduce(self, function: OfPart, combine: Combine) -> Any:
        """Return ``function(x, y, ids)`` of all parts, combined; None of an empty part is passed over.

        An error that `function` raises because of a part is raised here, once all is over. TypeError and ValueError are
        raised as they are, since they are redacted; any other is replaced. Nothing that a worker raises or logs quotes
        a part.
        """
        error: Exception
        try:
            result = self.run(partial(_of_part, function), partial(_combined, combine))
        except EngineError as failed:
            error = EngineError(*failed.args)
        except MemoryError:
            error = MemoryError("too little memory for the sums over the parts of the table")
        except Exception:
            error = ValueError(_FAILED)
        else:
            if not isinstance(result, _Refusal):
                return result
            error = result.error
        raise error

    def mapped(
        self, function: Callable[[Any, Any, Any], tuple[Any, Any, Any]], n_features: int, n_outcomes: int
    ) -> Partitions:
        """Return the same parts with x, y and ids passed through a function in their place, whenever they are read."""
        return _Mapped(self, function, n_features, n_outcomes)

    @property
    def groups(self) -> PersonIds | None:
        """The placeholder for the groups in sums over people: the parts hold the ids."""
        return None if self.partitioned_by is None else PersonIds()


def sum_over(rows: Any, function: Callable[..., Result]) -> Result:
    """Return a function of rows, or of those of each part, one a person, added up."""
    if not isinstance(rows, Partitions):
        return function(rows)
    if rows.partitioned_by is not None:
        raise ValueError("one person a row is needed here: parts must not be declared to be partitioned by person")
    total: Result = rows.reduce(partial(_of_x, function), operator.add)
    return total


def _of_x(function: Callable[[Any], Any], x: Any, y: Any, ids: Any) -> Any:
    return function(x)


class _Mapped(Partitions):
    """Parts of another table, passed through a function."""

    def __init__(self, source: Partitions, function: OfPart, n_features: int, n_outcomes: int) -> None:
        super().__init__(n_features, n_outcomes, partitioned_by=source.partitioned_by)
        self._source, self._function = source, function

    def run(self, function: Function, combine: Combine) -> Any:
        return self._source.run(partial(_mapped, self._function, function), combine)


def _mapped(first: Callable[..., Any], then: Function, part: Any) -> Any:
    """Return what `then`, which is guarded, makes of a part passed through a function."""
    found = _of_part(first, part)
    return found if isinstance(found, _Refusal) else then(found)


@dataclass(frozen=True)
class _Refusal:
    """An error of ours as a result: raised in a worker, it would be logged there with the part that it is of."""

    error: Exception


def _of_part(function: OfPart, part: Any) -> Any:
    """Call a function of a part, with errors as results."""
    return _guarded(lambda: function(*_fields(part)))


def _guarded(call: Callable[[], Any]) -> Any:
    """Return a result, or an error as one."""
    try:
        return call()
    except (TypeError, ValueError, OverflowError, ImportError) as error:
        kind = next(one for one in (ImportError, OverflowError, TypeError, ValueError) if isinstance(error, one))
        return _Refusal(kind(str(error)))
    except OSError as error:
        # The file is named as the caller named it.
        return _Refusal(OSError(error.errno, error.strerror, error.filename))
    except Exception as error:
        return _Refusal(ValueError(f"a part of the table could not be summed: {type(error).__name__}"))


def _combined(combine: Combine, first: Any, second: Any) -> Any:
    """Combine two results. Either may be a refusal, or None from an empty part."""
    for one, other in ((first, second), (second, first)):
        if isinstance(one, _Refusal) or other is None:
            return one
    return _guarded(lambda: combine(first, second))


def _fields(part: Any) -> tuple[Any, Any, Any]:
    """Return x, y and ids of a part, each as it is or by a function without arguments."""
    part = part() if callable(part) else part
    fields = (*part, None, None)[:3] if isinstance(part, tuple) else (part, None, None)
    x, y, ids = (one() if callable(one) else one for one in fields)
    return x, y, ids
