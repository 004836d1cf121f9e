"""Trajectories as people have them, as flat steps: episodes, frames, Parquet files, Gymnasium, Minari.

`dpfast.io.trajectories` checks the returned values; undeclared states are -1 here. None of the libraries is imported:
whoever has their objects has done so, and pyarrow is imported to read a file.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import index
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import IntArray
from dpfast._redacted import redact_errors
from dpfast.io.blocks import is_unordered
from dpfast.io.columns import DeclaredFiles, Part, table_parts
from dpfast.io.frames import Batch, FrameBatch
from dpfast.io.people import numbered_column, people
from dpfast.io.sources import is_arrow, is_dask, is_frame, is_path
from dpfast.io.states import Encode, StateEncoder

_NO_STEP = "an episode has a step that is not (state, reward) or (state, action, reward)"
_NO_STEPS = (
    "an episode must list its steps, (state, reward) or (state, action, reward): dicts and pairs of lists have none; "
    "make steps of them by zip, such as list(zip(states, rewards))"
)
_NO_REWARD = "an episode has a reward that is not a real number"
_NO_INTEGER = (
    "an episode has a state that is not an integer: list all states there are in `states` instead of giving n_states"
)
# Up to which doubles hold every integer.
_EXACT_INTEGERS = 2.0**53

#: From an observation to an action, or the action of each state.
Policy: TypeAlias = Callable[[Any], Any] | ArrayLike


class Flat(NamedTuple):
    """The arguments of `Trajectories`, unchecked."""

    states: NDArray[Any]
    rewards: NDArray[Any]
    offsets: IntArray
    truncated: NDArray[np.bool_] | None = None


class Names(NamedTuple):
    """The columns of a long table."""

    trajectory: str
    state: str
    reward: str
    step: str | None
    truncated: str | None

    @classmethod
    def of(cls, trajectory: str, state: str, reward: str, step: str | None, truncated: str | bool | None) -> Names:
        """Name the columns, each by a label; a flag for all trajectories is no column."""
        names = cls(trajectory, state, reward, step, None if isinstance(truncated, bool) else truncated)
        for argument, name in names._asdict().items():
            if argument not in ("step", "truncated") or name is not None:
                check.label(argument, name)
        return names

    def listed(self) -> list[str]:
        """Return the columns there are, one of two roles once."""
        return list(dict.fromkeys(name for name in self if name is not None))

    def check(self, columns: Container[str], table: str) -> None:
        """Refuse a table without one of them."""
        for name in self.listed():
            if name not in columns:
                raise ValueError(f"{table} has no column {name!r}")


def _flat(trajectories: Iterable[tuple[Iterable[int], Iterable[float]]]) -> Flat:
    """Flatten the states and the rewards of one trajectory after another."""
    states: list[int] = []
    rewards: list[float] = []
    offsets = [0]
    for seen, received in trajectories:
        states.extend(seen)
        rewards.extend(received)
        offsets.append(len(states))
    return Flat(np.array(states, np.int64), np.array(rewards, np.float64), np.array(offsets))


def from_episodes(episodes: Iterable[Iterable[Sequence[Any]]], encoder: StateEncoder | None) -> Flat:
    """Flatten lists of (state, reward) or (state, action, reward), or Minari's episodes, with their flags."""
    cut: list[bool | None] = []
    check_no_table(episodes)

    def read(episode: Iterable[Sequence[Any]]) -> tuple[Iterable[int], list[float]]:
        values, rewards = [], []
        is_listed = is_episode(episode) or hasattr(episode, "__iter__")
        if not is_listed or isinstance(episode, Mapping) or _is_of_lists(episode):
            raise TypeError(_NO_STEPS)
        cut.append(_is_truncated(episode) if is_episode(episode) else None)
        if is_episode(episode):
            rewards = _rewards(episode)
            values = [_named(seen) for seen in _first(cast(Any, episode).observations, len(rewards))]
            episode = ()
        for step in episode:
            if isinstance(step, Mapping):
                raise TypeError(_NO_STEPS)
            if not isinstance(step, Sequence | np.ndarray) or len(step) not in (2, 3):
                raise ValueError(_NO_STEP)
            values.append(step[0])
            rewards.append(redact_errors(partial(float, step[-1]), _NO_REWARD, TypeError))
        return _integers(values) if encoder is None else encoder.codes(values).tolist(), rewards

    return _flagged(_flat(read(one) for one in episodes), cut)


