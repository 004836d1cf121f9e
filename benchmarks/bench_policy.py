"""First-visit sums against numba and NumPy, smooth sensitivity against a loop over k, in one process.

``python -m benchmarks.bench_policy`` prints the whole table; ``--stream STEPS FILE`` writes so many steps to a Parquet
file and measures the memory and speed of summing them from there (the file is left to be deleted by the caller).
"""

import sys
import time

import numpy as np

from benchmarks.timing import median_ratio, sized
from dpfast.statistics import Trajectories, first_visit_returns, smooth_sensitivity

GAMMA, RANGE = 0.99, (0.0, 100.0)
#: Seconds: numba's threads go on spinning after a loop, on the cores of whoever is timed next.
NUMBA_REST = 0.02
# States, mean steps of a trajectory, steps.
SIZES = [
    (40, 100, sized(1_000_000)),
    (1_000, 100, sized(1_000_000)),
    (100_000, 100, sized(1_000_000)),
    (1_000, 20, sized(4_000_000)),
]


def walks(n_states, mean_steps, n_steps):
    """Trajectories of half to one and a half times the mean length over states drawn uniformly."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(mean_steps // 2, mean_steps + mean_steps // 2 + 1, n_steps // mean_steps)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = rng.integers(0, n_states, offsets[-1], dtype=np.int32)
    return Trajectories(states, rng.random(offsets[-1]), offsets, n_states)


def numba_sums(n_threads):
    """The same in numba, parallel over ranges of trajectories."""
    import numba

    @numba.njit(parallel=True)
    def first_visit_sums(states, rewards, offsets, n_states, gamma, low, high, n_parts):
        m = len(offsets) - 1
        sums, counts = np.zeros((n_parts, n_states)), np.zeros((n_parts, n_states), np.int64)
        for part in numba.prange(n_parts):
            values, stamps = np.empty(n_states), np.full(n_states, -1, np.int64)
            for j in range(m * part // n_parts, m * (part + 1) // n_parts):
                value = 0.0
                for t in range(offsets[j + 1] - 1, offsets[j] - 1, -1):
                    value = rewards[t] + gamma * value
                    values[states[t]] = value
                for t in range(offsets[j], offsets[j + 1]):
                    state = states[t]
                    if stamps[state] != j:
                        stamps[state] = j
                        sums[part, state] += min(max(values[state], low), high)
                        counts[part, state] += 1
        return sums.sum(0), counts.sum(0)

    numba.set_num_threads(n_threads)
    return lambda t: first_visit_sums(t.states, t.rewards, t.offsets, t.n_states, GAMMA, *RANGE, n_threads)


def numpy_sums(t):
    """Backwards over steps, all trajectories at once; first visits are the first of each pair (trajectory, state)."""
    lengths = np.diff(t.offsets)
    returns = np.empty(t.n_steps)
    by_length = np.argsort(-lengths)
    ends, n_longer = t.offsets[1:][by_length] - 1, np.searchsorted(-lengths[by_length], -np.arange(lengths.max()))
    value = np.zeros(len(t))
    for back, n in enumerate(n_longer):
        steps = ends[:n] - back
        value[:n] = t.rewards[steps] + GAMMA * value[:n]
        returns[steps] = value[:n]
    pairs = np.repeat(np.arange(len(t)) * t.n_states, lengths) + t.states
    first = np.unique(pairs, return_index=True)[1]
    states = t.states[first]
    sums = np.bincount(states, weights=np.clip(returns[first], *RANGE), minlength=t.n_states)
    return sums, np.bincount(states, minlength=t.n_states)


def numpy_loop_over_k(counts, weights, beta, n_k):
    best = 0.0
    for k in range(n_k):
        best = max(best, np.exp(-k * beta) * np.sum(weights / np.maximum(counts - k, 1.0) ** 2))
    return best


class FirstVisits:
    params = (SIZES, [1, 2])
    param_names = ("size", "n_threads")
    timeout = 300

    def setup(self, size, n_threads):
        self.walks = walks(*size)
        self.ours = lambda: first_visit_returns(self.walks, GAMMA, return_range=RANGE, n_threads=n_threads)

    def time_first_visit_returns(self, size, n_threads):
        self.ours()

    def peakmem_first_visit_returns(self, size, n_threads):
        self.ours()

    def track_ratio_numba(self, size, n_threads):
        try:
            theirs = numba_sums(n_threads)
        except ImportError:
            return float("nan")
        return median_ratio(self.ours, lambda: theirs(self.walks), rounds=9, pause=NUMBA_REST)

    def track_ratio_numpy(self, size, n_threads):
        return median_ratio(self.ours, lambda: numpy_sums(self.walks), rounds=3)


def pandas_trajectories(frame):
    """The same arrays of rows that come in order, unchecked."""
    lengths = frame.groupby("who", sort=False).size().to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return frame["where"].to_numpy().copy(), frame["gain"].to_numpy(np.float64, copy=True), offsets


class Frame:
    """A frame of integers, one row a step, with the steps numbered or as they come."""

    params = ([None, "when"],)
    param_names = ("step",)

    def setup(self, step):
        import pandas as pd

        n = sized(1_000_000)
        rng = np.random.default_rng(0)
        columns = {"who": np.arange(n) // 10, "when": np.arange(n) % 10}
        self.frame = pd.DataFrame(columns | {"where": rng.integers(0, 100, n), "gain": rng.integers(0, 2, n)})
        names = {"trajectory": "who", "state": "where", "reward": "gain", "step": step}
        self.ours = lambda: Trajectories.from_frame(self.frame, 100, **names)

    def time_from_frame(self, step):
        self.ours()

    def track_ratio_pandas(self, step):
        return median_ratio(self.ours, lambda: pandas_trajectories(self.frame), rounds=9)


class SmoothSensitivity:
    """Counts up to a largest, of 1e5 states; NumPy's loop is timed on a thousandth of its k."""

    params = ([10**4, 10**5, 10**8], [1e-4, 1e-2, 1.0])
    param_names = ("largest_count", "beta")
    n_states = 100_000

    def setup(self, largest_count, beta):
        rng = np.random.default_rng(0)
        self.counts = rng.integers(0, largest_count, self.n_states)
        self.weights = rng.random(self.n_states)

    def time_smooth_sensitivity(self, largest_count, beta):
        smooth_sensitivity(self.counts, self.weights, beta)

    def track_ratio_numpy_loop(self, largest_count, beta):
        n_k = largest_count // 1000
        part = median_ratio(
            lambda: smooth_sensitivity(self.counts, self.weights, beta),
            lambda: numpy_loop_over_k(self.counts, self.weights, beta, min(n_k, 100)),
            rounds=3,
        )
        return part * largest_count / min(n_k, 100)


