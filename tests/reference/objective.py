"""The deltas of objective perturbation in 60 digits, by integrating their definition where that can be afforded."""

import mpmath as mp
import numpy as np

from reference.gaussian import DIGITS, upper_tail


def exact_objective_delta(scale, epsilon, gradient, geometry):
    """What is proved, in closed form: the worst E (1 - exp(epsilon - b'h - h'h/2))+ over all h(b) within the geometry.

    On a line b'h is u times a folded normal variable, in a plane u times a Rayleigh variable.
    """
    with mp.workdps(DIGITS + 60):
        if geometry == "disk":
            return exact_disk_delta(scale, epsilon, *gradient)
        u, epsilon = mp.mpf(gradient) / mp.mpf(scale), mp.mpf(epsilon)
        z = epsilon / u - u / 2
        gaussian = upper_tail(z) - mp.exp(epsilon) * upper_tail(z + u)
        if geometry == "segment" or (geometry == "two segments" and (u / 2) ** 2 <= epsilon):
            return +gaussian
        z = max(mp.mpf(0), z)
        if geometry == "two lines" and gaussian <= u / 2 * mp.npdf(epsilon / u - u / 2):
            return min(2 * gaussian, exact_objective_delta(scale, epsilon, gradient, "plane"))
        if geometry == "line":
            return +(2 * upper_tail(z) - 2 * mp.exp(epsilon) * upper_tail(z + u))
        rayleigh = mp.exp(-z * z / 2)
        shifted = mp.exp(-u * u / 2 - z * u) * rayleigh - u * mp.sqrt(2 * mp.pi) * upper_tail(z + u)
        return +(rayleigh - mp.exp(epsilon) * shifted)


def exact_disk_delta(scale, epsilon, length, radius):
    """The mean over directions of a plane's delta at the loss k R + u**2/2, in 30 digits."""
    with mp.workdps(30):
        u, r, epsilon = mp.mpf(length) / mp.mpf(scale), mp.mpf(radius) / mp.mpf(scale), mp.mpf(epsilon)
        if epsilon < u * u / 2:
            return exact_objective_delta(scale, epsilon, length, "plane")

        def at(angle):
            k = r + (u - r) * mp.cos(angle)
            if k <= 0:
                return mp.mpf(0)
            y = (epsilon - u * u / 2) / k
            return k * mp.sqrt(2 * mp.pi) * mp.exp(k * k / 2 + y * k) * upper_tail(y + k)

        return mp.quad(at, [0, 0.3, 0.8, 1.6, 2.4, mp.pi]) / mp.pi


def disk_delta(centre, radius, epsilon, n=601, reach=8.0):
    """E g(loss), the loss the largest over a disk about a point that far from 0, by quadrature over the plane."""
    x, step = np.linspace(-reach, reach, n, retstep=True)
    weights = np.exp(-0.5 * x * x) * step / np.sqrt(2.0 * np.pi)
    length = np.hypot(x[:, None] + centre, x)
    loss = centre * x[:, None] + 0.5 * centre**2 + radius * length + 0.5 * radius**2
    return float(weights @ -np.expm1(np.minimum(epsilon - np.maximum(loss, 0.0), 0.0)) @ weights)


def integrated_objective_delta(scale, epsilon, gradient, geometry):
    """The same by quadrature over R."""
    with mp.workdps(30):
        u = mp.mpf(gradient) / mp.mpf(scale)
        z = max(mp.mpf(0), epsilon / u - u / 2)
        density = {
            "line": lambda r: mp.sqrt(2 / mp.pi) * mp.exp(-r * r / 2),
            "plane": lambda r: r * mp.exp(-r * r / 2),
        }[geometry]
        return mp.quad(lambda r: density(r) * -mp.expm1(epsilon - u * r - u * u / 2), [z, z + 1, z + 3, z + 10, mp.inf])


def vertices_delta(vertices, epsilon, n=601, reach=8.0):
    """E g(loss), the loss the largest over a polygon's vertices and 0, by quadrature over the plane; to 1e-3 or so."""
    x, step = np.linspace(-reach, reach, n, retstep=True)
    weights = np.exp(-0.5 * x * x) * step / np.sqrt(2.0 * np.pi)
    losses = [v[0] * x[:, None] + v[1] * x + 0.5 * (v[0] ** 2 + v[1] ** 2) for v in np.asarray(vertices, float)]
    worst = np.maximum(np.maximum.reduce(losses), 0.0)
    return float(weights @ -np.expm1(np.minimum(epsilon - worst, 0.0)) @ weights)
