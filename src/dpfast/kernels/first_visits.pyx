"""First-visit returns of trajectories, and their sums per state: one pass over flat states, rewards and offsets.

Trajectory j is the steps offsets[j] to offsets[j + 1], of which the first `horizon` count. Consecutive trajectories are
taken in batches that stay in the cache, each batch in three passes without a branch that data decide:

- `discount`: F_t = r_t + gamma F_(t+1), backwards, with a discount of 0 at last steps. Each step waits for the one
  before, so four parts of the batch go side by side, cut between trajectories.
- `list_visits`: forwards, the state and the return of every first visit, if it is among the first `counted` steps of
  the trajectory, are appended to a list. A state's stamp is the number of the last trajectory seen there.
- the list is scattered over the states. It holds a state once a trajectory, so additions hardly wait for each other.

Sums are of integers: a return F becomes the grid unit nearest (F - low) scale, clipped to [0, largest]. Every
operation on a trajectory is a function of that trajectory alone, and integers add in any order: the sums are the same
to the bit for any threads, order and splits. Plain sums, of the returns as they are, are for one thread, in the order
given.

The caller has checked: states within range, rewards below 1e200 in size, offsets that add up, none of them changed
meanwhile; `largest` below 2^32 and so few trajectories that sums stay below 2^63.
"""

import numpy as np

from cython cimport floating

from libc.stdint cimport int32_t, int64_t, uint8_t

ctypedef fused state_t:
    int32_t
    int64_t

cdef enum:
    LANES = 4
    BATCH_STEPS = 8192
    MOST_BATCH_STEPS = 65536  # while a batch has fewer trajectories than lanes

_MOST_STAMPS = (1 << 31) - 1


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
        if ends != NULL:
            ends[j] = n
        j += is_last[t]
        step = 0 if is_last[t] else step + 1
    return n


cdef void to_units(double* values, Py_ssize_t n, double low, double scale, double largest) noexcept nogil:
    """Replace values by the integers nearest (value - low) scale, ties to even, within [0, largest]."""
    cdef Py_ssize_t i
    cdef double unit
    for i in range(n):
        unit = (values[i] - low) * scale
        unit = unit if unit > 0.0 else 0.0
        unit = unit if unit < largest else largest
        # Where 2^52 is added the unit in the last place is 1.
        values[i] = (unit + 4503599627370496.0) - 4503599627370496.0