def write_steps(path, n_steps, mean_steps=100, n_states=1000):
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("id", pa.int64()), ("step", pa.int32()), ("state", pa.int32()), ("reward", pa.float64())])
    n_before = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for _ in range(n_steps // 1_000_000):
            block = walks(n_states, mean_steps, 1_000_000)
            lengths = np.diff(block.offsets)
            number = np.repeat(np.arange(len(block)), lengths)
            step = np.arange(block.n_steps) - np.repeat(block.offsets[:-1], lengths)
            columns = [number + n_before, step.astype(np.int32), block.states, block.rewards]
            writer.write_table(pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema))
            n_before += len(block)


def stream(n_steps, path):
    import resource
    from pathlib import Path

    from dpfast.io.arrow import parquet_batches

    write_steps(path, n_steps)
    start = time.perf_counter()
    for _ in parquet_batches(Path(path), None):
        pass
    decoding = time.perf_counter() - start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    names = {"trajectory": "id", "step": "step", "state": "state", "reward": "reward"}
    found = first_visit_returns(Trajectories.iter_sorted(path, 1000, **names), GAMMA, return_range=RANGE)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{n_steps} steps, {found.n_trajectories} trajectories: {seconds:.1f} s, bare decoding {decoding:.1f} s; most "
        f"resident {after / 2**10:.0f} MiB ({before / 2**10:.0f} MiB after decoding alone)"
    )


def main():
    if "--stream" in sys.argv:
        place = sys.argv.index("--stream")
        return stream(int(sys.argv[place + 1]), sys.argv[place + 2])
    for n_threads in (1, 2):
        theirs = numba_sums(n_threads)
        for size in SIZES:
            block = walks(*size)

            def ours(block=block, n_threads=n_threads):
                return first_visit_returns(block, GAMMA, return_range=RANGE, n_threads=n_threads)

            ratios = (
                median_ratio(ours, lambda block=block, theirs=theirs: theirs(block), 15, pause=NUMBA_REST),
                median_ratio(ours, lambda block=block: numpy_sums(block), 5),
            )
            print(f"{n_threads} thread(s) {size}: numba {ratios[0]:.2f}, numpy {ratios[1]:.1f}", flush=True)
    for largest_count in SmoothSensitivity.params[0]:
        for beta in SmoothSensitivity.params[1]:
            case = SmoothSensitivity()
            case.setup(largest_count, beta)
            start = time.perf_counter()
            case.time_smooth_sensitivity(largest_count, beta)
            seconds = time.perf_counter() - start
            ratio = case.track_ratio_numpy_loop(largest_count, beta)
            print(
                f"counts to {largest_count:.0e}, beta {beta}: {1e3 * seconds:.1f} ms, numpy loop {ratio:.0f}",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()
