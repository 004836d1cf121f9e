"""First visits of trajectories to states: returns and their sums, moments of each trajectory, and sums over counts."""

import numpy as np

from cython cimport floating

from libc.math cimport INFINITY, rint, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

# First-visit returns of trajectories, and their sums per state: one pass over flat states, rewards and offsets.
#
# Trajectory j is the steps offsets[j] to offsets[j + 1], of which the first `horizon` count. Consecutive trajectories are
# taken in batches that stay in the cache, each batch in three passes without a branch that data decide:
#
# - `discount`: F_t = r_t + gamma F_(t+1), backwards, with a discount of 0 at last steps. Each step waits for the one
#   before, so four parts of the batch go side by side, cut between trajectories.
# - `dpfast_to_units`: returns become integers.
# - `dpfast_tally`: forwards, among the first `counted` steps of each trajectory, units are added to the sums of a state
#   unless its stamp is the trajectory's: that is the number of the last trajectory seen there. Memory has the time to
#   bring the rewards of the batch that follows.
#
# Where visits are to be known one by one, `list_visits` takes the place of the last: states and returns of first visits
# are appended to a list.
#
# Sums are of integers: a return F becomes the grid unit nearest (F - low) scale, clipped to [0, largest]. Every
# operation on a trajectory is a function of that trajectory alone, and integers add in any order: the sums are the same
# to the bit for any threads, order and splits. Plain sums, of the returns as they are, are for one thread, in the order
# given.
#
# The caller has checked: states within range, rewards below 1e200 in size, offsets that add up, none of them changed
# meanwhile; `largest` below 2^32, fewer than 2^32 trajectories and so few that sums stay below 2^63.

cdef extern from "first_visits.c":
    ctypedef struct dpfast_state_sums:
        int64_t units
        uint32_t count
        int32_t stamp

    int dpfast_cpu_level() nogil
    void dpfast_to_units(double* values, Py_ssize_t n, double low, double scale, double largest, int level) nogil
    void dpfast_tally_int32(
        const int32_t* states, const int64_t* units, const uint8_t* is_last, Py_ssize_t n_steps, int32_t stamp,
        const char* following, dpfast_state_sums* sums, bint sums_are_far) nogil
    void dpfast_tally_int64(
        const int64_t* states, const int64_t* units, const uint8_t* is_last, Py_ssize_t n_steps, int32_t stamp,
        const char* following, dpfast_state_sums* sums, bint sums_are_far) nogil

ctypedef fused state_t:
    int32_t
    int64_t

cdef enum:
    LANES = 4
    BATCH_STEPS = 8192
    MOST_BATCH_STEPS = 65536  # while a batch has fewer trajectories than lanes
    STATES_IN_CACHE = 2048  # whose sums stay in the first level of the cache

_MOST_STAMPS = (1 << 31) - 1
_STATE_SUMS = np.dtype([("units", np.int64), ("count", np.uint32), ("stamp", np.int32)])


cdef void discount(
        const floating* rewards, const double* discounts, const Py_ssize_t* edges, double* out) noexcept nogil:
    """out = the returns of a batch whose lane l is the steps edges[l] to edges[l + 1]."""
    cdef const floating* reward[LANES]
    cdef const double* gamma[LANES]
    cdef double* to[LANES]
    cdef double value[LANES]
    cdef Py_ssize_t lane, i, shortest = edges[1]
    for lane in range(LANES):
        shortest = min(shortest, edges[lane + 1] - edges[lane])
        reward[lane] = rewards + edges[lane + 1] - 1
        gamma[lane] = discounts + edges[lane + 1] - 1
        to[lane] = out + edges[lane + 1] - 1
        value[lane] = 0.0
    for i in range(shortest):
        for lane in range(LANES):
            value[lane] = reward[lane][-i] + gamma[lane][-i] * value[lane]
            to[lane][-i] = value[lane]
    for lane in range(LANES):
        for i in range(shortest, edges[lane + 1] - edges[lane]):
            value[lane] = reward[lane][-i] + gamma[lane][-i] * value[lane]
            to[lane][-i] = value[lane]


