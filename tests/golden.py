"""Golden masters: what seeded fits of the whole catalogue release and estimate, in one file of numbers.

    python tests/golden.py FILE            # write it, before a move that is to change nothing
    python tests/golden.py FILE --compare  # say what is not as it was, to the bit

Both on one machine: seeded noise depends on the last bit of its scale, which linear algebra decides by the processor.
"""

import argparse
import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from catalogue import FITS, RELATED, VARIED, people, releases_of

import dpfast

N, SEED = 60, 7


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    found = golden()
    if not options.compare:
        options.file.write_text(json.dumps(found, indent=1))
        return 0
    differences = list(differing(json.loads(options.file.read_text()), found))
    print("\n".join(differences) or f"{len(found)} fits, to the bit as they were")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
