"""The record of one joint calibration: the released arrays, their guarantee and their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dpfast import _arguments as check
from dpfast._documents import array_from_lists, array_to_lists
from dpfast._html import Fact, card, caution, facts, grid, shortened
from dpfast.privacy.guarantee import UNITS, Calibration, Privacy, Unit
from dpfast.privacy.subsampling import sample_sizes

_UNITS, _CALIBRATIONS = get_args(Unit), get_args(Calibration)


def now() -> str:
    """Return the time as records state it: ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def unit_value(value: object) -> Unit:
    """Return "row" or "person"."""
    unit: Unit = check.choice("unit", value, _UNITS)  # type: ignore[assignment]
    return unit


#: What checks the fields of a release that are read from a record, beside privacy, values and their shapes: those that
#: every one has, of a type or among some words without a call, those that may be None, and the numbers of mappings.
_FIELDS: Mapping[str, tuple[type, Callable[[str, Any], Any]]] = {
    "name": (str, check.text),
    "mechanism": (str, check.text),
    "guaranteed": (bool, check.boolean),
    "reproducible": (bool, check.boolean),
    "time": (str, check.text),
}
_WORDS: Mapping[str, tuple[str, ...]] = {"calibration": _CALIBRATIONS, "unit": _UNITS}
_OPTIONAL: Mapping[str, Callable[[str, Any], Any]] = {
    "mu": check.positive,
    "sample": lambda _, value: sample_sizes(*value),
    "part": check.text,
    "log_range": check.positive,
}
_MAPPINGS: Mapping[str, Callable[[str, Any], Any]] = {"scales": check.nonnegative, "grid": check.positive}


def checked_fields(field: Callable[[str], Any]) -> dict[str, Any]:
    """Return the fields of a release, each checked; most are told without a call."""
    fields: dict[str, Any] = {}
    for name, (kind, accepted) in _FIELDS.items():
        value = field(name)
        fields[name] = value if type(value) is kind else accepted(name, value)
    for name, words in _WORDS.items():
        value = field(name)
        fields[name] = value if type(value) is str and value in words else check.choice(name, value, words)
    for name, accepted in _OPTIONAL.items():
        value = field(name)
        is_told = value is None or (type(value) is float and accepted is check.positive and 0.0 < value < math.inf)
        fields[name] = value if is_told else accepted(name, value)
    for name, accepted in _MAPPINGS.items():
        own = fields[name] = {}
        for key, value in field(name).items():
            own[key] = value if type(value) is float and 0.0 < value < math.inf else accepted(key, value)
    shapes = fields["shapes"] = {}
    for key, value in field("shapes").items():
        shapes[key] = tuple(value)
    return fields


def guarantee_of(releases: Sequence[Release], privacy: Privacy) -> str:
    """Return the guarantee of releases with this joint cost: no more than that of the weakest of them."""
    spoilt = [one for one in releases if one.reproducible or not one.guaranteed]
    return replace([*spoilt, *releases][0], privacy=privacy).guarantee


def header_of(releases: Sequence[Release], privacy: Privacy, **said: Any) -> dict[str, Any]:
    """Return the header of tables made from releases, with further facts."""
    costs = {"epsilon": privacy.epsilon, "delta": privacy.delta, "adjacency": privacy.adjacency}
    return costs | {"guarantee": guarantee_of(releases, privacy)} | said


def guarantee_html(releases: Sequence[Release], privacy: Privacy) -> str:
    """Return the same guarantee as HTML, with emphasis if there is none."""
    said = guarantee_of(releases, privacy)
    return facts([("guarantee", said)]) if said == str(privacy) else caution(f"Guarantee: {said}")


def _costs(release: Release) -> tuple[str, str, str]:
    mark = "" if release.promised == release.privacy else "void" if release.guaranteed else "claim not reached"
    return f"{release.privacy.epsilon:.6g}", f"{release.privacy.delta:.3g}", mark


def releases_html(releases: Sequence[Release], most: int = 12) -> str:
    """Tabulate releases, the last of many."""
    first = max(0, len(releases) - most)
    rows = [
        (number, shortened(one.name), one.mechanism, one._noise_scales, *_costs(one))
        for number, one in enumerate(releases[first:], start=first + 1)
    ]
    left_out = facts([("", f"and {first} before these")]) if first else ""
    return left_out + grid(("", "release", "noise", "scale", "epsilon", "delta", ""), rows)