def check_no_table(episodes: object) -> None:
    """Refuse a table, or a single thing, in the place of episodes."""
    if not hasattr(episodes, "__iter__"):
        raise TypeError(f"episodes must be an iterable of lists of steps, got {type(episodes).__name__}")
    if hasattr(episodes, "columns") or getattr(episodes, "ndim", 1) == 2:
        raise TypeError("a table is no list of episodes: Trajectories.from_frame reads it")


def _is_of_lists(episode: object) -> bool:
    """Whether an episode is a tuple of lists, not a list of steps: each list would be read as a step."""
    return isinstance(episode, tuple) and bool(episode) and all(isinstance(one, list | np.ndarray) for one in episode)


def _integers(values: list[Any]) -> list[int]:
    numbers = redact_errors(lambda: [index(value) for value in values], _NO_INTEGER, TypeError)
    # Beyond 64 bits it is certainly not declared.
    return [number if -1 <= number < 1 << 62 else -1 for number in numbers]


def from_table(table: Any, names: Names, encoder: StateEncoder | None) -> Flat:
    """Flatten a long table with rows in any order: it is read once, some rows at a time."""
    if names.step is None and is_unordered(table):
        raise TypeError("frame is a query, whose rows come in no fixed order: name the column of steps, step=...")
    return flattened(Rows.joined(list(_rows_of(table, names, encoder, {})), names), names)


def flattened(rows: Rows, names: Names) -> Flat:
    """Flatten rows in any order, those of a trajectory by their steps, or as they come."""
    whose = people(rows.ids, max(1, len(rows.states)))
    order = whose.order
    if rows.steps is not None and names.step is not None:
        order = _sorted_by_step(rows.steps, order, whose.offsets, names.step)
    if order is not None:
        rows = Rows._make(None if one is None else one[order] for one in rows)
    flags = None if rows.truncated is None else _of_trajectories(rows.truncated, whose.offsets)
    return Flat(rows.states, rows.rewards, whose.offsets, flags)


def _of_trajectories(flags: NDArray[np.bool_], offsets: IntArray) -> NDArray[np.bool_]:
    """Return whether each trajectory has a row that is flagged."""
    return np.logical_or.reduceat(flags, offsets[:-1]) if len(flags) else flags


def _sorted_by_step(steps: NDArray[Any], order: IntArray | None, offsets: IntArray, name: str) -> IntArray | None:
    """Sort the rows of each trajectory by step; None if rows are in order as they come."""
    if steps.dtype.kind not in "iufmM":
        raise TypeError(f"column {name!r} must hold numbers or times, got dtype {steps.dtype}")
    ordered = steps if order is None else steps[order]
    rising = ordered[1:] > ordered[:-1]
    rising[offsets[1:-1] - 1] = True
    if rising.all():
        return order
    number = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    by_step = np.lexsort((ordered, number))
    ordered = ordered[by_step]
    if np.any((ordered[1:] == ordered[:-1]) & (number[1:] == number[:-1])):
        raise ValueError(f"a trajectory has the same {name!r} twice")
    return by_step if order is None else order[by_step]


def iter_sorted(table: Any, names: Names, encoder: StateEncoder | None, block_steps: int) -> Iterator[Flat]:
    """Cut a sorted table into blocks of whole trajectories, of at least so many steps but for the last."""
    pending: list[Rows] = []
    n_pending, last_start = 0, 0
    for rows in _rows_of(table, names, encoder):
        starts = _starts(rows.ids)
        if len(starts) > 1 or (pending and pending[-1].ids[-1] != rows.ids[0]):
            last_start = n_pending + int(starts[-1])
        pending.append(rows)
        n_pending += len(rows.ids)
        # The last trajectory may go on in the next rows.
        if last_start >= block_steps:
            whole = Rows.joined(pending, names)
            yield whole.flat(names, last_start)
            pending, n_pending, last_start = [whole.after(last_start)], n_pending - last_start, 0
    if n_pending > 0:
        yield Rows.joined(pending, names).flat(names, n_pending)


