"""Plain twin of residual steps: a person at a time, in Python's floats and integers."""

from __future__ import annotations

import math

import numpy as np

from dpfast.privacy.moment_scales import padded_squared_bound

_SMALLEST_SQUARE = 2.0**-960
_REST_OF_LN2 = 1.90821492927058770002e-10


def person_part(step, held, x, y, bound_squares=None):
    """A person's integers (k, l), those of their squared residuals, the exponent of the squared size, and whether it is
    beyond the clip.

    `x` and `y` are the person's rows, `held` the `Clip`; without `bound_squares` there are no squares.
    """
    rows = [_products(step, one, other) for one, other in zip(step.map_x(x), step.map_y(y), strict=True)]
    return _part(rows, held, bound_squares)


def coded_part(step, held, tables, places, numbers, codes, y, bound_squares=None):
    """The same of a person with one row of numbers and codes, from the public tables of the step."""
    if numbers:
        lowest, highest = step.map_x.low, step.map_x.high
        if lowest is not None:
            low, high = lowest[list(places)].tolist(), highest[list(places)].tolist()
            numbers = [min(max(v, a), b) for v, a, b in zip(numbers, low, high, strict=True)]
    ends = np.cumsum(np.array(tables.levels) + 1).tolist()
    slots = [
        end - n - 1 + (code if 0 <= code < n else n) for end, n, code in zip(ends, tables.levels, codes, strict=True)
    ]
    of_codes = tables.squared_absent
    for slot in slots:
        of_codes += float(tables.slot_squares[slot])
    squared, factor = _squared(numbers) + of_codes, 1.0
    if not squared <= tables.bound * tables.bound * (1.0 + 2.0**-30):
        scale = 1.0
        if math.isinf(squared):
            scale = math.ldexp(1.0, 1 - math.frexp(max(map(abs, numbers)))[1])
            squared = of_codes * scale * scale
            for v in numbers:
                squared += v * scale * (v * scale)
        factor = tables.bound * scale / math.sqrt(squared)
    numbers = [(v * factor - c) * s for v, c, s in zip(numbers, tables.center, tables.inverse_scale, strict=True)]

    def product(column):
        total = factor * float(tables.absent[column]) + float(tables.constant[column])
        for v, weights in zip(numbers, tables.of_numbers, strict=True):
            total += float(v) * float(weights[column])
        for slot in slots:
            total += factor * float(tables.of_slots[slot, column])
        return total

    k, outcomes = step.shape
    first = -(-outcomes // 8) * 8
    p, z = [product(first + i) for i in range(k)], [product(m) for m in range(outcomes)]
    return _part([_lightened(step, p, z, step.map_y(y[None])[0])], held, bound_squares)


def _part(rows, held, bound_squares):
    rounded = [_rounded(p, r, held) for p, r in rows]
    integers, factor, attempt = _block(rounded, rows, held, 1.0), 1.0, 0
    while held.max_rows and (squared := sum(entry**2 for entry in integers.flat)) > held.squared_bound:
        if factor == 1.0:
            factor = math.ldexp(held.bound, sum(held.exponents)) / math.sqrt(float(squared))
        else:
            factor *= 1.0 - 2.0 ** (attempt - 50)
            attempt += 1
        integers = _block(rounded, rows, held, factor)
    squares = None if bound_squares is None else _held_squares([r for _, r in rows], bound_squares)
    size = _squared_size(rows, held)
    return integers, squares, _exponent(size), factor < 1.0 if held.max_rows else size > held.bound * held.bound


def _products(step, row, outcomes):
    columns = [*row.tolist(), 1.0] if step.constant else row.tolist()
    p = columns if step.whitening is None else [_weighted(weights, columns) for weights in step.whitening.tolist()]
    z = [_weighted(weights, columns) for weights in step.theta.T.tolist()]
    return _lightened(step, p, z, outcomes)


def _lightened(step, p, z, outcomes):
    r = _RESIDUALS[step.link](outcomes.tolist(), z, *step.smoothing)
    squared = _squared(p)
    if squared > step.longest * step.longest:
        factor = step.longest / math.sqrt(squared)
        p = [entry * factor for entry in p]
        r = r if step.link in ("huber", "quantile", "poisson") else [entry * factor for entry in r]
    if step.beyond > 0.0:
        size = math.sqrt(_squared(p) * _squared(r))
        factor = 1.0 - step.beyond / size if size > step.beyond else 0.0
        r = [entry * factor for entry in r]
    return p, r


def exponential(a):
    """exp(a) for a <= 0 as the kernel has it: ln 2 in two parts, a Taylor sum of 13 terms."""
    a = max(a, -708.0)
    n = float(round(a * (1.0 / math.log(2.0))))
    upper = math.floor(math.log(2.0) * 2.0**32) / 2.0**32
    rest, total = (a - n * upper) - n * _REST_OF_LN2, 0.0
    for order in range(13, 1, -1):
        total = total * rest + 1.0 / math.factorial(order)
    return math.ldexp(1.0 + (rest + rest * rest * total), int(n))


def _logistic(outcomes, z, *_):
    margins = [math.copysign(1.0, y) * margin for y, margin in zip(outcomes, z, strict=True)]
    small = [exponential(-abs(margin)) for margin in margins]
    wrong = [(1.0 if u < 0.0 else s) / (1.0 + s) for u, s in zip(margins, small, strict=True)]
    return [y * share for y, share in zip(outcomes, wrong, strict=True)]


def _softmax(outcomes, z, *_):
    sizes = [exponential(margin - max(z)) for margin in z]
    weight = total = 0.0
    for y, size in zip(outcomes, sizes, strict=True):
        weight, total = weight + y, total + size
    return [y - size * (weight / total) for y, size in zip(outcomes, sizes, strict=True)]


def _huber(outcomes, z, threshold, width):
    residuals = [y - margin for y, margin in zip(outcomes, z, strict=True)]
    sizes = [min(abs(r), threshold + width) for r in residuals]
    bent = [max(size - (threshold - width), 0.0) for size in sizes]
    return [math.copysign(s - t * t * (0.25 / width), r) for s, t, r in zip(sizes, bent, residuals, strict=True)]


def _quantile(outcomes, z, level, width):
    scaled = [min(max((y - margin) / width, -1.0), 1.0) for y, margin in zip(outcomes, z, strict=True)]
    return [(level - 0.5) + u * (0.75 - 0.25 * u * u) for u in scaled]


def _poisson(outcomes, z, largest, start):
    def rate(margin):
        beyond = margin - start
        rest = max(1.0 - 1.5 * beyond, 0.0)
        bent = largest - (0.25 * largest) * (rest * rest)
        return bent if beyond > 0.0 else (0.75 * largest) * exponential(beyond)

    return [y - rate(margin) for y, margin in zip(outcomes, z, strict=True)]


_RESIDUALS = {
    "identity": lambda outcomes, z, *_: [y - margin for y, margin in zip(outcomes, z, strict=True)],
    "logistic": _logistic,
    "softmax": _softmax,
    "huber": _huber,
    "quantile": _quantile,
    "poisson": _poisson,
}


def _weighted(weights, columns):
    total = 0.0
    for weight, entry in zip(weights, columns, strict=True):
        total += weight * entry
    return total


def _squared(entries):
    total = 0.0
    for entry in entries:
        total += entry * entry
    return total


def _units(entries, multiplier):
    return [round(entry * multiplier) for entry in entries]


def _rounded(p, r, held):
    """p in grid units, and what to multiply r by so that it is."""
    (a, b), squared_p, squared_r = held.exponents, _squared(p), _squared(r)
    if squared_p < _SMALLEST_SQUARE:
        return [0] * len(p), 0.0
    half = (math.frexp(squared_p)[1] - 1) >> 1
    length = math.sqrt(squared_p * 2.0**-half * 2.0**-half * squared_r)
    multiplier = math.ldexp(1.0, b + half)
    if length > 0.0:
        multiplier = min(multiplier, math.ldexp(held.row_bound, b) / length)
    units = _units(p, math.ldexp(1.0, a - half))
    squares = sum(unit**2 for unit in units)
    step = 0
    while squares * sum(unit**2 for unit in _units(r, multiplier)) > held.limits[1][1]:
        multiplier *= 1.0 - 2.0 ** (step - 50)
        step += 1
    return units, multiplier


def _block(rounded, rows, held, factor):
    total = np.zeros(held.shape, dtype=object)
    for (units, multiplier), (_, r) in zip(rounded, rows, strict=True):
        total += np.outer(np.array(units, dtype=object), np.array(_units(r, multiplier * factor), dtype=object))
    return total


def _held_squares(residuals, bound):
    mantissa, exponent = math.frexp(bound)
    k = 22 - exponent + (mantissa == 0.5)
    totals = [0.0] * len(residuals[0])
    for r in residuals:
        totals = [total + entry * entry for total, entry in zip(totals, r, strict=True)]
    multiplier, length, step = math.ldexp(1.0, k), math.sqrt(_squared(totals)), 0
    if length > 0.0:
        multiplier = min(multiplier, math.ldexp(bound, k) / length)
    limit = padded_squared_bound(bound, k, len(totals))
    while sum(unit**2 for unit in _units(totals, multiplier)) > limit:
        multiplier *= 1.0 - 2.0 ** (step - 50)
        step += 1
    return np.array(_units(totals, multiplier), dtype=object)


def _squared_size(rows, held):
    if held.max_rows is None:
        ((p, r),) = rows
        return _squared(p) * _squared(r)
    total = [0.0] * math.prod(held.shape)
    for p, r in rows:
        total = [part + product for part, product in zip(total, (a * b for a in p for b in r), strict=True)]
    return _squared(total)


def _exponent(squared):
    return -math.inf if squared < _SMALLEST_SQUARE else math.frexp(squared)[1] - 1
