"""Trajectories as flat arrays: the people of policy evaluation, each a sequence of states and rewards.

The set of states is public and declared, as a number of states or as a list of them, never taken from the data. Where
trajectories come from is in `dpfast.io.trajectory_sources`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfast import _arguments as check
from dpfast._arrays import IntArray
from dpfast._redacted import redact_errors, suppress_float_warnings
from dpfast.io import trajectory_sources as sources
from dpfast.io.sources import dtype_name, zero_copy_view
from dpfast.io.states import StateEncoder, declared_observations, declared_states
from dpfast.kernels import first_visits as kernel

_MOST_STATES = (1 << 31) - 1
# Sums of this many rewards stay finite for any number of steps.
_LARGEST_REWARD = 1e200


class Trajectories:
    """Trajectories in flat arrays. **Not private**: they belong to the owner of the data.

    Parameters
    ----------
    states : array_like of int (n_steps,)
        The state of every step, one trajectory after the other, from 0 to ``n_states - 1``. Copied; int32 stays so.
    rewards : array_like (n_steps,)
        The reward received on leaving that state (or on being in it, for a recorded terminal state); finite, below
        1e200 in size. Copied; float32 stays so.
    offsets : array_like of int (n_trajectories + 1,)
        Where each trajectory begins, and at last ``n_steps``; every trajectory has a step.
    n_states : int
        Number of states, below 2**31. Public: declared, not counted.
    encoder : StateEncoder, optional
        What the integers stand for.
    truncated : bool or array_like of bool (n_trajectories,), optional
        Whether each trajectory, or every one, went on after its last step, and only its record ends there; the others
        ended by themselves, and would have collected nothing more: Gymnasium's flag. Default: it is not known. That
        this is said is public. Copied.

    Attributes
    ----------
    states, rewards, offsets, truncated : ndarray, read-only
        The arrays; they must not be changed by other means either. `truncated` may be None.

    Raises
    ------
    TypeError, ValueError
        If kinds or lengths do not fit, a trajectory is empty, a state is unknown or a reward is not finite. Messages do
        not name the trajectory's owner, nor quote anything in it.

    Examples
    --------
    >>> from dpfast.statistics import Trajectories
    >>> trajectories = Trajectories([0, 1, 2, 1], [0.0, 0.0, 1.0, 0.5], [0, 3, 4], n_states=3)
    >>> trajectories
    <Trajectories over 3 states: not private>
    >>> len(trajectories), trajectories[1:].rewards
    (2, array([0.5]))
    """

    def __init__(
        self,
        states: ArrayLike,
        rewards: ArrayLike,
        offsets: ArrayLike,
        n_states: int,
        *,
        encoder: StateEncoder | None = None,
        truncated: bool | ArrayLike | None = None,
    ) -> None:
        number = check.positive_integer("n_states", n_states)
        if number > _MOST_STATES:
            raise ValueError(f"n_states must be below 2**31, got {number}")
        if encoder is not None and len(encoder) != number:
            raise ValueError(f"n_states is {number}, but encoder has {len(encoder)} states")
        flat = _checked(states, rewards, offsets, number)
        self.n_states, self.encoder = number, encoder
        self.states, self.rewards, self.offsets = map(_read_only, flat[:3])
        self.truncated = None if truncated is None else _read_only(_flags(truncated, len(flat.offsets) - 1))

    def _with(self, **checked: Any) -> Trajectories:
        """Return others, with some attributes that have been checked in the place of these."""
        other = object.__new__(type(self))
        read_only = {name: _read_only(one) if isinstance(one, np.ndarray) else one for name, one in checked.items()}
        other.__dict__ = vars(self) | read_only
        return other

    @classmethod
    def _of_flat(cls, flat: sources.Flat, number: int, encoder: StateEncoder | None, truncated: Any = None) -> Self:
        said = flat.truncated if truncated is None else truncated
        return cls(*flat[:3], number, encoder=encoder, truncated=said)

    def with_rewards(self, rewards: NDArray[np.float64]) -> Trajectories:
        """Return them with other rewards, which the caller has checked."""
        return self._with(rewards=rewards)

    def with_states(self, states: NDArray[np.int64], n_states: int) -> Trajectories:
        """Return them over other states, which the caller has checked."""
        return self._with(n_states=n_states, encoder=None, states=states)

    @classmethod
    @suppress_float_warnings
    def from_episodes(
        cls,
        episodes: Iterable[Iterable[Sequence[Any]]],
        n_states: int | None = None,
        *,
        states: Iterable[Hashable] | None = None,
        truncated: bool | ArrayLike | None = None,
    ) -> Trajectories:
        """Build from lists of steps.

        Parameters
        ----------
        episodes : iterable of iterable of tuple, or of EpisodeData
            Steps (state, reward) or (state, action, reward); or Minari's episodes.
        n_states : int, optional
            States are the integers from 0 to ``n_states - 1``. Either this or `states` is needed.
        states : iterable of hashable, optional
            All states there are: see `StateEncoder`.
        truncated : bool or array_like of bool, optional
            As for the class, in the order of the episodes. Default: the flags of Minari's, if they have any.

        Raises
        ------
        ValueError, TypeError
            As the class, or if a step has another form or a state is not an integer where integers were declared.

        Examples
        --------
        >>> from dpfast.statistics import Trajectories
        >>> trajectories = Trajectories.from_episodes([[("ill", 0.0), ("well", 1.0)]], states=["well", "ill"])
        >>> trajectories.states
        array([1, 0])
        """
        number, encoder = declared_states(n_states, states)
        return cls._of_flat(sources.from_episodes(episodes, encoder), number, encoder, truncated)

    @classmethod
    @suppress_float_warnings
    def from_frame(
        cls,
        frame: Any,
        n_states: int | None = None,
        *,
        trajectory: str,
        state: str,
        reward: str,
        step: str | None = None,
        truncated: str | bool | None = None,
        states: Iterable[Hashable] | None = None,
    ) -> Trajectories:
        """Build from a long table with one row a step.

        Parameters
        ----------
        frame : table
            A pandas DataFrame, a table that offers the Arrow C stream (of Polars, DuckDB, pyarrow), an Arrow Dataset, a
            Polars LazyFrame, or a path to Parquet or CSV files; rows in any order.
        n_states, states
            As for `from_episodes`.
        trajectory : str
            Column of whose step a row is.
        state : str
            Column of states.
        reward : str
            Column of rewards.
        step : str, optional
            Column of numbers or times by which the rows of a trajectory are sorted, no two alike. Default: the order of
            rows, which a query, of DuckDB or a LazyFrame, has not.
        truncated : str or bool, optional
            Column of booleans: a trajectory that has it true in any row went on after its last one, as for the class.
            Or one flag for all.

        Returns
        -------
        Trajectories
            In the order of their first rows.

        Raises
        ------
        ValueError, TypeError
            As `from_episodes`, or if a column is not there, ids or steps are missing, or steps occur twice.
        """
        number, encoder = declared_states(n_states, states)
        names = sources.Names.of(trajectory, state, reward, step, truncated)
        said = truncated if isinstance(truncated, bool) else None
        return cls._of_flat(sources.from_table(frame, names, encoder), number, encoder, said)

    @classmethod
    def iter_sorted(
        cls,
        frame: Any,
        n_states: int | None = None,
        *,
        trajectory: str,
        state: str,
        reward: str,
        step: str | None = None,
        truncated: str | bool | None = None,
        states: Iterable[Hashable] | None = None,
        block_steps: int = 1 << 20,
    ) -> Iterator[Trajectories]:
        """Stream a long table, one row a step, sorted by trajectory and step, as blocks of whole trajectories.

        Memory is bounded by a block and the longest trajectory. `first_visit_returns` and `sufficient_statistics` take
        what this returns.

        Parameters
        ----------
        frame : table
            As for `from_frame`; files are read in the order of their names, and a query has to order its rows.
        n_states, states, trajectory, state, reward, step, truncated
            As for `from_frame`. Ids of trajectories must increase from one to the next, and steps within one: then
            no trajectory can come twice, or in parts.
        block_steps : int
            Least number of steps in a block, but for the last.

        Raises
        ------
        ValueError, TypeError, ImportError
            As `from_frame`, or if rows are not sorted, or pyarrow is not installed.
        """
        number, encoder = declared_states(n_states, states)
        names = sources.Names.of(trajectory, state, reward, step, truncated)
        said = truncated if isinstance(truncated, bool) else None
        least = check.positive_integer("block_steps", block_steps)
        for block in sources.iter_sorted(frame, names, encoder, least):
            yield cls._of_flat(block, number, encoder, said)

    @classmethod
    def from_gymnasium(
        cls,
        env: Any,
        policy: Callable[[Any], Any] | ArrayLike,
        n_trajectories: int,
        horizon: int,
        seed: int | None = None,
        *,
        states: Iterable[Hashable] | None = None,
        encode: Callable[[Any], Hashable] | None = None,
        bins: Any = None,
    ) -> Trajectories:
        """Roll out a policy in a Gymnasium environment.

        The recorded states are those of actions, each with the reward of its action; `truncated` marks the trajectories
        that did not terminate.

        Parameters
        ----------
        env : gymnasium.Env
            With observations in a Discrete, MultiDiscrete, MultiBinary or Box space, in a Tuple or Dict of these, or
            with `states` given.
        policy : callable or array_like of int (n_states,)
            From an observation to an action; or the action of each state.
        n_trajectories : int
            How many.
        horizon : int
            Most steps of one.
        seed : int, optional
            Of the environment and its action space.
        states : iterable of hashable, optional
            All states there are. Default: those of the observation space, which are the integers of a Discrete one,
            counted from its start, and of all others tuples of integers, entry by entry.
        encode : callable, optional
            From an observation to a state of `states`; default the observation itself.
        bins : int, or sequence of int or of sequence of float, optional
            What becomes of the entries of Boxes, in their order, one item for all or one each: how many bins of one
            width lie between the space's limits, or the edges between bins. What lies beyond is in the first or the
            last bin. Public: declared, not taken from the data.

        Raises
        ------
        ValueError, TypeError
            As `from_episodes`, or if the space is another, or lacks bins, and no `states` were given.

        Examples
        --------
        >>> import gymnasium
        >>> from dpfast import Trajectories
        >>> with gymnasium.make("CartPole-v1") as cart:
        ...     edges = [[-1.0, 1.0], [0.0], [-0.1, 0.0, 0.1], [0.0]]
        ...     policy = lambda seen: int(seen[2] > 0)
        ...     trajectories = Trajectories.from_gymnasium(cart, policy, 5, 100, seed=0, bins=edges)
        >>> trajectories, trajectories.encoder.states[0], trajectories.encoder.states[-1]
        (<Trajectories over 48 states: not private>, (0, 0, 0, 0), (2, 1, 3, 1))
        """
        if not hasattr(env, "observation_space"):
            raise TypeError(f"env must be an environment, such as gymnasium.make(name), got {type(env).__name__}")
        number, encoder, encoded = declared_observations(env.observation_space, states, encode, bins)
        flat = sources.from_gymnasium(env, policy, n_trajectories, horizon, seed, encoded, number)
        return cls._of_flat(flat, number, encoder)

    @classmethod
    @suppress_float_warnings
    def from_minari(
        cls,
        dataset: Any,
        *,
        states: Iterable[Hashable] | None = None,
        encode: Callable[[Any], Hashable] | None = None,
        bins: Any = None,
        space: Any = None,
    ) -> Trajectories:
        """Build from Minari's episodes: the states an action was taken in, its reward, and whether they terminated.

        Parameters
        ----------
        dataset : minari.MinariDataset, EpisodeData, or iterable of EpisodeData
            With observations as for `from_gymnasium`.
        states, encode, bins
            As for `from_gymnasium`.
        space : gymnasium.Space, optional
            Of observations; default the one that a dataset declares. Episodes alone declare none.

        Raises
        ------
        ValueError, TypeError
            As `from_gymnasium`.
        """
        episodes, declared = sources.minari_episodes(dataset)
        space = declared if space is None else space
        if space is None and states is None:
            raise ValueError("episodes declare no observation space: give it as `space`, or all states in `states`")
        number, encoder, encoded = declared_observations(space, states, encode, bins)
        return cls._of_flat(sources.from_minari(episodes, encoded), number, encoder)

    @classmethod
    def of(
        cls, given: Any, states: int | Iterable[Hashable] | None = None, truncated: bool | ArrayLike | None = None
    ) -> Any:
        """Build from episodes in the form that they have, if their states are known; anything else stays as it is.

        Parameters
        ----------
        given : Trajectories, minari.MinariDataset, or iterable of episodes as for `from_minari` or `from_episodes`
            What has Minari's form is read by `from_minari`. Other episodes need `states`.
        states : int or iterable of hashable, optional
            All states, or how many there are: 0, 1, and so on. A dataset of Minari declares them by its space.
        truncated : bool or array_like of bool, optional
            As for `from_episodes`; Minari's have flags of their own.

        Raises
        ------
        ValueError, TypeError
            As `from_minari` and `from_episodes`, or if Trajectories are given with `states` or `truncated`.

        Examples
        --------
        >>> from dpfast.statistics import Trajectories
        >>> Trajectories.of([[(0, 0.0), (2, 1.0)]], states=3).n_states
        3
        """
        listed: Iterable[Hashable] | None = None
        if states is not None:
            listed = states if isinstance(states, Iterable) else range(check.positive_integer("states", states))
        if truncated is not None and (states is None or hasattr(given, "iterate_episodes")):
            raise ValueError("truncated goes with lists of episodes and states: Trajectories and Minari's have flags")
        if hasattr(given, "iterate_episodes"):
            return cls.from_minari(given, states=listed)
        if states is None:
            return given
        given = [given] if sources.is_episode(given) else given
        if isinstance(given, cls) or not isinstance(given, Iterable):
            raise ValueError(f"states go with lists of episodes and Minari's: a {type(given).__name__} has its own")
        sources.check_no_table(given)
        episodes = list(given)
        if episodes and sources.is_episode(episodes[0]) and truncated is None:
            return cls.from_minari(episodes, states=listed)
        return cls.from_episodes(episodes, states=listed, truncated=truncated)

    @classmethod
    def concatenate(cls, parts: Iterable[Trajectories]) -> Trajectories:
        """Return the trajectories of all parts, at least one, which share their states, in order."""
        several = list(parts)
        for part in several:
            check.instance("parts", part, Trajectories, "Trajectories")
        if not several:
            raise ValueError("parts must hold at least one Trajectories, got none")
        first = several[0]
        if any((part.n_states, part.encoder) != (first.n_states, first.encoder) for part in several):
            raise ValueError("parts must be over the same states")
        flags = [part.truncated for part in several if part.truncated is not None]
        if 0 < len(flags) < len(several):
            raise ValueError("parts must all say which trajectories were truncated, or none of them")
        starts = np.cumsum([0, *(part.n_steps for part in several)])
        starting = [part.offsets[:-1] + start for part, start in zip(several, starts, strict=False)]
        states = np.concatenate([part.states for part in several])
        rewards = np.concatenate([part.rewards for part in several])
        offsets = np.concatenate([*starting, starts[-1:]])
        truncated = np.concatenate(flags) if flags else None
        return first._with(states=states, rewards=rewards, offsets=offsets, truncated=truncated)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_steps(self) -> int:
        """Steps of all trajectories together."""
        return len(self.states)

    @property
    def longest(self) -> int:
        """Steps of the longest trajectory."""
        return int((self.offsets[1:] - self.offsets[:-1]).max(initial=0))

    def __getitem__(self, selected: Any) -> Trajectories:
        """Return the trajectories that a slice, an array of positions or a mask selects, at least one, none twice.

        Consecutive ones are not copied. IndexError for a position that there is not.
        """
        if isinstance(selected, slice) and selected.step in (None, 1):
            first, last, _ = selected.indices(len(self))
            if last <= first:
                raise ValueError("at least one trajectory must be selected, got none")
            low, high = self.offsets[first], self.offsets[last]
            steps: Any = slice(low, high)
            offsets = self.offsets[first : last + 1] - low
            whose: Any = slice(first, last)
        else:
            whose = positions = self._positions(selected)
            lengths = np.diff(self.offsets)[positions]
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            steps = np.repeat(self.offsets[positions] - offsets[:-1], lengths) + np.arange(offsets[-1])
        truncated = None if self.truncated is None else self.truncated[whose]
        return self._with(states=self.states[steps], rewards=self.rewards[steps], offsets=offsets, truncated=truncated)

    def _positions(self, selected: Any) -> IntArray:
        if isinstance(selected, slice):
            selected = np.arange(len(self))[selected]
        index = np.asarray(selected)
        if index.ndim != 1 or index.dtype.kind not in "biu":
            raise TypeError("trajectories are selected by a slice, a 1-D array of positions or a mask")
        if index.dtype == np.bool_ and len(index) != len(self):
            raise ValueError("a mask must have one entry a trajectory")
        positions: IntArray = np.arange(len(self))[index]
        if len(positions) == 0:
            raise ValueError("at least one trajectory must be selected, got none")
        if np.bincount(positions).max() > 1:
            raise ValueError("a trajectory selected twice would count as two people")
        return positions

    def __eq__(self, other: object) -> bool:
        """Whether states, rewards, offsets, flags and what states stand for agree."""
        if not isinstance(other, Trajectories):
            return NotImplemented
        arrays = [(getattr(self, name), getattr(other, name)) for name in ("states", "rewards", "offsets", "truncated")]
        same_states = (self.n_states, self.encoder) == (other.n_states, other.encoder)
        return same_states and all(np.array_equal(*both) for both in arrays)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Trajectories over {self.n_states} states: not private>"


@suppress_float_warnings
def _checked(states: ArrayLike, rewards: ArrayLike, offsets: ArrayLike, n_states: int) -> sources.Flat:
    """Return arrays as kernels read them, or raise; the owner of a trajectory at fault is not named."""
    state = _vector("states", states, "iu", "integers (or declare others: see StateEncoder)")
    reward = _vector("rewards", rewards, "fiub", "real numbers")
    offset = _vector("offsets", offsets, "iu", "integers")
    # Kernels index by states and offsets: the caller's arrays might change once they have been checked.
    offset = np.array(offset, np.int64, order="C")
    is_short = state.dtype.itemsize < 4 or state.dtype == np.int32
    state = np.array(state, np.int32 if is_short else np.int64, order="C")
    reward = np.array(reward, np.float32 if reward.dtype == np.float32 else np.float64, order="C")
    if len(state) != len(reward):
        raise ValueError("states and rewards have different lengths")
    if len(offset) == 0:
        raise ValueError("offsets must have an entry for each trajectory, and one more")
    if offset[0] != 0 or offset[-1] != len(state):
        raise ValueError("offsets must begin with 0 and end with the number of steps")
    # Compared, not subtracted: differences of 64-bit integers wrap.
    if not np.all(offset[1:] > offset[:-1]):
        raise ValueError("a trajectory is empty, or ends before it begins: offsets must increase")
    step = kernel.first_bad_step(state, reward, n_states, _LARGEST_REWARD)
    if step >= 0 and not 0 <= state[step] < n_states:
        raise ValueError(f"a trajectory has a state that is none of the {n_states} declared")
    if step >= 0:
        raise ValueError("a trajectory has a reward that is not finite and below 1e200 in size")
    return sources.Flat(state, reward, offset)


@suppress_float_warnings
def _flags(truncated: bool | ArrayLike, n_trajectories: int) -> NDArray[np.bool_]:
    """Return a copy of flags, one a trajectory; or that of all, as often."""
    if isinstance(truncated, bool):
        return np.full(n_trajectories, truncated)
    flags = _vector("truncated", truncated, "b", "booleans, one a trajectory")
    if len(flags) != n_trajectories:
        raise ValueError("truncated must have one entry a trajectory")
    return np.array(flags, np.bool_, order="C")


def _vector(name: str, values: ArrayLike, kinds: str, accepted: str) -> NDArray[Any]:
    array: NDArray[Any] = redact_errors(
        partial(np.asarray, zero_copy_view(values, name)), f"{name} must be a 1-D array of numbers"
    )
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, got {array.ndim} dimensions")
    # An empty list is an array of floats.
    if array.dtype.kind not in kinds and len(array) > 0:
        raise TypeError(f"{name} must be {accepted}, got dtype {dtype_name(array)}")
    return array


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