cdef inline Py_ssize_t list_visits(
        const state_t* states, const double* returns, const uint8_t* is_last, Py_ssize_t n_steps, int64_t counted,
        bint every, int32_t* stamps, int32_t stamp, int32_t* visited, double* values, int64_t* ends) noexcept nogil:
    """List the first visits of a batch, or all visits; returns how many. The first j + 1 trajectories have ends[j]."""
    cdef Py_ssize_t t, n = 0, j = 0
    cdef int64_t step = 0
    cdef int32_t state
    for t in range(n_steps):
        state = <int32_t>states[t]
        visited[n] = state
        values[n] = returns[t]
        n += (every | (stamps[state] != stamp + <int32_t>j)) & (step < counted)
        stamps[state] = stamp + <int32_t>j
        ends[j] = n
        j += is_last[t]
        step = 0 if is_last[t] else step + 1
    return n


cdef inline void tally(
        const state_t* states, const int64_t* units, const uint8_t* is_last, Py_ssize_t n_steps, int32_t stamp,
        const char* following, dpfast_state_sums* sums, bint sums_are_far) noexcept nogil:
    if state_t is int32_t:
        dpfast_tally_int32(states, units, is_last, n_steps, stamp, following, sums, sums_are_far)
    else:
        dpfast_tally_int64(states, units, is_last, n_steps, stamp, following, sums, sums_are_far)


