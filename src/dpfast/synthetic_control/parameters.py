"""What is declared of a synthetic control before any data is seen: its parameters, refused where they make no sense."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from dpfast import _arguments as check
from dpfast import noise
from dpfast._arrays import FloatArray
from dpfast.kernels.threads import resolve_n_threads
from dpfast.ledger import Ledger, Release
from dpfast.privacy import Adjacency, Calibration, Privacy

#: What the errors of plans are relative to.
RELATIVE_TO = "the signal's root mean square"


class DeclaredParameters:
    """The parameters of `dpfast.SyntheticControl`, where they are documented, and what follows from them alone."""

    _MECHANISMS: ClassVar[tuple[str, ...]] = ("cross_section", "output", "objective")

    epsilon: float
    delta: float
    bound: float | tuple[float, float]
    ridge: float | Literal["auto"]
    mechanism: Literal["cross_section", "output", "objective"]
    split: tuple[float, float] | None
    curvature: float | None
    gradient: float | None
    row_bound: tuple[float, float] | None
    n_components: int | Literal["noise"] | None
    nonnegative: bool
    center: float | ArrayLike | Literal["target"] | None
    basis: int | ArrayLike | None
    observation_rate: float | None
    adjacency: Adjacency
    calibration: Calibration
    random_state: int | None
    n_threads: int | None
    ledger: Ledger | None

    # The declared range of the fit: set with what was released.
    _offset: float
    _half_width: float

    def _checked(self) -> Privacy:
        """Refuse bad parameters; the guarantee to spend."""
        privacy = Privacy(self.epsilon, self.delta, self.adjacency)
        self._range()
        if not isinstance(self.ridge, str) or self.ridge != "auto":
            check.nonnegative("ridge", self.ridge)
        check.choice("mechanism", self.mechanism, self._MECHANISMS)
        check.choice("calibration", self.calibration, get_args(Calibration))
        if self.mechanism == "cross_section":
            self._check_cross_section()
        else:
            self._check_weights(privacy)
        if self.row_bound is not None:
            if not isinstance(self.row_bound, tuple | list) or len(self.row_bound) != 2:
                raise TypeError(f"row_bound must be a pair (pre, post), got {type(self.row_bound).__name__}")
            check.positives("row_bound", self.row_bound)
        if isinstance(self.n_components, str):
            check.choice("n_components", self.n_components, ("noise",))
        elif self.n_components is not None:
            check.positive_integer("n_components", self.n_components)
        check.boolean("nonnegative", self.nonnegative)
        if self.nonnegative and isinstance(self.bound, tuple | list):
            raise ValueError("nonnegative needs a single bound: a range (low, high) says itself that low is 0")
        if isinstance(self.center, str):
            check.choice("center", self.center, ("target",))
        if self.observation_rate is not None:
            rate = check.positive("observation_rate", self.observation_rate)
            if rate > 1.0:
                raise ValueError(f"observation_rate must be at most 1, got {rate!r}")
            if self.basis is not None:
                raise ValueError("observation_rate cannot go with basis: its coordinates mix periods, missing or not")
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise TypeError(f"ledger must be a dpfast.Ledger or None, got {type(self.ledger).__name__}")
        noise.resolve_source(self.random_state)
        resolve_n_threads(self.n_threads)
        return privacy

    def _check_cross_section(self) -> None:
        if self.calibration == "paper":
            raise ValueError("calibration must be 'sound' with mechanism='cross_section': no paper prints another")
        for name in ("split", "curvature", "gradient"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must not be given with mechanism='cross_section', which has none")

    def _check_weights(self, privacy: Privacy) -> None:
        """Refuse what the paper's algorithms do not have."""
        for name in ("n_components", "center", "basis", "observation_rate"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must not be given with mechanism={self.mechanism!r}, which has none")
        if self.nonnegative:
            raise ValueError(f"nonnegative must be False with mechanism={self.mechanism!r}: give bound=(0, high)")
        if privacy.adjacency != "replace_one":
            raise ValueError(f"adjacency must be 'replace_one' with mechanism={self.mechanism!r}: weights tell n")
        if self.ridge == 0.0 and (self.mechanism == "output" or self.calibration == "paper"):
            raise ValueError(f"ridge must be positive with mechanism={self.mechanism!r}, got {self.ridge!r}")

    def _range(self) -> tuple[float, float]:
        """Return the middle and the half-width of the declared range."""
        if not isinstance(self.bound, tuple | list):
            return 0.0, check.positive("bound", self.bound)
        if len(self.bound) != 2:
            raise ValueError(f"bound must be a number or a pair (low, high), got {len(self.bound)} entries")
        low, high = (check.real(f"bound[{side}]", value) for side, value in enumerate(self.bound))
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"bound must have a finite low below its high, got ({low!r}, {high!r})")
        return low / 2.0 + high / 2.0, high / 2.0 - low / 2.0

    def _lambda(self, n_pre: int) -> float:
        return float(n_pre) if isinstance(self.ridge, str) else float(self.ridge)

    def _center_path(self, n_periods: int, target: FloatArray | None) -> FloatArray | None:
        """Return the public centre in mapped units."""
        if self.center is None:
            return None
        if isinstance(self.center, str):
            if target is None or target.shape != (n_periods,):
                raise ValueError("center='target' needs one target with all its periods")
            path = target
        else:
            path = np.asarray(self.center)
            if path.dtype.kind not in "iuf" or path.shape not in ((), (n_periods,)) or not np.all(np.isfinite(path)):
                raise ValueError(f"center must be a finite number or hold one for each of the {n_periods} periods")
        offset, half_width = self._range()
        low = 0.0 if self.nonnegative else -1.0
        scaled: FloatArray = np.clip((np.broadcast_to(path, n_periods) - offset) / half_width, low, 1.0)
        return scaled

    def _scaled(self, values: FloatArray) -> FloatArray:
        scaled: FloatArray = (values - self._offset) / self._half_width
        return scaled

    def _unscaled(self, values: FloatArray) -> FloatArray:
        values = self._offset + self._half_width * values
        return values


def released_attributes(release: Release, offset: float, half_width: float) -> dict[str, Any]:
    """Return what every fit keeps: its release, and the units that this is in."""
    return {
        "releases_": (release,),
        "privacy_spent_": release.privacy,
        "_offset": offset,
        "_half_width": half_width,
    }