@dataclass(frozen=True, eq=False)
class Release:
    """One joint calibration of noise and the arrays released under it; immutable.

    Everything in it is public: the arrays have their noise, the rest are functions of public numbers.

    Parameters
    ----------
    name, mechanism : str
        What was released, in words, and the law of the noise.
    privacy : Privacy
        Guarantee that the noise of all the arrays together was calibrated for, and its cost to a ledger. `promised`
        says whether the guarantee holds.
    values : mapping of str to ndarray
        The released arrays; copied (unless they are read-only and own their memory) and made read-only.
    scales : mapping of str to float
        Noise scale of each array (a standard deviation for Gaussian noise), in the array's units.
    mu : float, optional
        Gaussian-differential-privacy parameter of the release, where its noise is Gaussian or of a bounded range.
    grid : mapping of str to float, optional
        The public power of two that each array was rounded to.
    calibration : {"sound", "paper"}
        Whether the scale is the proved one or the printed one.
    guaranteed : bool
        False if the printed calibration does not meet its claim: `privacy` is then the unmet claim.
    reproducible : bool
        True if the noise came from a seed, which voids the guarantee, for anybody: from two releases of one seed the
        noise can be subtracted without knowing it.
    time : str
        When the budget for it was reserved (ISO 8601, UTC), set by the ledger; until then, when it was made. The
        difference is the time that reading the data took, and depends on the data.
    shapes : mapping of str to tuple of int, optional
        Shape of each array; to be given only if the values are not kept, as in a ledger's file.
    sample : tuple of int, optional
        Number of rows in the secret sample that the array "xx" was summed over, and of all rows; None without a sample.
    unit : {"row", "person"}, default "row"
        Whose data `privacy` protects. A "row" is a row of the fitted table (a donor of a panel, one trajectory of
        trajectories). A "person" is all rows of one person, as given by `groups`.
    part : str, optional
        Which of the disjoint parts of the rows it was made from, if the split did not look at the rows
        (`dpfast.select`). Among the releases of one reservation, those of different parts are of different people.
    log_range : float, optional
        Length of an interval that contains all log likelihood ratios between neighbouring tables, for picks composed by
        this length (`dpfast.privacy.picks_delta`).

    Examples
    --------
    >>> import numpy as np
    >>> from dpfast import Privacy, Release
    >>> release = Release("a mean", "Gaussian", Privacy(1.0, 1e-6), {"mean": np.array([0.5])}, {"mean": 0.1})
    >>> release.values["mean"].flags.writeable
    False
    """

    name: str
    mechanism: str
    privacy: Privacy
    values: Mapping[str, NDArray[Any]]
    scales: Mapping[str, float]
    mu: float | None = None
    grid: Mapping[str, float] = field(default_factory=dict)
    calibration: Calibration = "sound"
    guaranteed: bool = True
    reproducible: bool = False
    time: str = field(default_factory=now)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sample: tuple[int, int] | None = None
    unit: Unit = "row"
    part: str | None = None
    log_range: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, Privacy):
            raise TypeError(f"privacy must be a dpfast.Privacy, got a {type(self.privacy).__name__}")
        values: dict[str, NDArray[Any]] = {}
        shapes = {} if self.values else dict(self.shapes)
        for key, value in self.values.items():
            # A read-only array that owns its memory was handed over: a large one need not be held twice.
            kept = isinstance(value, np.ndarray) and value.flags.owndata and not value.flags.writeable
            values[key] = value if kept else np.array(value)
            values[key].flags.writeable = False
            shapes[key] = values[key].shape
        own = vars(self)
        for name, mapping in ("values", values), ("scales", self.scales), ("grid", self.grid), ("shapes", shapes):
            own[name] = MappingProxyType(dict(mapping))

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle; the constructor rebuilds it, and with it the read-only arrays.
        fields = (getattr(self, name) for name in self.__dataclass_fields__)
        return type(self), tuple(dict(value) if isinstance(value, MappingProxyType) else value for value in fields)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        return f"Release({self.name!r}: {shapes}; {self.privacy})"

    def _repr_html_(self) -> str:
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        said: list[Fact] = [
            ("released", shapes),
            ("mechanism", f"{self.mechanism} noise"),
            ("noise scales", self._noise_scales),
            ("unit", UNITS[self.unit]),
            ("calibration", self.calibration),
            (
                "sample",
                None if self.sample is None else "xx of a secret sample of {:,} of {:,} rows".format(*self.sample),
            ),
            ("part of the rows", self.part),
            ("time", self.time),
        ]
        return card(f"Release: {self.name}", guarantee_html([self], self.privacy), facts(said))

    @property
    def _noise_scales(self) -> str:
        return ", ".join(f"{name} {scale:.4g}" for name, scale in self.scales.items()) or "none of public size"

    @property
    def promised(self) -> Privacy:
        """The guarantee as a number: `privacy`, or an infinite epsilon if it is void or was not reached."""
        if self.guaranteed and not self.reproducible:
            return self.privacy
        return Privacy.of_sum(math.inf, self.privacy.delta, self.privacy.adjacency)

    @property
    def guarantee(self) -> str:
        """The guarantee of this release, in one line."""
        if math.isinf(self.privacy.epsilon):
            return "none: exact, no noise"
        if not self.guaranteed:
            return f"none: the printed calibration does not reach its claim of {self.privacy}"
        if self.reproducible:
            return f"void: the noise came from a seed; it was calibrated for {self.privacy}"
        return str(self.privacy)

    def summary(self) -> str:
        """Return a line for a report."""
        scales = ", ".join(f"{name} {scale:.4g}" for name, scale in self.scales.items())
        noise = f"{self.mechanism} noise, scale {scales}" if scales else f"{self.mechanism} noise"
        if self.sample is not None:
            noise += "; xx of a secret sample of {:,} of {:,} rows".format(*self.sample)
        if self.unit == "person":
            noise += "; for a person's rows together"
        if self.part is not None:
            noise += f"; of the {self.part} part of the rows"
        return f"{self.time}  {self.name}: {noise}; calibration {self.calibration}; guarantee: {self.guarantee}"

    def to_dict(self, *, values: bool = True) -> dict[str, Any]:
        """Return plain Python numbers and lists, ready for JSON, with or without the released arrays.

        "epsilon" is the one of `promised`, so infinite if a seed or a printed calibration voids the guarantee.
        "calibrated_epsilon" is that of `privacy`.
        """
        plain = ("name", "mechanism", "unit", "guarantee", "guaranteed", "calibration", "reproducible", "mu", "time")
        record = {
            **{name: getattr(self, name) for name in plain},
            "epsilon": self.promised.epsilon,
            "delta": self.privacy.delta,
            "adjacency": self.privacy.adjacency,
            "calibrated_epsilon": self.privacy.epsilon,
            "scales": dict(self.scales),
            "grid": dict(self.grid),
            "sample": None if self.sample is None else list(self.sample),
            "part": self.part,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }
        if self.log_range is not None:
            record["log_range"] = self.log_range
        if values:
            record["dtypes"] = {name: array.dtype.str for name, array in self.values.items()}
            record["values"] = {name: array_to_lists(array) for name, array in self.values.items()}
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Release:
        """Return the release that `to_dict` described, to the bit; without values if it was described without them."""
        try:
            given = {"log_range": None} | dict(record)  # which is left out where there is none
            fields = checked_fields(given.__getitem__)
            release = cls(
                privacy=Privacy(record["calibrated_epsilon"], record["delta"], record["adjacency"]),
                values={
                    name: array_from_lists(name, lists, record["dtypes"][name], fields["shapes"][name])
                    for name, lists in record.get("values", {}).items()
                },
                **fields,
            )
            stated = Privacy(record["epsilon"], record["delta"], record["adjacency"])
        except (KeyError, AttributeError) as error:
            raise ValueError("this is not the record of a release: a part is missing or not a mapping") from error
        if stated != release.promised:
            raise ValueError("this is not the record of a release: it states an epsilon that is not its own")
        return release