cdef class FirstVisits:
    """First visits of the trajectories one thread has seen, and their sums; see the module's comment.

    Parameters
    ----------
    n_states : int
        Below 2**31.
    gamma : float
        The discount.
    horizon : int
        Steps of a trajectory that count.
    longest : int
        No trajectory given later has more steps that count.
    counted : int
        Steps of a trajectory, from its first, at which visits count; their returns go on to the horizon.
    low, scale, largest : float
        The grid: returns become integers near ``(F - low) * scale`` in ``[0, largest]``.
    """

    cdef double gamma, low, scale, largest
    cdef int64_t horizon, counted
    cdef int32_t stamp
    cdef Py_ssize_t n_steps
    cdef Py_ssize_t edges[LANES + 1]
    cdef Py_ssize_t longest
    cdef int level
    cdef dpfast_state_sums[::1] sums
    cdef int32_t[::1] stamps
    cdef double[::1] discounts, returns, values
    cdef uint8_t[::1] is_last

    def __init__(self, n_states, gamma, horizon, longest, *, counted=None, low=0.0, scale=1.0, largest=0.0):
        self.gamma, self.low, self.scale, self.largest = gamma, low, scale, largest
        self.horizon = horizon
        self.counted = horizon if counted is None else counted
        self.longest = longest
        self.level = dpfast_cpu_level()
        self.stamp = 1
        self.sums = np.zeros(n_states, _STATE_SUMS)
        self.stamps = np.zeros(n_states, np.int32)  # of lists
        most_steps = max(min(LANES * longest, MOST_BATCH_STEPS), BATCH_STEPS) + longest
        self.discounts = np.full(most_steps, self.gamma)
        self.returns, self.values = np.empty(most_steps), np.empty(most_steps)
        self.is_last = np.zeros(most_steps, np.uint8)

    def add(
            self, const state_t[::1] states, const floating[::1] rewards, const int64_t[::1] offsets, Py_ssize_t first,
            Py_ssize_t last):
        """Add the first visits of the trajectories first to last, at least one, to the sums of their states."""
        cdef Py_ssize_t n, j, begin
        cdef bint all_count = self.counted >= self.longest, are_far = self.sums.shape[0] > STATES_IN_CACHE
        cdef const state_t* state
        cdef const floating* reward
        cdef const int64_t* units = <const int64_t*>&self.returns[0]
        self._reserve_stamps(last - first)
        with nogil:
            while first < last:
                n = self._open_batch(&offsets[0], first, last)
                state, reward = &states[offsets[first]], &rewards[offsets[first]]
                discount(reward, &self.discounts[0], self.edges, &self.returns[0])
                dpfast_to_units(&self.returns[0], self.n_steps, self.low, self.scale, self.largest, self.level)
                if all_count:
                    tally(
                        state, units, &self.is_last[0], self.n_steps, self.stamp, <const char*>(reward + self.n_steps),
                        &self.sums[0], are_far)
                else:
                    for j in range(n):
                        begin = offsets[first + j] - offsets[first]
                        tally(
                            state + begin, units + begin, &self.is_last[begin],
                            min(offsets[first + j + 1] - offsets[first + j], self.counted), self.stamp + <int32_t>j,
                            <const char*>(reward + self.n_steps + begin), &self.sums[0], are_far)
                self._close_batch(&offsets[0], first, n)
                first += n

    def add_to(self, int64_t[::1] units, int64_t[::1] counts):
        """units, counts += of each state, the sum of what `add` has added, in grid units, and the number of visits."""
        cdef Py_ssize_t i
        if units.shape[0] != self.sums.shape[0] or counts.shape[0] != self.sums.shape[0]:
            raise ValueError("there must be a sum and a count for each state")
        with nogil:
            for i in range(self.sums.shape[0]):
                units[i] += self.sums[i].units
                counts[i] += self.sums[i].count

    def list_units(
            self, const state_t[::1] states, const floating[::1] rewards, const int64_t[::1] offsets, Py_ssize_t first,
            Py_ssize_t last, int32_t[::1] visited, double[::1] units, int64_t[::1] ends, bint every=False):
        """Write the first visits of the trajectories first to last, or all: states, returns, where each ends.

        Returns are in grid units, or as they are without a grid. The first two hold as many entries as the trajectories
        have steps; returns how many are used.
        """
        cdef Py_ssize_t i, n, n_visits, n_listed = 0, start = first
        self._reserve_stamps(last - first)
        with nogil:
            while first < last:
                n = self._open_batch(&offsets[0], first, last)
                discount(&rewards[offsets[first]], &self.discounts[0], self.edges, &self.returns[0])
                n_visits = list_visits(
                    &states[offsets[first]], &self.returns[0], &self.is_last[0], self.n_steps, self.counted,
                    every, &self.stamps[0], self.stamp, &visited[n_listed], &self.values[0], &ends[first - start])
                if self.largest > 0.0:
                    dpfast_to_units(&self.values[0], n_visits, self.low, self.scale, self.largest, self.level)
                for i in range(n_visits):
                    if self.largest > 0.0:
                        self.values[i] = <double>(<const int64_t*>&self.values[0])[i]
                    units[n_listed + i] = self.values[i]
                for i in range(first - start, first - start + n):
                    ends[i] += n_listed
                n_listed += n_visits
                self._close_batch(&offsets[0], first, n)
                first += n
        return n_listed

    def use_stamps_up_to(self, stamp):
        """Go on with the stamp after a given one, as if so many trajectories had been seen."""
        self.stamp = stamp

    def _reserve_stamps(self, n):
        cdef Py_ssize_t i
        if self.stamp > _MOST_STAMPS - n:
            self.stamps[:] = 0
            for i in range(self.sums.shape[0]):
                self.sums[i].stamp = 0
            self.stamp = 1

    cdef Py_ssize_t _open_batch(self, const int64_t* offsets, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        """Take trajectories from `first` on, up to one that the horizon cuts; returns how many."""
        cdef Py_ssize_t n = 0, n_steps = 0, lane, low, high, j
        cdef int64_t start = offsets[first], length
        while first + n < last and n_steps < MOST_BATCH_STEPS and (n_steps < BATCH_STEPS or n < LANES):
            length = offsets[first + n + 1] - offsets[first + n]
            n_steps += min(length, self.horizon)
            self.discounts[n_steps - 1] = 0.0
            self.is_last[n_steps - 1] = 1
            n += 1
            if length > self.horizon:
                break
        self.n_steps = n_steps
        self.edges[0], self.edges[LANES] = 0, n_steps
        for lane in range(1, LANES):
            # The first end of a trajectory that is as far as a lane of equal parts would begin.
            low, high = 0, n - 1
            while low < high:
                j = (low + high) // 2
                if (offsets[first + j + 1] - start) * LANES < n_steps * lane:
                    low = j + 1
                else:
                    high = j
            self.edges[lane] = min(offsets[first + low + 1] - start, n_steps)
        return n

    cdef void _close_batch(self, const int64_t* offsets, Py_ssize_t first, Py_ssize_t n) noexcept nogil:
        """Undo the marks of last steps."""
        cdef Py_ssize_t j, end
        for j in range(n):
            end = min(offsets[first + j + 1] - offsets[first], self.n_steps)
            self.discounts[end - 1] = self.gamma
            self.is_last[end - 1] = 0
        self.stamp += <int32_t>n


cdef inline int is_bad(state_t state, floating reward, int64_t n_states, double most) noexcept nogil:
    return (state < 0) | (state >= n_states) | (not (reward >= -most)) | (not (reward <= most))


def first_bad_step(const state_t[::1] states, const floating[::1] rewards, int64_t n_states, double most):
    """Return the first step whose state is not one of 0 to n_states - 1, or whose reward is beyond `most` or NaN; -1."""
    cdef Py_ssize_t t, start = 0, stop, n_steps = states.shape[0], found = -1
    cdef int bad
    with nogil:
        while start < n_steps and found < 0:
            stop = min(start + BATCH_STEPS, n_steps)
            bad = 0
            for t in range(start, stop):
                bad |= is_bad(states[t], rewards[t], n_states, most)
            if bad:
                found = start
                while not is_bad(states[found], rewards[found], n_states, most):
                    found += 1
            start = stop
    return found


# Sums over trajectories of weights, and of weights times returns, at the states each visits, clipped to two norms.
#
# A trajectory adds a_s = t W_s and b_s = t W_s u_s scale to the states it visits first (W_s integer weights, u_s its
# returns in grid units), each rounded to the nearest integer; t is 1 if the norms of both vectors are within their bounds,
# else the one factor that brings them there. Norms and t are computed in floating point, to within 2^-31 of themselves for
# up to 2^20 states; entries are below 2^31, so they err by less than 2^-20 before they are rounded. Hence
# ||a|| <= bound_a (1 + 2^-30) + sqrt(n) (1/2 + 2^-20) with n states visited, and b likewise.
#
# The caller has checked this, and that there are so few trajectories that sums stay below 2^63.

def add_diagonal(
        const int32_t[::1] visited, const double[::1] units, const int64_t[::1] ends, Py_ssize_t n,
        const double[::1] weights, double scale, double bound_a, double bound_b, int64_t[:, ::1] totals):
    """totals[:, 0], totals[:, 1] += a, b of n trajectories, the first visits of which end at `ends`."""
    cdef Py_ssize_t i, j, start = 0
    cdef double squared_a, squared_b, a, b, factor
    cdef bint bounded = bound_a < INFINITY or bound_b < INFINITY
    with nogil:
        for j in range(n):
            factor = 1.0
            if bounded:
                squared_a = squared_b = 0.0
                for i in range(start, ends[j]):
                    a = weights[visited[i]]
                    b = a * units[i] * scale
                    squared_a += a * a
                    squared_b += b * b
                if squared_a > bound_a * bound_a:
                    factor = bound_a / sqrt(squared_a)
                if squared_b > bound_b * bound_b:
                    factor = min(factor, bound_b / sqrt(squared_b))
            for i in range(start, ends[j]):
                a = factor * weights[visited[i]]
                totals[visited[i], 0] += <int64_t>rint(a)
                totals[visited[i], 1] += <int64_t>rint(a * units[i] * scale)
            start = ends[j]


# Sums of weights over squared clipped counts: the work of one step of the smooth sensitivity of DP-LSW.
#
# The relative error is below 2^-46, whatever the length: a term errs by two roundings, a block of 512 terms is summed in 8
# lanes, 64 additions each and 3 more, and blocks' sums are added with the error of each addition carried along (two-sum),
# which leaves one rounding and second-order terms. Lanes and blocks are fixed, so the bits are too.
#
# The caller has checked that counts are integers from 0 to 2^53 and weights are 0 or normal, far from overflow.

cdef enum:
    SUM_LANES = 8
    SUM_BLOCK = 512


cdef inline double term(double weight, double count, double k) noexcept nogil:
    cdef double left = count - k
    left = left if left > 1.0 else 1.0
    return weight / (left * left)


cdef double block_sum(const double* weights, const double* counts, Py_ssize_t n, double k) noexcept nogil:
    cdef double lanes[SUM_LANES]
    cdef Py_ssize_t i, lane, whole = n - n % SUM_LANES
    for lane in range(SUM_LANES):
        lanes[lane] = 0.0
    i = 0
    while i < whole:
        for lane in range(SUM_LANES):
            lanes[lane] += term(weights[i + lane], counts[i + lane], k)
        i += SUM_LANES
    for lane in range(n - whole):
        lanes[lane] += term(weights[whole + lane], counts[whole + lane], k)
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))


cdef double sum_of_inverse_squares(const double* weights, const double* counts, Py_ssize_t n, double k) noexcept nogil:
    cdef Py_ssize_t start = 0
    cdef double total = 0.0, error = 0.0, part, added, back
    while start < n:
        part = block_sum(weights + start, counts + start, min(n - start, SUM_BLOCK), k)
        added = total + part
        back = added - total
        error += (total - (added - back)) + (part - back)
        total = added
        start += SUM_BLOCK
    return total + error


def sum_inverse_squares(const double[::1] weights, const double[::1] counts, double k):
    """np.sum(weights / np.maximum(counts - k, 1) ** 2)"""
    cdef double total
    if weights.shape[0] == 0:
        return 0.0
    with nogil:
        total = sum_of_inverse_squares(&weights[0], &counts[0], weights.shape[0], k)
    return total
