"""Gaussian hockey-stick divergence and its inverses, to about 2e-15 relative.

For noise N(0, scale**2) on a query of the given sensitivity write h = sensitivity/scale (the mu of Gaussian-DP).
Balle and Wang (2018, Theorem 8) have

    delta = Phi(h/2 - epsilon/h) - exp(epsilon) Phi(-h/2 - epsilon/h).

The two terms agree in all leading digits where delta is small. With t = epsilon/h - h/2 and v = t + h,
v**2 - t**2 = 2 epsilon, so phi(t) = exp(epsilon) phi(v) and

    delta = phi(t) (M(t) - M(v)),    M(x) = (1 - Phi(x))/phi(x)  (the Mills ratio).

- phi(t): t is a double-double, since exp(-t**2/2) magnifies a relative error of t by t**2, up to 1400.
- M(t) - M(v) is subtracted as it stands where h >= max(1, t). Otherwise it comes from an expression without
  cancellation: for t >= 3 from M(x) = E[x/(x**2 + Y**2)], Y standard normal, by 56-point Gauss-Hermite (the nodes of
  weight above 1e-19, folded to positive Y) with the difference in x taken by hand; for t < 3 as the integral of
  -M'(x) = 1 - x M(x) over [t, v] by 12-point Gauss-Legendre.
- t < -1: delta = Phi(-t) - phi(t) M(v), of which the second term is the small one.

Derivatives are simple: d(delta)/dh = phi(t) at fixed epsilon, d(delta)/d(epsilon) = -phi(t) M(v) at fixed h. The
logarithm of delta is concave in log h and in epsilon, so Newton steps from the left bound of h and from the right
bound of epsilon are monotone; both bounds come from delta <= Phi(-t) <= exp(-t**2/2)/2. A bracket guards the last
steps.

Scalar loops in C doubles on libm alone (importing scipy.special takes longer than ten thousand calibrations).
Arguments are validated, and results rounded towards privacy, by dpfast.privacy.guarantee.
"""

from libc.math cimport INFINITY, erfc, exp, fabs, fma, fmax, fmin, log, log1p, sqrt

cdef double SQRT_HALF = 0.7071067811865476
cdef double SQRT_HALF_PI = 1.2533141373155003
cdef double SQRT_TWO_PI = 2.5066282746310002
cdef double LOG_SQRT_TWO_PI = 0.9189385332046728

# exp(-t**2/2) is below the smallest double beyond the first, and 1 - Phi(-t) below 1e-190 beyond the second.
cdef double UNDERFLOW_T = 40.0
cdef double CERTAIN_T = -30.0

cdef enum:
    HERMITE_SIZE = 21
    LEGENDRE_SIZE = 6
    MAX_STEPS = 100

# Squares and doubled weights of the positive nodes of the 56-point Gauss-Hermite rule for N(0, 1).
cdef double[HERMITE_SIZE] HERMITE_SQUARES = [
    0.04367191884332858, 0.39325003351210797, 1.0934915191091548, 2.1465855293850975, 3.555863177387031,
    5.325856636849578, 7.46238187002793, 9.972648749115171, 12.86540384383566, 16.151113137334033,
    19.84219463884262, 23.953314636194165, 28.501766718922944, 33.507960570674925, 38.99605929607292,
    44.99482210014938, 51.53873763230512, 58.66957973818234, 66.43859583854015, 74.90967653692014,
    84.16411160041348,
]
cdef double[HERMITE_SIZE] HERMITE_WEIGHTS = [
    0.32629914080686934, 0.2741840312159152, 0.19349135384672128, 0.1145523677991642, 0.05680079895913667,
    0.02353638051507128, 0.008126645698968857, 0.0023298181360809985, 0.000552198225535787, 0.00010764284892273721,
    1.7152583673214982e-05, 2.218115184659621e-06, 2.308039165703621e-07, 1.9130906282643374e-08,
    1.2482138218979068e-09, 6.320500641082195e-11, 2.4420298304472757e-12, 7.052872633675857e-14,
    1.4847846385026617e-15, 2.2081547314362957e-17, 2.2293012712626885e-19,
]

