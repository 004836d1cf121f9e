"""The deltas of objective perturbation in 60 digits, by integrating their definition where that can be afforded."""

import mpmath as mp

from reference.gaussian import DIGITS, upper_tail


def exact_objective_delta(scale, epsilon, gradient, geometry):
    """E (1 - exp(epsilon - u R - u**2/2))+, R folded normal on a line, Rayleigh in a plane, in closed form."""
    with mp.workdps(DIGITS + 60):
        u, epsilon = mp.mpf(gradient) / mp.mpf(scale), mp.mpf(epsilon)
        z = max(mp.mpf(0), epsilon / u - u / 2)
        if geometry == "line":
            return +(2 * upper_tail(z) - 2 * mp.exp(epsilon) * upper_tail(z + u))
        rayleigh = mp.exp(-z * z / 2)
        shifted = mp.exp(-u * u / 2 - z * u) * rayleigh - u * mp.sqrt(2 * mp.pi) * upper_tail(z + u)
        return +(rayleigh - mp.exp(epsilon) * shifted)


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
