"""Hockey-stick divergence of any two spherical Gaussians in 40 digits, from the definition alone.

The error is below 1e-25 of the result, or below 1e-35.

Along the line through the means the coordinate z is normal; across it, the squared norm w is chi-square with dim - 1
degrees of freedom. Where the first Gaussian is the wider one, {p > exp(epsilon) q} is the outside of a ball; where it
is the narrower one, the inside.
"""

import mpmath as mp

from .gaussian import exact_delta, upper_tail

DIGITS = 40
REACH = 19  # standard deviations: what lies beyond has a mass below 1e-80


def exact_divergence(first, second, distance, epsilon, dim):
    """N(0, first**2 I) against N(v, second**2 I), ||v|| = distance."""
    with mp.workdps(DIGITS + 15):
        first, second, distance, epsilon = map(mp.mpf, (first, second, distance, epsilon))
        if first == second:
            return exact_delta(first, epsilon, distance)
        # The loss is epsilon where (z - centre)**2 + w = square.
        gap = (second**-2 - first**-2) / 2
        centre = distance / (2 * gap * second**2)
        level = dim * mp.log(second / first) + distance**2 / (2 * second**2) - gap * centre**2
        square = (epsilon - level) / gap
        wide = first > second
        if square <= 0:
            assert not wide, "one law of mass 1 cannot exceed another everywhere"
            return mp.mpf(0)
        radius = mp.sqrt(square)
        laws = ((mp.mpf(0), first, 1), (distance, second, -mp.exp(epsilon)))

        def across(z, t):
            """Weigh the slice at z: w above t for the wider law, below t for the narrower one."""
            return mp.fsum(
                weight * mp.npdf(z, mean, scale) * _chi_square(dim - 1, t / scale**2, upper=wide)
                for mean, scale, weight in laws
            )

        total = mp.mpf(0)
        if wide:
            for mean, scale, weight in laws:
                above = upper_tail((centre + radius - mean) / scale)
                below = upper_tail((mean - centre + radius) / scale)
                total += weight * (above + below)
        if dim == 1:
            return (
                total
                if wide
                else mp.fsum(weight * _between(centre, radius, mean, scale) for mean, scale, weight in laws)
            )
        # z = centre + radius sin(angle) takes the root out of t = square cos(angle)**2 at both ends.
        cuts = {-mp.pi / 2, mp.pi / 2}
        for k in (-REACH, -13, -9, -6, -4, -2, 0, 2, 4, 6, 9, 13, REACH):
            position = (k * first - centre) / radius
            if abs(position) < 1:
                cuts.add(mp.asin(position))
            t = (dim - 1 + k * mp.sqrt(2 * dim)) * first**2
            if 0 < t < square:
                cuts |= {mp.acos(mp.sqrt(t / square)), -mp.acos(mp.sqrt(t / square))}
        points = sorted(cut for cut in cuts if abs(centre + radius * mp.sin(cut)) <= (REACH + mp.mpf("0.01")) * first)
        if not points:
            return total
        integral, error = mp.quad(
            lambda angle: across(centre + radius * mp.sin(angle), square * mp.cos(angle) ** 2) * radius * mp.cos(angle),
            points,
            method="gauss-legendre",
            error=True,
            maxdegree=7,
        )
        total += integral
        assert error < max(abs(total) * mp.mpf("1e-25"), mp.mpf("1e-35")), "the reference itself is not resolved"
        return total


def _between(centre, radius, mean, scale):
    """Mass of an interval centred below the mean."""
    return upper_tail((mean - centre - radius) / scale) - upper_tail((mean - centre + radius) / scale)


def _chi_square(degrees, x, upper):
    half = mp.mpf(degrees) / 2
    return (
        mp.gammainc(half, x / 2, mp.inf, regularized=True) if upper else mp.gammainc(half, 0, x / 2, regularized=True)
    )