class Rows(NamedTuple):
    """Rows of a long table: the owner, the state, the reward, the place and the flag of each."""

    ids: NDArray[Any]
    states: NDArray[Any]
    rewards: NDArray[Any]
    steps: NDArray[Any] | None
    truncated: NDArray[np.bool_] | None

    @classmethod
    def joined(cls, parts: list[Rows], names: Names) -> Rows:
        """Return the rows of all parts."""
        if not parts:
            flags = None if names.truncated is None else np.empty(0, np.bool_)
            return cls(np.empty(0), np.empty(0, np.int64), np.empty(0), None, flags)
        if len(parts) == 1:
            return parts[0]
        return cls._make(
            None if several[0] is None else np.concatenate(several) for several in zip(*parts, strict=True)
        )

    def after(self, start: int) -> Rows:
        """Return the rows from `start` on, as copies: rows before need not stay in memory."""
        return Rows._make(None if one is None else one[start:].copy() for one in self)

    def flat(self, names: Names, stop: int) -> Flat:
        """Return the trajectories up to `stop`, having checked that these, and a row there, are sorted."""
        starts = _starts(self.ids)
        if not _rises(self.ids[starts], names.trajectory).all():
            raise ValueError(f"trajectories do not come one after another in {names.trajectory!r}: rows must be sorted")
        if self.steps is not None:
            rising = _rises(self.steps, names.step)
            rising[starts[1:] - 1] = True
            if not rising.all():
                raise ValueError(f"a trajectory is not sorted by {names.step!r}")
        offsets = np.append(starts[starts < stop], stop)
        flags = None if self.truncated is None else _of_trajectories(self.truncated[:stop], offsets)
        return Flat(self.states[:stop], self.rewards[:stop], offsets, flags)


def _rises(values: NDArray[Any], name: str | None) -> NDArray[np.bool_]:
    """Return whether each entry but the first is above the one before."""
    problem = f"column {name!r} has entries that cannot be put in order"
    return redact_errors(lambda: (values[1:] > values[:-1]).astype(bool), problem, TypeError)


def _starts(ids: NDArray[Any]) -> IntArray:
    return np.flatnonzero(np.concatenate([[True], (ids[1:] != ids[:-1]).astype(bool)]))


def _rows_of(
    table: Any, names: Names, encoder: StateEncoder | None, numbers: dict[Hashable, int] | None = None
) -> Iterator[Rows]:
    """Iterate over rows, with ids as they are; or, where `numbers` are given, in any order, and with numbers of ids.

    A frame's come at once then, as views of it where they can, and its ids are as they are.
    """
    if not (is_path(table) or is_frame(table) or is_arrow(table) or is_dask(table) or isinstance(table, DeclaredFiles)):
        raise check.mistyped("frame", "a table with named columns, of pandas, Polars, DuckDB or Arrow", table)
    kinds = dict.fromkeys(names.listed(), "text") | {names.reward: "number"}
    kinds |= {} if names.step is None else {names.step: "number"}
    kinds |= {} if names.truncated is None else {names.truncated: "boolean"}
    if encoder is None or not isinstance(encoder.states[0], str):
        kinds[names.state] = "number"
    is_whole = numbers is not None and is_frame(table)
    for part in table_parts(table):
        names.check(part.names, part.label)
        _check_kinds(part, names, has_numbers=encoder is None)
        for batch in [FrameBatch(table)] if is_whole else part.read(kinds):
            if len(batch) > 0:
                name = names.trajectory
                yield Rows(
                    batch.plain(name) if numbers is None or is_whole else numbered_column(batch, name, numbers),
                    _states(batch, names.state, encoder),
                    batch.plain(names.reward, may_miss=True),
                    None if names.step is None else batch.plain(names.step),
                    None if names.truncated is None else batch.plain(names.truncated).astype(np.bool_),
                )


def _check_kinds(part: Part, names: Names, *, has_numbers: bool) -> None:
    """Refuse columns with values of another kind; text files hold whatever is declared."""
    if part.families is None:
        return
    state, reward = (part.families[name] for name in (names.state, names.reward))
    if has_numbers and state.name != "number":
        raise TypeError(f"column {names.state!r} must hold integers with n_states: else give `states`")
    # Types within types, which Arrow does not compare.
    if "<" in state.dtype and not state.dtype.startswith("dictionary"):
        raise TypeError(f"column {names.state!r} must hold states that can be told apart, got {state.dtype}")
    if reward.name != "number":
        raise TypeError(f"column {names.reward!r} must hold real numbers, got {reward.dtype}: use .astype(float)")
    if names.truncated is not None and (found := part.families[names.truncated].dtype) not in ("bool", "boolean"):
        raise TypeError(f"column {names.truncated!r} must hold booleans, none missing, got {found}")


def _states(batch: Batch, name: str, encoder: StateEncoder | None) -> NDArray[Any]:
    """Return the number of each state; -1 for a number that is none."""
    if encoder is not None:
        return encoder.codes_in(batch, name)
    values = batch.plain(name, may_miss=True)
    if values.dtype.kind != "f":
        return values
    is_whole = (values == np.floor(values)) & (np.abs(values) < _EXACT_INTEGERS)
    return np.where(is_whole, values, -1.0).astype(np.int64)


