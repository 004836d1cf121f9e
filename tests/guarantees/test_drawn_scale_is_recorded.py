"""Noise is drawn with the scale that its release records, in every mechanism and every finishing step."""

import inspect
import math

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, SOME, VARIED, people, releases_of

import dpfast
from dpfast import MultiOutcomeRidge, noise
from dpfast.privacy import SmoothGaussian
from dpfast.releases import mechanism

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpfast.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::dpfast.UnsoundCalibrationWarning"),
]

X, Y = people(40)


class Spy:
    """What is drawn, with which scale, until a release is recorded."""

    def __init__(self, monkeypatch):
        self.draws, self.seen, self._private = [], [], []
        for law in ("gaussian", "laplace", "l2_laplace", "discrete_gaussian"):
            monkeypatch.setattr(noise, law, self._drawing(law, getattr(noise, law)))
        monkeypatch.setattr(noise, "ExponentialPick", self._picking(noise.ExponentialPick))
        monkeypatch.setattr(mechanism, "Release", self._recording(mechanism.Release))
        monkeypatch.setattr(SmoothGaussian, "scale", self._scaling(SmoothGaussian.scale))

    def _drawing(self, law, draw):
        def spied(*arguments, **options):
            given = inspect.signature(draw).bind(*arguments, **options).arguments
            size = given.get("size", given.get("dim"))
            self.draws.append((law, given["scale"], size if isinstance(size, int) else math.prod(size or ())))
            return draw(*arguments, **options)

        return spied

    def _picking(self, pick):
        def spied(rate, *arguments, **options):
            self.draws.append(("pick", 1.0 / rate, 1))
            return pick(rate, *arguments, **options)

        return spied

    def _recording(self, record):
        def spied(*arguments, **options):
            release = record(*arguments, **options)
            self.seen.append((release, self.draws, self._private[-1:]))
            self.draws = []
            return release

        return spied

    def _scaling(self, scale):
        def spied(*arguments):
            self._private.append(scale(*arguments))
            return self._private[-1]

        return spied


def deviation(law, scale, size):
    return {"laplace": math.sqrt(2.0), "l2_laplace": math.sqrt(size + 1.0)}.get(law, 1.0) * scale


def recorded(release, private):
    """Scales in the order in which they are drawn."""
    if release.mechanism == "data-dependent Gaussian":
        return private
    scales = dict(release.scales)
    if "xx" not in scales:
        return [*scales.values()]
    xx = scales.pop("xx")
    matrix = release.values["xx_diagonal" if "xx_diagonal" in release.values else "xx"]
    is_diagonal = "xx_diagonal" not in release.values and (matrix.ndim == 1 or matrix.shape[-1] != matrix.shape[-2])
    # Entries off the diagonal stand twice, and have half the variance; the printed noise has not.
    off = (
        [] if is_diagonal or matrix.shape[-1] == 1 else [xx if release.calibration == "paper" else xx * math.sqrt(0.5)]
    )
    return [xx, *off, *(scales[name] for name in release.values if name in scales)]


def check(release, draws, private):
    laws = {law for law, _, _ in draws}
    if "xx" in release.scales and laws == {"l2_laplace"}:
        # One vector of all blocks, each stretched by a power of two that leaves X'X as it is.
        (drawn,) = {deviation(*one) for one in draws}
        ratios = {name: scale / drawn for name, scale in release.scales.items()}
        assert ratios.pop("xx") == 1.0
        assert all(math.frexp(ratio)[0] == 0.5 for ratio in ratios.values())
        return
    in_deviations = release.scales.keys() & {"sum", "xx"}
    drawn = [deviation(*one) if in_deviations else one[1] for one in draws]
    np.testing.assert_allclose(list(dict.fromkeys(drawn)), list(dict.fromkeys(recorded(release, private))), rtol=1e-15)


def selecting():
    ridges = [
        MultiOutcomeRidge(1.0, 1e-6, bound_x=2.0, bound_y=1.0, ridge=one, fit_intercept=False) for one in (1.0, 9.0)
    ]
    return dpfast.select(ridges, X, Y, epsilon=3.0, delta=1e-6, bound_y=1.0).releases_


def bounding():
    return [dpfast.private_bounds(X, Y, epsilon=1.0, delta=1e-6, box=True).release]


FITTED = {name: lambda fit=fit: releases_of(fit(X, Y)) for name, fit in VARIED.items()}
QUICK = {*FITS, *(f"{name}, pure" for name in SOME)}


def describing():
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(Y > 0.0, "up", "down")})
    return dpfast.describe(table, {"a": (-1, 1), "b": ["up", "down"]}, 1.0, 1e-6).releases_


OTHERS = {"select": selecting, "private_bounds": bounding, "describe": describing}


@pytest.mark.parametrize(
    "name",
    [
        *OTHERS,
        *(pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in FITTED),
    ],
)
def test_noise_is_drawn_with_the_scale_on_record(name, monkeypatch):
    spy = Spy(monkeypatch)
    releases = (OTHERS | FITTED)[name]()
    assert spy.draws == [], "noise was drawn for no release"
    # Selection records a release once more under another name, and rehearses fits on public numbers.
    drawn = [one for one in spy.seen if one[1]]
    assert len(drawn) >= len(releases)
    for one in drawn:
        check(*one)
