"""Generate the table of the Gaussian quantile that the sampler reads: src/dpfast/kernels/gaussian_table.h.

Run `python tools/make_gaussian_table.py` (needs mpmath) and commit what it writes. The functions here are also what
the tests certify the committed table with.

A piece is one sixteenth of an octave of the upper-tail probability p. Inside it, z(p) is interpolated at the Chebyshev
nodes by a polynomial of degree 7 in t in [-1/2, 1/2), the piece's own coordinate. Octave 1 is p in [1/4, 1/2). Words of
smaller p than the last octave's are sent to one more octave of NaN, which the sampler reports as undecided.
"""

from __future__ import annotations

from pathlib import Path

import mpmath as mp

DEGREE = 7
PIECES = 16
OCTAVES = 20
PRECISION = 160
NOT_TABLED = "NOT_TABLED"

HEADER = Path(__file__).resolve().parent.parent / "src" / "dpfast" / "kernels" / "gaussian_table.h"


def upper_tail(z: mp.mpf) -> mp.mpf:
    """Probability that a standard normal variable exceeds z."""
    return mp.erfc(z / mp.sqrt(2)) / 2


def density(z: mp.mpf) -> mp.mpf:
    """Density of the standard normal law."""
    return mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi)


def quantile(p: mp.mpf, guess: float) -> mp.mpf:
    """Solve upper_tail(z) = p by Halley's iteration from a guess."""
    z = mp.mpf(guess)
    for _ in range(20):
        newton = (upper_tail(z) - p) / density(z)
        step = newton / (1 - z * newton / 2)
        z += step
        if abs(step) < mp.mpf(2) ** (-PRECISION // 3 - 4):
            # Convergence is cubic: the step after this one would be below the working precision.
            return z
    raise ArithmeticError("the quantile did not converge")


def piece_ends(octave: int, piece: int) -> tuple[mp.mpf, mp.mpf]:
    """Probabilities between which a piece lies; octave 1 ends at one half."""
    start = mp.mpf(2) ** (-1 - octave)
    return start * (1 + mp.mpf(piece) / PIECES), start * (1 + mp.mpf(piece + 1) / PIECES)


def chebyshev_nodes() -> list[mp.mpf]:
    """Nodes of interpolation on [-1/2, 1/2]."""
    n = DEGREE + 1
    return [mp.cos((2 * i + 1) * mp.pi / (2 * n)) / 2 for i in range(n)]


def vandermonde_inverse() -> mp.matrix:
    """Matrix taking the values at the nodes to the coefficients."""
    nodes = chebyshev_nodes()
    return mp.matrix([[x**k for k in range(DEGREE + 1)] for x in nodes]) ** -1


def interpolant(octave: int, piece: int, inverse: mp.matrix, guess: float) -> list[mp.mpf]:
    """Coefficients, lowest first, of the polynomial of one piece."""
    low, high = piece_ends(octave, piece)
    values = []
    for node in chebyshev_nodes():
        guess = quantile(low + (high - low) * (node + mp.mpf(1) / 2), float(guess))
        values.append(guess)
    return list(inverse * mp.matrix(values))


def table() -> list[list[list[mp.mpf]]]:
    """All polynomials, as [octave - 1][piece][power]."""
    with mp.workprec(PRECISION):
        inverse = vandermonde_inverse()
        guess = 0.0
        octaves = []
        for octave in range(1, OCTAVES + 1):
            pieces: list[list[mp.mpf]] = []
            for piece in reversed(range(PIECES)):
                pieces.insert(0, interpolant(octave, piece, inverse, guess))
                guess = float(pieces[0][0])
            octaves.append(pieces)
        return octaves


def render(octaves: list[list[list[mp.mpf]]]) -> str:
    """Return the C header, coefficients as exact hexadecimal floats, pieces in rising order of p."""
    rows = [[NOT_TABLED] * (DEGREE + 1)] * PIECES
    rows += [[float(c).hex() for c in piece] for octave in reversed(octaves) for piece in octave]
    rows.append(["0.0"] * (DEGREE + 1))
    lines = [
        "/* Upper-tail quantile of the standard normal law, by pieces. Written by tools/make_gaussian_table.py. */",
        f"#define GAUSSIAN_TABLE_OCTAVES {OCTAVES}",
        f"#define GAUSSIAN_TABLE_PIECES {PIECES}",
        f"#define GAUSSIAN_TABLE_DEGREE {DEGREE}",
        f"#define {NOT_TABLED} (0.0 / 0.0)",
        "/* The last row is p = 1/2 itself, where a word rounds up to a whole octave: z = 0. */",
        f"static const _Alignas(64) double gaussian_table[{len(rows)}][{DEGREE + 1}] = {{",
    ]
    lines += ["    {" + ", ".join(row) + "}," for row in rows]
    return "\n".join([*lines, "};", ""])


if __name__ == "__main__":
    HEADER.write_text(render(table()))
