"""Golden masters: what seeded fits of the whole catalogue release and estimate, in one file of numbers.

    python tests/golden.py FILE            # write it, before a move that is to change nothing
    python tests/golden.py FILE --compare  # say what is not as it was, to the bit
    python tests/golden.py --record        # write what tests compare with, after a change of numbers that is wanted

The first two on one machine: seeded noise depends on the last bit of its scale, which linear algebra decides by the
processor. What is on record has noise of the same bits for any scale, and so the same numbers but for rounding errors.
"""

import argparse
import hashlib
import json
import sys
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from catalogue import FITS, RELATED, VARIED, people, releases_of

import dpfast
from dpfast.noise import SeededSource

N, SEED = 60, 7
#: Fits on record, by their number of people: noise hides few, and many with a larger budget stand out.
ON_RECORD = {60: VARIED, 2000: FITS}
RECORD = Path(__file__).parent / "guarantees" / "numbers_on_record.json"


def golden():
    """Return prints of all arrays, by what they are of, of everything that draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {name: fitted(fit) for name, fit in {**FITS, **RELATED, **VARIED}.items()}
        return found | {name: released(releases) for name, releases in others()}


def fitted(fit):
    model = fit.new(random_state=SEED, n_threads=1)
    releases = releases_of(fit.run(model, *people(N)))
    attributes = {key: one for key, one in vars(model).items() if key[-1] == "_" and key[0] != "_"}
    return released(releases) | {key: print_of(one) for key, one in attributes.items() if key != "releases_"}


def others():
    """Yield what is released by what is no estimator."""
    x, y = people(N)
    models = [
        dpfast.MultiOutcomeRidge(1.0, 1e-6, bound_x=2.0, bound_y=1.0, ridge=one, fit_intercept=False)
        for one in (1.0, 9.0)
    ]
    yield "select", dpfast.select(models, x, y, epsilon=3.0, delta=1e-6, bound_y=1.0, random_state=SEED).releases_
    table = pd.DataFrame(x[:, :2], columns=["a", "b"])
    described = dpfast.describe(table, {"a": (-1, 1), "b": (0, 1)}, 1.0, 1e-6, random_state=SEED)
    yield "describe", described.releases_
    yield "private_bounds", [dpfast.private_bounds(x, y, epsilon=1.0, delta=1e-6, box=True, random_state=SEED).release]


def released(releases):
    return {
        f"release {number}": {"record": print_of(json.dumps(release.to_dict(values=False) | {"time": ""}, indent=1))}
        | {part: print_of(values) for part, values in release.values.items()}
        for number, release in enumerate(releases)
    }


def print_of(value):
    """Return a hash of a value, and how it begins."""
    if isinstance(value, np.ndarray | float | int):
        data = np.ascontiguousarray(value)
        return [hashlib.sha256(data.tobytes()).hexdigest()[:16], *map(str, (data.dtype, data.shape, data.ravel()[:3]))]
    return [hashlib.sha256(repr(value).encode()).hexdigest()[:16], repr(value)[:200]]


def differing(before, after, where=""):
    """Yield what is not as it was."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield f"{where}: {before} before, {after} after"
        return
    for key in sorted({*before, *after}):
        yield from differing(before.get(key, "nothing"), after.get(key, "nothing"), f"{where}{', ' * bool(where)}{key}")


def numbers(n):
    """Return what is calibrated, released and told in each fit of so many people, a figure of each."""
    x, y = linear(n)
    with same_bits_for_any_scale(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: figures(fit, x, y) for name, fit in ON_RECORD[n].items()}


def linear(n):
    """People with an outcome that depends on their row, some of them far outside all bounds."""
    rng = np.random.default_rng(n)
    x = rng.uniform(-0.9, 0.9, (n, 4))
    y = 0.9 * np.tanh(x @ [1.0, -0.6, 0.3, 0.0] + 0.3 * rng.normal(size=n))
    x[::25] *= 20.0
    y[::30] *= -20.0
    return x, y


@contextmanager
def same_bits_for_any_scale():
    """Bind seeded sources to labels alone: noise then changes with its scale continuously."""
    bound = SeededSource.bound
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SeededSource, "bound", lambda one, *of: bound(one, *(word for word in of if type(word) is str)))
        yield


def figures(fit, x, y):
    # Mechanisms of stages differ most where much is seen.
    larger = 1.0 if len(x) <= N else 4.0 if fit.releases is not None else 20.0
    model = fit.new(random_state=SEED, n_threads=1, epsilon=larger * fit.estimator.epsilon)
    releases = releases_of(fit.run(model, x, y))
    calibrated = [[*one.scales.values(), one.privacy.epsilon, one.privacy.delta, one.mu or 0.0] for one in releases]
    told = {key: one for key, one in vars(model).items() if key[-1] == "_" and key[0] != "_"}
    if len(x) > N and hasattr(model, "releases_"):
        table = model.summary()
        told |= {f"summary, {column}": table[column].to_numpy() for column in table.select_dtypes("number")}
    told = {key: one for key, one in sorted(told.items()) if isinstance(one, np.ndarray | float | int)}
    return [
        figure({f"{i}, {k}": one for i, row in enumerate(calibrated) for k, one in enumerate(row)}),
        figure({f"{i}, {part}": one for i, release in enumerate(releases) for part, one in release.values.items()}),
        figure(told),
    ]


def figure(arrays):
    """Return one number that any change of any of these arrays by some factor, or of a part of it, changes as much."""
    total = 0.0
    for name, values in arrays.items():
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            continue
        flat = np.nan_to_num(values.astype(np.float64).ravel(), nan=3.0, posinf=5.0, neginf=-7.0)
        length = float(np.sqrt(np.sum(flat**2)))
        if length > 0.0:
            weights = 1.0 + np.arange(len(flat)) * 0.618 % 1.0
            total += (1.0 + zlib.crc32(name.encode()) / 2.0**32) * (np.log(length) + float(flat @ weights) / length)
    return round(float(total), 7)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.record:
        lines = [f"{json.dumps(f'{n}: {name}')}: {one}" for n in ON_RECORD for name, one in numbers(n).items()]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    found = golden()
    if not options.compare:
        options.file.write_text(json.dumps(found, indent=1))
        return 0
    differences = list(differing(json.loads(options.file.read_text()), found))
    print("\n".join(differences) or f"{len(found)} fits, to the bit as they were")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
