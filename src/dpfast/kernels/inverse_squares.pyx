"""Sums of weights over squared clipped counts: the work of one step of the smooth sensitivity of DP-LSW.

The relative error is below 2^-46, whatever the length: a term errs by two roundings, a block of 512 terms is summed in 8
lanes, 64 additions each and 3 more, and blocks' sums are added with the error of each addition carried along (two-sum),
which leaves one rounding and second-order terms. Lanes and blocks are fixed, so the bits are too.

The caller has checked that counts are integers from 0 to 2^53 and weights are 0 or normal, far from overflow.
"""

cdef enum:
    LANES = 8
    BLOCK = 512


cdef inline double term(double weight, double count, double k) noexcept nogil:
    cdef double left = count - k
    left = left if left > 1.0 else 1.0
    return weight / (left * left)


cdef double block_sum(const double* weights, const double* counts, Py_ssize_t n, double k) noexcept nogil:
    cdef double lanes[LANES]
    cdef Py_ssize_t i, lane, whole = n - n % LANES
    for lane in range(LANES):
        lanes[lane] = 0.0
    i = 0
    while i < whole:
        for lane in range(LANES):
            lanes[lane] += term(weights[i + lane], counts[i + lane], k)
        i += LANES
    for lane in range(n - whole):
        lanes[lane] += term(weights[whole + lane], counts[whole + lane], k)
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))


cdef double sum_of(const double* weights, const double* counts, Py_ssize_t n, double k) noexcept nogil:
    cdef Py_ssize_t start = 0
    cdef double total = 0.0, error = 0.0, part, added, back
    while start < n:
        part = block_sum(weights + start, counts + start, min(n - start, BLOCK), k)
        added = total + part
        back = added - total
        error += (total - (added - back)) + (part - back)
        total = added
        start += BLOCK
    return total + error


def sum_inverse_squares(const double[::1] weights, const double[::1] counts, double k):
    """np.sum(weights / np.maximum(counts - k, 1) ** 2)"""
    cdef double total
    if weights.shape[0] == 0:
        return 0.0
    with nogil:
        total = sum_of(&weights[0], &counts[0], weights.shape[0], k)
    return total