# The positive nodes and the weights of the 12-point Gauss-Legendre rule on [-1, 1].
cdef double[LEGENDRE_SIZE] LEGENDRE_NODES = [
    0.1252334085114689, 0.3678314989981802, 0.5873179542866175, 0.7699026741943047, 0.9041172563704749,
    0.9815606342467192,
]
cdef double[LEGENDRE_SIZE] LEGENDRE_WEIGHTS = [
    0.24914704581340277, 0.2334925365383548, 0.20316742672306592, 0.16007832854334622, 0.10693932599531843,
    0.04717533638651183,
]


cdef struct Ratio:  # an unevaluated sum high + low
    double high
    double low

cdef struct Tail:
    double h
    double t
    double t_low
    double v
    double difference  # M(t) - M(v)


cdef double mills_ratio(double x) noexcept nogil:
    """(1 - Phi(x))/phi(x) for x >= -37."""
    cdef double total = 0.0
    cdef double reduced
    cdef Py_ssize_t i
    if x < 3.0:
        reduced = x * SQRT_HALF
        return SQRT_HALF_PI * erfc(reduced) * exp(reduced * reduced)
    if x > 1e9:
        return 1.0 / x
    for i in range(HERMITE_SIZE):
        total += HERMITE_WEIGHTS[i] / (x * x + HERMITE_SQUARES[i])
    return x * total


cdef double mills_slope(double x) noexcept nogil:
    """1 - x M(x) = -M'(x), positive."""
    cdef double total = 0.0
    cdef double square = x * x
    cdef double inverse
    cdef Py_ssize_t i
    if x < 3.0:
        return 1.0 - x * mills_ratio(x)
    for i in range(HERMITE_SIZE):
        inverse = 1.0 / (square + HERMITE_SQUARES[i])
        total += HERMITE_WEIGHTS[i] * (square - HERMITE_SQUARES[i]) * inverse * inverse
    return total


cdef double mills_difference(double t, double h) noexcept nogil:
    """M(t) - M(t + h) for t >= -37, h > 0."""
    cdef double v = t + h
    cdef double total = 0.0
    cdef double middle, offset
    cdef Py_ssize_t i
    if h >= 1.0 and h >= t:
        return mills_ratio(t) - mills_ratio(v)
    if t >= 3.0:
        # x/(x**2 + y**2) at x = t minus at x = v, over a common denominator.
        for i in range(HERMITE_SIZE):
            total += (HERMITE_WEIGHTS[i] * (t * v - HERMITE_SQUARES[i])
                      / ((t * t + HERMITE_SQUARES[i]) * (v * v + HERMITE_SQUARES[i])))
        return h * total
    middle = t + 0.5 * h
    for i in range(LEGENDRE_SIZE):
        offset = 0.5 * h * LEGENDRE_NODES[i]
        total += LEGENDRE_WEIGHTS[i] * (mills_slope(middle - offset) + mills_slope(middle + offset))
    return 0.5 * h * total


cdef Ratio divide(double numerator, double denominator) noexcept nogil:
    """The quotient of two doubles as a double-double."""
    cdef Ratio ratio
    ratio.high = numerator / denominator
    ratio.low = fma(-ratio.high, denominator, numerator) / denominator
    return ratio


cdef Tail tail_at(Ratio h, double epsilon) noexcept nogil:
    """What delta is made of; t beyond either limit is reported as infinite."""
    cdef Tail tail
    cdef double quotient = epsilon / h.high
    cdef double half = 0.5 * h.high
    cdef double quotient_low, head, rounded, low
    tail.h = h.high
    tail.v = quotient + half
    head = quotient - half
    if not (head < UNDERFLOW_T and h.high > 0.0):
        tail.t = INFINITY
        return tail
    if not head > CERTAIN_T:
        tail.t = -INFINITY
        return tail
    quotient_low = (fma(-quotient, h.high, epsilon) - quotient * h.low) / h.high
    rounded = head - quotient
    low = (quotient - (head - rounded)) - (half + rounded) + (quotient_low - 0.5 * h.low)
    tail.t = head + low
    tail.t_low = low - (tail.t - head)
    if tail.t >= -1.0:
        tail.difference = mills_difference(tail.t, tail.h)
    else:
        tail.difference = mills_ratio(tail.t) - mills_ratio(tail.v)
    return tail