def from_gymnasium(
    env: Any, policy: Policy, n_trajectories: int, horizon: int, seed: int | None, encode: Encode, n_states: int
) -> Flat:
    """Roll out a policy."""
    n_trajectories = check.positive_integer("n_trajectories", n_trajectories)
    horizon = check.positive_integer("horizon", horizon)
    if callable(policy):
        act = policy
    else:
        actions = np.asarray(policy)
        if actions.ndim != 1 or actions.dtype.kind not in "iu":
            raise TypeError("policy must be a function of the observation, or an array of one integer action a state")
        if len(actions) < n_states:
            raise ValueError(f"policy must have an action for each of the {n_states} states, got {len(actions)}")
        if not all(map(env.action_space.contains, actions)):
            raise ValueError(f"policy must have actions of the environment alone, {env.action_space}")

        def act(seen: Any) -> Any:
            return actions[encode(seen)]

    if seed is not None:
        env.action_space.seed(seed)

    cut: list[bool] = []

    def roll_out(position: int) -> tuple[list[int], list[float]]:
        states, rewards, terminated = [], [], False
        seen, _ = env.reset(seed=seed if position == 0 else None)
        for _ in range(horizon):
            states.append(encode(seen))
            seen, reward, terminated, truncated, _ = env.step(act(seen))
            rewards.append(float(reward))
            if terminated or truncated:
                break
        cut.append(not terminated)
        return states, rewards

    return _flat(roll_out(one) for one in range(n_trajectories))._replace(truncated=np.array(cut))


def minari_episodes(given: Any) -> tuple[Iterable[Any], Any]:
    """Return the episodes of a Minari dataset, one episode or several, and the space that it declares."""
    if hasattr(given, "iterate_episodes"):
        return given.iterate_episodes(), given.observation_space
    if is_episode(given):
        return [given], None
    if not isinstance(given, Iterable):
        raise TypeError(f"dataset must be of Minari, or its episodes, got {type(given).__name__}")
    return given, None


def is_episode(episode: object) -> bool:
    """Whether an object is a Minari EpisodeData, or of its form."""
    return hasattr(episode, "observations") and hasattr(episode, "rewards")


def from_minari(episodes: Iterable[Any], encode: Encode) -> Flat:
    """Flatten Minari's episodes, without the observation after the last action."""
    cut: list[bool | None] = []

    def read(episode: Any) -> tuple[Iterable[int], list[float]]:
        if not is_episode(episode):
            raise TypeError(f"dataset must hold Minari's episodes, got a {type(episode).__name__}")
        rewards = _rewards(episode)
        cut.append(_is_truncated(episode))
        return (encode(one) for one in _first(episode.observations, len(rewards))), rewards

    return _flagged(_flat(read(one) for one in episodes), cut)


def _flagged(flat: Flat, cut: list[bool | None]) -> Flat:
    """Return trajectories with their flags, if they have any."""
    # Whether there are is a matter of the form of episodes, as all have it or none.
    said = [flag for flag in cut if flag is not None]
    if 0 < len(said) < len(cut):
        raise ValueError("episodes must all have terminations, or none of them")
    return flat._replace(truncated=np.array(said, np.bool_)) if said else flat


def _is_truncated(episode: Any) -> bool | None:
    """Return whether an episode did not terminate; None if it has no flags."""
    terminations = getattr(episode, "terminations", None)
    return None if terminations is None else not bool(np.any(np.asarray(terminations, np.bool_)))


def _rewards(episode: Any) -> list[float]:
    problem = "an episode has rewards that are not a list of real numbers"
    return redact_errors(lambda: [float(one) for one in np.asarray(episode.rewards, np.float64)], problem, TypeError)


def _named(observation: Any) -> Any:
    """Return an observation as a state that can be looked up: arrays as numbers, and as tuples of them."""
    if isinstance(observation, np.ndarray):
        observation = observation.tolist()
    if isinstance(observation, list | tuple):
        return tuple(map(_named, observation))
    return observation


def _first(observations: Any, n: int) -> Iterator[Any]:
    """Iterate over the first observations of an episode, which Minari keeps as arrays in tuples or dictionaries."""
    if isinstance(observations, tuple):
        return zip(*(_first(part, n) for part in observations), strict=True)
    if isinstance(observations, dict):
        columns = zip(*(_first(part, n) for part in observations.values()), strict=True)
        return (dict(zip(observations, row, strict=True)) for row in columns)
    return iter(observations[:n])
