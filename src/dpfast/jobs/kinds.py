"""What jobs fit: each family says in its ``job.py`` how, as `KINDS`, one for each of its estimators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dpfast import registry
from dpfast.estimator.plan import Plan
from dpfast.jobs.rows import Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpfast.jobs.specification import Job
    from dpfast.jobs.tables import Table

#: Told how many bytes have been read since it was last called.
Progress = Callable[[int], object]


class Kind(ABC):
    """What is particular to jobs of one estimator."""

    #: Its name in job files.
    KIND: ClassVar[str]
    ESTIMATOR: ClassVar[type[Any]]
    #: Who its people are, and how that is read.
    DATA: ClassVar[type[Any]] = Rows
    #: Keys of [estimator] that are its parameters, beside those of every estimator.
    PARAMETERS: ClassVar[tuple[str, ...]]
    #: What readers of its tables must know, as plain text.
    NOTE: ClassVar[str]

    @abstractmethod
    def parameters(self, given: Mapping[str, Any], data: Any) -> dict[str, Any]:
        """Return the estimator's parameters, from the keys given in [estimator] and what was declared of the data."""

    @abstractmethod
    def check(self, parameters: Mapping[str, Any], data: Any) -> None:
        """Refuse, from public numbers, what a fit would refuse of the parameters."""

    @abstractmethod
    def fit(self, model: Any, job: Job, progress: Progress | None) -> None:
        """Read the data, and fit."""

    @abstractmethod
    def plan(self, job: Job, **sizes: Any) -> Plan:
        """Return what a fit is expected to do, from what the job declares and public sizes that it does not know."""

    @abstractmethod
    def tables(self, model: Any, job: Job) -> dict[str, Table]:
        """Return what was released, and what follows from it, as tables by name."""

    @abstractmethod
    def figures(self, model: Any, job: Job) -> dict[str, Figure]:
        """Return pictures of it by name; called only where matplotlib is installed."""

    @abstractmethod
    def facts(self, model: Any, job: Job) -> list[tuple[str, str]]:
        """Return what else there is to say of it: names, and plain text."""


def kinds() -> dict[str, Kind]:
    """Return what jobs fit, by name."""
    return {kind.KIND: kind for module in registry.parts("job") for kind in module.KINDS}