cdef double log_delta(Tail tail) noexcept nogil:
    """Logarithm of delta, to about 1e-16 (1 + |log delta|) absolute."""
    if tail.t == INFINITY:
        return -INFINITY
    if tail.t == -INFINITY:
        return 0.0
    if tail.t < -1.0:
        return log1p(-complement(tail))
    return -0.5 * tail.t * tail.t - tail.t * tail.t_low - LOG_SQRT_TWO_PI + log(tail.difference)


cdef double complement(Tail tail) noexcept nogil:
    """1 - delta for t < -1: Phi(t) + phi(t) M(v)."""
    return 0.5 * erfc(-tail.t * SQRT_HALF) + exp(-0.5 * tail.t * tail.t) / SQRT_TWO_PI * mills_ratio(tail.v)


cpdef double gaussian_delta(double scale, double epsilon, double sensitivity) noexcept nogil:
    """The delta of N(0, scale**2) noise, not rounded up; 0 below the range of doubles.

    All arguments are finite, scale and sensitivity positive, epsilon at least 0.
    """
    cdef Tail tail = tail_at(divide(sensitivity, scale), epsilon)
    cdef double square, square_low
    if tail.t == INFINITY:
        return 0.0
    if tail.t == -INFINITY:
        return 1.0
    if tail.t < -1.0:
        return 1.0 - complement(tail)
    square = tail.t * tail.t
    square_low = fma(tail.t, tail.t, -square) + 2.0 * tail.t * tail.t_low
    return exp(-0.5 * square) * (1.0 - 0.5 * square_low) * (tail.difference / SQRT_TWO_PI)


cdef double largest_t(double target) noexcept nogil:
    """A t at which delta is at most exp(target), whatever h: Phi(-t) <= exp(-t**2/2)/2 for t >= 0."""
    return sqrt(fmax(0.0, -2.0 * (target + 0.6931471805599453)))


cpdef double solve_mu(double epsilon, double target) noexcept nogil:
    """The h at which log delta is target < 0: Halley's method in log h, from the left."""
    cdef double t = largest_t(target)
    # Both h at that t and delta <= h phi(0) bound h from below.
    cdef double low = exp(target) * SQRT_TWO_PI
    cdef double high = INFINITY
    cdef double residual, slope, denominator, step
    cdef Ratio h
    cdef Tail tail
    cdef int _
    if epsilon > 0.0:
        low = fmax(low, 2.0 * epsilon / (t + sqrt(t * t + 2.0 * epsilon)))
    h.high = low
    h.low = 0.0
    for _ in range(MAX_STEPS):
        tail = tail_at(h, epsilon)
        residual = log_delta(tail) - target
        if residual < 0.0:
            low = h.high
        else:
            high = h.high
        step = INFINITY
        if fabs(tail.t) < INFINITY:
            # d(log delta)/d(log h) = h/difference; its own derivative is slope (1 - slope + t v).
            slope = tail.h / tail.difference
            denominator = slope - 0.5 * residual * (1.0 - slope + tail.t * tail.v)
            step = -residual / fmax(denominator, 0.5 * slope)
            h.high = tail.h * exp(step)
        if not low <= h.high <= high or fabs(step) == INFINITY:
            h.high = sqrt(low) * sqrt(high) if high < INFINITY else 2.0 * low
        # The error after a step is of the order of its cube.
        if fabs(step) < 1e-6:
            break
    return fmin(fmax(h.high, low), high)


cpdef double solve_epsilon(double scale, double sensitivity, double target) noexcept nogil:
    """The epsilon at which log delta is target < 0, 0 if it is below at 0: Newton's method from the right."""
    cdef Ratio h = divide(sensitivity, scale)
    cdef double low = 0.0
    cdef double high = h.high * (largest_t(target) + 0.5 * h.high)
    cdef double epsilon = high
    cdef double residual, step
    cdef Tail tail
    cdef int _
    if log_delta(tail_at(h, 0.0)) <= target:
        return 0.0
    for _ in range(MAX_STEPS):
        tail = tail_at(h, epsilon)
        residual = log_delta(tail) - target
        if residual > 0.0:
            low = epsilon
        else:
            high = epsilon
        step = INFINITY
        if fabs(tail.t) < INFINITY:
            step = residual * tail.difference / mills_ratio(tail.v)
            epsilon += step
        if not low <= epsilon <= high or fabs(step) == INFINITY:
            epsilon = low + 0.5 * (high - low)
        if fabs(step) <= 1e-9 * epsilon and fabs(residual) < 1e-9:
            break
    return epsilon