cdef void scatter(const int32_t* visited, const double* units, Py_ssize_t n, int64_t* totals) noexcept nogil:
    cdef Py_ssize_t i
    cdef int64_t* total
    for i in range(n):
        total = totals + 2 * <Py_ssize_t>visited[i]
        total[0] += <int64_t>units[i]
        total[1] += 1


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

    Attributes
    ----------
    totals : ndarray of int64 (n_states, 2)
        Of `add`: sum of returns in grid units, and number of visits.
    """

    cdef double gamma, low, scale, largest
    cdef int64_t horizon, counted
    cdef int32_t stamp
    cdef Py_ssize_t n_steps
    cdef Py_ssize_t edges[LANES + 1]
    cdef int32_t[::1] stamps, visited
    cdef double[::1] discounts, returns, values
    cdef uint8_t[::1] is_last
    cdef readonly object totals
    cdef int64_t[:, ::1] _totals

    def __init__(self, n_states, gamma, horizon, longest, *, counted=None, low=0.0, scale=1.0, largest=0.0):
        self.gamma, self.low, self.scale, self.largest = gamma, low, scale, largest
        self.horizon = horizon
        self.counted = horizon if counted is None else counted
        self.stamp = 1
        self.stamps = np.zeros(n_states, np.int32)
        most_steps = max(min(LANES * longest, MOST_BATCH_STEPS), BATCH_STEPS) + longest
        self.visited = np.empty(most_steps, np.int32)
        self.discounts = np.full(most_steps, self.gamma)
        self.returns, self.values = np.empty(most_steps), np.empty(most_steps)
        self.is_last = np.zeros(most_steps, np.uint8)
        self.totals = np.zeros((n_states, 2), np.int64)
        self._totals = self.totals

    def add(
            self, const state_t[::1] states, const floating[::1] rewards, const int64_t[::1] offsets, Py_ssize_t first,
            Py_ssize_t last):
        """Add the first visits of the trajectories first to last, at least one, to the totals."""
        cdef Py_ssize_t n, n_visits
        self._reserve_stamps(last - first)
        with nogil:
            while first < last:
                n = self._open_batch(&offsets[0], first, last)
                discount(&rewards[offsets[first]], &self.discounts[0], self.edges, &self.returns[0])
                n_visits = list_visits(
                    &states[offsets[first]], &self.returns[0], &self.is_last[0], self.n_steps, self.counted,
                    False, &self.stamps[0], self.stamp, &self.visited[0], &self.values[0], NULL)
                to_units(&self.values[0], n_visits, self.low, self.scale, self.largest)
                scatter(&self.visited[0], &self.values[0], n_visits, &self._totals[0, 0])
                self._close_batch(&offsets[0], first, n)
                first += n

    def add_plain(
            self, const state_t[::1] states, const floating[::1] rewards, const int64_t[::1] offsets, bint every,
            double[::1] sums, int64_t[::1] counts):
        """sums, counts += the returns, as they are, of all trajectories' first visits, or of all visits."""
        cdef Py_ssize_t i, n, n_visits, first = 0, last = offsets.shape[0] - 1
        self._reserve_stamps(last)
        with nogil:
            while first < last:
                n = self._open_batch(&offsets[0], first, last)
                discount(&rewards[offsets[first]], &self.discounts[0], self.edges, &self.returns[0])
                n_visits = list_visits(
                    &states[offsets[first]], &self.returns[0], &self.is_last[0], self.n_steps, self.counted,
                    every, &self.stamps[0], self.stamp, &self.visited[0], &self.values[0], NULL)
                for i in range(n_visits):
                    sums[self.visited[i]] += self.values[i]
                    counts[self.visited[i]] += 1
                self._close_batch(&offsets[0], first, n)
                first += n

    def list_units(
            self, const state_t[::1] states, const floating[::1] rewards, const int64_t[::1] offsets, Py_ssize_t first,
            Py_ssize_t last, int32_t[::1] visited, double[::1] units, int64_t[::1] ends):
        """Write the first visits of the trajectories first to last: states, returns in grid units, where each ends.

        The first two hold as many entries as the trajectories have steps; returns how many are used.
        """
        cdef Py_ssize_t i, n, n_visits, n_listed = 0, start = first
        self._reserve_stamps(last - first)
        with nogil:
            while first < last:
                n = self._open_batch(&offsets[0], first, last)
                discount(&rewards[offsets[first]], &self.discounts[0], self.edges, &self.returns[0])
                n_visits = list_visits(
                    &states[offsets[first]], &self.returns[0], &self.is_last[0], self.n_steps, self.counted,
                    False, &self.stamps[0], self.stamp, &visited[n_listed], &self.values[0], &ends[first - start])
                to_units(&self.values[0], n_visits, self.low, self.scale, self.largest)
                for i in range(n_visits):
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
        if self.stamp > _MOST_STAMPS - n:
            self.stamps[:] = 0
            self.stamp = 1

    cdef Py_ssize_t _open_batch(self, const int64_t* offsets, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
        """Take trajectories from `first` on, up to one that the horizon cuts; returns how many."""
        cdef Py_ssize_t n = 0, n_steps = 0, lane = 1, j, end
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
        for j in range(n):
            end = min(offsets[first + j + 1] - start, n_steps)
            while lane < LANES and end * LANES >= n_steps * lane:
                self.edges[lane] = end
                lane += 1
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
