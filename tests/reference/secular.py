"""Quadratics over balls and spheres by bisection in hundreds of digits, from the optimality conditions alone."""

import mpmath as mp

DIGITS = 400  # squares of the smallest doubles beside the largest ones, and then some
BITS = 220


def exact_minimiser(eigenvalues, coefficients, radius, sphere):
    """Solution and multiplier as mpf; on ties the solution with a positive component on the first smallest eigenvalue.

    (eigenvalue + multiplier) x = coefficient, multiplier >= -min(eigenvalues), and over the ball multiplier >= 0 with
    equality inside.
    """
    with mp.workdps(DIGITS):
        a, c, target = [mp.mpf(x) for x in eigenvalues], [mp.mpf(x) for x in coefficients], mp.mpf(radius)
        on_boundary = sphere or min(a) < 0
        origin = min(a) if on_boundary else mp.mpf(0)
        gaps = [x - origin for x in a]
        if any(c_j != 0 and gap == 0 for c_j, gap in zip(c, gaps, strict=True)):
            shift = bisected_shift(gaps, c, target)
        else:
            missing = target**2 - squared_norm(gaps, c, mp.mpf(0))
            shift = bisected_shift(gaps, c, target) if missing < 0 else mp.mpf(0)
        x = [c_j / (gap + shift) if c_j != 0 else mp.mpf(0) for c_j, gap in zip(c, gaps, strict=True)]
        if shift == 0 and on_boundary:
            x[a.index(min(a))] = mp.sqrt(missing)
        return x, shift - origin


def squared_norm(gaps, c, shift):
    return mp.fsum((c_j / (gap + shift)) ** 2 for c_j, gap in zip(c, gaps, strict=True) if c_j != 0)


def bisected_shift(gaps, c, radius):
    """The shift at which the norm is the radius: halve the bracket's logarithm, then the bracket."""
    largest = max(abs(c_j) for c_j in c)
    high = largest * len(c) / radius
    low = high
    while squared_norm(gaps, c, low) < radius**2:
        low = low**2 / high / 2 if low > high * mp.mpf(10) ** -4000 else mp.mpf(0)
    while high > 2 * low:
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if squared_norm(gaps, c, middle) >= radius**2 else (low, middle)
    for _ in range(BITS):
        middle = (low + high) / 2
        low, high = (middle, high) if squared_norm(gaps, c, middle) >= radius**2 else (low, middle)
    return low


def objective(eigenvalues, coefficients, x):
    """The quadratic at x, exactly."""
    with mp.workdps(DIGITS):
        return mp.fsum(
            mp.mpf(a) * mp.mpf(x_j) ** 2 / 2 - mp.mpf(c) * mp.mpf(x_j)
            for a, c, x_j in zip(eigenvalues, coefficients, x, strict=True)
        )


def norm_excess(x, radius):
    """||x||/radius - 1 of the doubles x, exactly."""
    with mp.workdps(DIGITS):
        return float(mp.sqrt(mp.fsum(mp.mpf(x_j) ** 2 for x_j in x)) / mp.mpf(radius) - 1)
