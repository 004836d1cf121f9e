"""Trajectories from every source, what is refused (by position, never by value), and what selecting keeps."""

import pickle
import types
from itertools import islice

import numpy as np
import pandas as pd
import pytest

from dpfast.statistics import StateEncoder, Trajectories, first_visit_returns

EPISODES = [[("a", 0.5), ("b", 1.0)], [("c", -1.0)], [("b", 2.0), ("a", 0.25), ("b", 0.0)]]
LETTERS = ["a", "b", "c"]
EXPECTED = Trajectories([0, 1, 2, 1, 0, 1], [0.5, 1.0, -1.0, 2.0, 0.25, 0.0], [0, 2, 3, 6], 3)
SECRET = 7_654_321


def expected(encoder=None):
    return Trajectories(EXPECTED.states, EXPECTED.rewards, EXPECTED.offsets, 3, encoder=encoder)


def long_frame(*, shuffled=False):
    rows = [(f"id{j}", t, s, r) for j, episode in enumerate(EPISODES) for t, (s, r) in enumerate(episode)]
    frame = pd.DataFrame(rows, columns=["who", "when", "where", "gain"])
    return frame.sample(frac=1.0, random_state=1) if shuffled else frame


COLUMNS = {"trajectory": "who", "state": "where", "reward": "gain"}


def test_episodes_with_and_without_actions():
    found = Trajectories.from_episodes(EPISODES, states=LETTERS)
    assert found == expected(StateEncoder(LETTERS))
    assert Trajectories.from_episodes([[(s, "left", r) for s, r in e] for e in EPISODES], states=LETTERS) == found
    numbered = [[(LETTERS.index(s), r) for s, r in e] for e in EPISODES]
    assert Trajectories.from_episodes(numbered, 3) == expected()
    assert Trajectories.from_episodes((iter(e) for e in numbered), n_states=3) == expected()


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("kind", ["text", "category", "integer", "nullable"])
def test_frames(shuffled, kind):
    frame, options = long_frame(shuffled=shuffled), {"states": LETTERS}
    if kind == "category":
        frame["where"] = frame["where"].astype("category")
    elif kind != "text":
        options = {"n_states": 3}
        frame["where"] = frame["where"].map(LETTERS.index).astype("Int64" if kind == "nullable" else "int32")
    order = [int(who[2:]) for who in frame["who"].drop_duplicates()]
    whole = expected(StateEncoder(LETTERS) if "states" in options else None)
    for ids in (frame["who"], frame["who"].str[2:].astype(int), frame["who"].map({"id0": "z", "id1": 7, "id2": 0.5})):
        found = Trajectories.from_frame(frame.assign(who=ids), step="when", **COLUMNS, **options)
        assert found == whole[order]


def test_frame_rows_without_steps_keep_their_order():
    assert Trajectories.from_frame(long_frame(), states=LETTERS, **COLUMNS) == expected(StateEncoder(LETTERS))


@pytest.mark.parametrize("sorts", ["nothing", "ids", "ids and steps", "steps"])
def test_trajectories_of_a_frame_are_those_of_a_loop_over_its_rows_and_stay_so(sorts):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": rng.integers(0, 40, 500), "where": rng.integers(0, 9, 500), "gain": rng.random(500)})
    frame["when"], frame["cut"] = rng.permutation(500), rng.random(500) < 0.1
    frame = frame.sort_values(
        [{"ids": "who", "steps": "when"}[one] for one in sorts.split(" and ") if one != "nothing"] or "cut"
    )
    for step in (None, "when"):
        found = Trajectories.from_frame(frame, 9, step=step, truncated="cut", **COLUMNS)
        owners = frame["who"].drop_duplicates()
        parts = [frame[frame["who"] == who] for who in owners]
        parts = parts if step is None else [part.sort_values(step) for part in parts]
        expected = pd.concat(parts)
        offsets = np.cumsum([0, *map(len, parts)])
        flags = [part["cut"].any() for part in parts]
        changed = frame.copy()
        read = Trajectories.from_frame(changed, 9, step=step, truncated="cut", **COLUMNS)
        changed[["where", "gain", "cut"]] = 0, 0.0, False
        for one in (found, read):
            assert one == Trajectories(expected["where"], expected["gain"], offsets, 9, truncated=flags)


@pytest.mark.parametrize("block_steps", [1, 2, 3, 100])
@pytest.mark.parametrize("row_group", [1, 2, 4, 100])
@pytest.mark.parametrize("n_files", [1, 2])
@pytest.mark.parametrize("kind", ["text", "category", "integer"])
def test_parquet_in_blocks(tmp_path, block_steps, row_group, n_files, kind):
    pytest.importorskip("pyarrow")
    frame, options = long_frame(), {"states": LETTERS}
    if kind == "category":
        frame["where"], frame["who"] = frame["where"].astype("category"), frame["who"].astype("category")
    elif kind == "integer":
        options = {"n_states": 3}
        frame["where"] = frame["where"].map(LETTERS.index).astype("int32")
    for number, part in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[part].to_parquet(tmp_path / f"part{number}.parquet", row_group_size=row_group)
    blocks = list(
        Trajectories.iter_sorted(tmp_path, step="when", **COLUMNS, **options, block_steps=block_steps),
    )
    assert all(block.n_steps >= block_steps for block in blocks[:-1])
    assert Trajectories.concatenate(blocks) == expected(StateEncoder(LETTERS) if "states" in options else None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.iloc[::-1], r"trajectories do not come one after another"),
        (lambda f: f.assign(who=["b", "b", "c", "b", "b", "b"]), r"trajectories do not come one after another"),
        (lambda f: f.assign(when=[0, 1, 0, 0, 2, 1]), r"a trajectory .*is not sorted by 'when'"),
        (lambda f: f.assign(where=["a", "b", "c", "b", "SECRET", "b"]), r"a trajectory .*none of the 3 declared"),
        (lambda f: f.assign(where=["a", "b", "c", "b", "a", None]), r"a trajectory .*none of the 3 declared"),
        (lambda f: f.assign(gain=[0, 0, np.inf, 0, 0, 0]), r"a trajectory .*not finite"),
        (lambda f: f.assign(who=["a", None, "c", "c", "c", "c"]), "'who' has missing entries"),
        (lambda f: f.drop(columns="gain"), "no column 'gain'"),
    ],
)
@pytest.mark.parametrize("block_steps", [1, 100])
def test_parquet_refused(tmp_path, change, message, block_steps):
    pytest.importorskip("pyarrow")
    change(long_frame()).to_parquet(tmp_path / "t.parquet", row_group_size=1)
    options = {"states": LETTERS, "step": "when", "block_steps": block_steps}
    with pytest.raises(ValueError, match=message) as error:
        list(Trajectories.iter_sorted(tmp_path / "t.parquet", **COLUMNS, **options))
    assert "SECRET" not in str(error.value)


def test_parquet_column_kinds_refused(tmp_path):
    pytest.importorskip("pyarrow")
    long_frame().to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TypeError, match="'where' must hold integers"):
        list(Trajectories.iter_sorted(tmp_path / "t.parquet", 3, **COLUMNS))
    with pytest.raises(TypeError, match="'where' must hold real numbers"):
        list(Trajectories.iter_sorted(tmp_path / "t.parquet", states=LETTERS, **COLUMNS | {"reward": "where"}))
    long_frame().assign(where=[["a"]] * 6).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TypeError, match="'where' must hold states that can be told apart, got list"):
        list(Trajectories.iter_sorted(tmp_path / "t.parquet", states=LETTERS, **COLUMNS))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda f: f.assign(where=["a", "b", "c", "b", "SECRET", "b"]), ValueError, "a trajectory has a"),
        (lambda f: f.assign(gain=[0.0, 1.0, np.nan, 0.0, 0.0, 0.0]), ValueError, "a trajectory has a"),
        (lambda f: f.assign(when=[0, 1, 0, 0, 2, 2]), ValueError, "a trajectory .*has the same 'when' twice"),
        (lambda f: f.assign(who=None), ValueError, "'who' has missing entries"),
        (lambda f: f.assign(when="now"), TypeError, "'when' must hold numbers or times"),
        (lambda f: f.assign(gain="much"), TypeError, "'gain' must hold real numbers"),
        (lambda f: f.drop(columns="where"), ValueError, "no column 'where'"),
        (lambda f: f.to_numpy(), TypeError, "must be a table with named columns, .*, got ndarray"),
    ],
)
def test_frames_refused(change, kind, message):
    with pytest.raises(kind, match=message) as error:
        Trajectories.from_frame(change(long_frame()), step="when", states=LETTERS, **COLUMNS)
    assert "SECRET" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([0, 1], [0.0, 1.0], [0, 1, 1, 2], 2), ValueError, "a trajectory .*is empty"),
        (([0, 1], [0.0, 1.0], [0, 2, 1, 2], 2), ValueError, "a trajectory .*ends before it begins"),
        (([0, 1], [0.0, 1.0], [0, (1 << 63) - 1, -2, 2], 2), ValueError, "a trajectory .*ends before it begins"),
        (([0, 1], [0.0, 1.0], [0, 3], 2), ValueError, "end with the number of steps"),
        (([0, 1], [0.0, 1.0], [1, 2], 2), ValueError, "begin with 0"),
        (([0, 1], [0.0, 1.0], [0], 2), ValueError, "end with the number of steps"),
        (([], [], np.empty(0, int), 2), ValueError, "an entry for each trajectory, and one more"),
        (([0, SECRET], [0.0, 1.0], [0, 1, 2], 2), ValueError, "a trajectory .*none of the 2 declared"),
        (([0, -SECRET], [0.0, 1.0], [0, 1, 2], 2), ValueError, "a trajectory .*none of the 2 declared"),
        ((np.array([0, 2**63 + SECRET], np.uint64), [0.0, 1.0], [0, 1, 2], 2), ValueError, "a trajectory has a"),
        (([0, 1], [0.0, np.nan], [0, 1, 2], 2), ValueError, "a trajectory .*not finite"),
        (([0, 1], [-np.inf, 0.0], [0, 1, 2], 2), ValueError, "a trajectory .*not finite"),
        (([0, 1], [1e201, 0.0], [0, 1, 2], 2), ValueError, "a trajectory .*below 1e200"),
        (([0, 1], np.array([np.inf, 0.0], np.float32), [0, 1, 2], 2), ValueError, "a trajectory has a"),
        (([0, 1], [0.0], [0, 2], 2), ValueError, "different lengths"),
        (([0.0, 1.0], [0.0, 1.0], [0, 2], 2), TypeError, "states must be integers"),
        (([0, 1], ["x", "y"], [0, 2], 2), TypeError, "rewards must be real numbers"),
        (([0, 1], [0.0, 1.0], [0.0, 2.0], 2), TypeError, "offsets must be integers"),
        (([[0, 1]], [0.0, 1.0], [0, 2], 2), ValueError, "states must be 1-D"),
        ((np.ma.array([0, 1]), [0.0, 1.0], [0, 2], 2), TypeError, "masked"),
        (([0, 1], [0.0, 1.0], [0, 2], 0), ValueError, "n_states must be at least 1"),
        (([0, 1], [0.0, 1.0], [0, 2], 2.0), TypeError, "n_states must be an integer"),
        (([0, 1], [0.0, 1.0], [0, 2], 2**31), ValueError, "below 2\\*\\*31"),
    ],
)
def test_refused_without_saying_whose_it_is(arguments, kind, message):
    with pytest.raises(kind, match=message) as error:
        Trajectories(*arguments)
    assert str(SECRET) not in str(error.value)


def test_a_bad_step_is_found_wherever_it_is():
    states, offsets = np.zeros(30_000, np.int64), np.arange(0, 30_001, 3)
    for step in (0, 8191, 8192, 20_000, 29_999):
        for kind in ("states", "rewards"):
            arrays = {"states": states.copy(), "rewards": np.zeros(30_000)}
            arrays[kind][step] = 5 if kind == "states" else np.nan
            with pytest.raises(ValueError, match=f"a trajectory has a {kind[:-1]} that is "):
                Trajectories(**arrays, offsets=offsets, n_states=5)


@pytest.mark.parametrize(
    ("episodes", "declared", "kind", "message"),
    [
        ([[(0, 1.0)], [(1,)]], {"n_states": 2}, ValueError, "an episode .*not \\(state, reward\\)"),
        ([[(0, 1.0)], [5]], {"n_states": 2}, ValueError, "an episode .*not \\(state, reward\\)"),
        ([[(0, 1.0)], [("SECRET", 1.0)]], {"n_states": 2}, TypeError, "an episode .*not an integer"),
        ([[(0, 1.0)], [(0, "SECRET")]], {"n_states": 2}, TypeError, "an episode .*not a real number"),
        ([[(0, 1.0)], []], {"n_states": 2}, ValueError, "a trajectory .*is empty"),
        ([[(0, 1.0)], [(10**30, 1.0)]], {"n_states": 2}, ValueError, "a trajectory .*none of the 2"),
        ([[("a", 1.0)], [("SECRET", 1.0)]], {"states": "ab"}, ValueError, "a trajectory .*none of the 2"),
        ([[("a", 1.0)], [(["SECRET"], 1.0)]], {"states": "ab"}, ValueError, "a trajectory .*none of the 2"),
        ([[("a", 1.0)]], {}, ValueError, "either n_states or states"),
        ([[("a", 1.0)]], {"n_states": 2, "states": "ab"}, ValueError, "either n_states or states"),
        ([[("a", 1.0)]], {"states": "aba"}, ValueError, "distinct"),
        ([[("a", 1.0)]], {"states": [[]]}, TypeError, "hashable"),
        ([[("a", 1.0)]], {"states": []}, ValueError, "at least one"),
        ([1, 2], {"n_states": 3}, TypeError, "an episode must list its steps"),
        ([None], {"n_states": 3}, TypeError, "an episode must list its steps"),
        ({"first": [(1, 1.0)], 2: [(1, 1.0)]}, {"n_states": 3}, (TypeError, ValueError), "an episode"),
        (None, {"n_states": 3}, TypeError, "episodes must be an iterable"),
        (3, {"states": "ab"}, TypeError, "episodes must be an iterable"),
    ],
)
def test_episodes_refused(episodes, declared, kind, message):
    with pytest.raises(kind, match=message) as error:
        Trajectories.from_episodes(episodes, **declared)
    assert "SECRET" not in str(error.value)


def test_arrays_are_copied_and_read_only():
    states, rewards = np.array([0, 1], np.int32), np.array([0.0, 1.0], np.float32)
    one = Trajectories(states, rewards, [0, 2], 2)
    assert not np.shares_memory(one.states, states)
    assert not np.shares_memory(one.rewards, rewards)
    assert (one.states.dtype, one.rewards.dtype, one.offsets.dtype) == (np.int32, np.float32, np.int64)
    with pytest.raises(ValueError, match="read-only"):
        one.states[0] = 1
    assert states.flags.writeable
    assert pickle.loads(pickle.dumps(one)) == one


def test_the_repr_tells_only_what_is_public():
    assert repr(expected()) == "<Trajectories over 3 states: not private>"
    longer = Trajectories.concatenate([expected(), expected()])
    assert repr(longer) == repr(expected())


def test_selecting_and_concatenating_are_exact():
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, 50))])
    whole = Trajectories(rng.integers(0, 7, offsets[-1]), rng.normal(size=offsets[-1]), offsets, 7)
    assert Trajectories.concatenate([whole[:20], whole[20:21], whole[21:]]) == whole
    assert np.shares_memory(whole[3:9].states, whole.states)
    order = rng.permutation(50)
    shuffled = whole[order]
    assert shuffled[np.argsort(order)] == whole
    mask = rng.random(50) < 0.5
    assert whole[mask] == whole[np.flatnonzero(mask).tolist()]
    assert whole[::-1][::-1] == whole
    assert whole[-2:] == whole[[48, 49]]
    assert len(whole[5:7]) == 2
    assert whole[4:5].longest == offsets[5] - offsets[4]
    for j in range(50):
        np.testing.assert_array_equal(shuffled[j : j + 1].rewards, whole[[order[j]]].rewards)


@pytest.mark.parametrize(
    ("selected", "kind", "message"),
    [
        ([0, 0], ValueError, "two people"),
        (slice(2, 2), ValueError, "at least one"),
        ([False] * 3, ValueError, "at least one"),
        ([True] * 2, ValueError, "one entry a trajectory"),
        ([0.0], TypeError, "slice"),
        (0, TypeError, "slice"),
        ([3], IndexError, "3"),
    ],
)
def test_selections_refused(selected, kind, message):
    with pytest.raises(kind, match=message):
        expected()[selected]


def test_concatenations_refused():
    with pytest.raises(ValueError, match="at least one"):
        Trajectories.concatenate([])
    with pytest.raises(TypeError, match="got list"):
        Trajectories.concatenate([expected(), []])
    with pytest.raises(ValueError, match="same states"):
        Trajectories.concatenate([expected(), expected(StateEncoder(LETTERS))])


def test_the_encoder_keeps_the_mapping():
    encoder = StateEncoder([(0, 1), "x", None])
    assert [encoder.states[c] for c in encoder.codes([None, (0, 1)])] == [None, (0, 1)]
    np.testing.assert_array_equal(StateEncoder([5, 3]).codes(np.array([3, 5, 4])), [1, 0, -1])
    np.testing.assert_array_equal(StateEncoder(["u", "v"]).codes(np.array(["v", "w"])), [1, -1])
    assert encoder != StateEncoder(["x"])
    assert repr(encoder) == "<StateEncoder of 3 states>"
    with pytest.raises(ValueError, match="encoder has 3"):
        Trajectories([0], [0.0], [0, 1], 2, encoder=encoder)


class TestGymnasium:
    @pytest.fixture
    def env(self):
        gymnasium = pytest.importorskip("gymnasium")
        with gymnasium.make("FrozenLake-v1", is_slippery=True) as env:
            yield env

    def test_rollouts(self, env):
        policy = np.arange(16) % 4
        found = Trajectories.from_gymnasium(env, policy, 20, 7, seed=3)
        assert found == Trajectories.from_gymnasium(env, lambda seen: policy[seen], 20, 7, seed=3)
        assert found != Trajectories.from_gymnasium(env, policy, 20, 7, seed=4)
        assert (len(found), found.n_states, found.longest) == (20, 16, 7)
        assert np.all(found.states[found.offsets[:-1]] == 0)

    def test_what_is_no_environment_and_what_is_no_action_are_refused(self, env):
        with pytest.raises(TypeError, match=r"env must be an environment.*got str"):
            Trajectories.from_gymnasium("FrozenLake-v1", [0] * 16, 2, 5)
        with pytest.raises(ValueError, match="policy must have actions of the environment"):
            Trajectories.from_gymnasium(env, [9] * 16, 2, 5)

    def test_states_and_rewards_are_those_of_actions(self, env):
        # Without ice: right, right, down, down, down, right reaches the goal, whose entry is rewarded.
        route = {0: 2, 1: 2, 2: 1, 6: 1, 10: 1, 14: 2}
        gymnasium = pytest.importorskip("gymnasium")
        with gymnasium.make("FrozenLake-v1", is_slippery=False) as firm:
            found = Trajectories.from_gymnasium(firm, route.__getitem__, 2, 100)
        assert found.states.tolist() == list(route) * 2
        assert found.rewards.tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0] * 2

    def test_listed_states(self):
        gymnasium = pytest.importorskip("gymnasium")
        cards = [(s, d, a) for s in range(4, 33) for d in range(1, 11) for a in (0, 1)]
        with gymnasium.make("Blackjack-v1") as env:
            found = Trajectories.from_gymnasium(env, lambda seen: int(seen[0] < 17), 30, 50, seed=0, states=cards)
            assert all(found.encoder.states[s][1] <= 10 for s in found.states)
            with pytest.raises(ValueError, match="encode needs states"):
                Trajectories.from_gymnasium(env, lambda seen: 0, 1, 1, encode=str)
            sums = range(4, 33)
            found = Trajectories.from_gymnasium(env, lambda s: 0, 3, 5, states=sums, encode=lambda seen: seen[0])
            assert found.n_states == 29

    @pytest.mark.parametrize(
        ("changes", "kind", "message"),
        [
            ({"n_trajectories": 0}, ValueError, "n_trajectories"),
            ({"horizon": 0}, ValueError, "horizon"),
            ({"policy": [[0]]}, TypeError, "policy"),
            ({"policy": [0] * 15}, ValueError, "action for each of the 16 states, got 15"),
        ],
    )
    def test_refused(self, env, changes, kind, message):
        with pytest.raises(kind, match=message):
            Trajectories.from_gymnasium(env, **{"policy": [0] * 16, "n_trajectories": 1, "horizon": 1} | changes)


class Episode:
    def __init__(self, observations, rewards):
        self.observations, self.rewards = observations, np.asarray(rewards)


class Dataset:
    """What `from_minari` uses of a MinariDataset."""

    def __init__(self, space, episodes):
        self.observation_space, self.episodes = space, episodes

    def iterate_episodes(self):
        return iter(self.episodes)


def test_minari_episodes():
    spaces = pytest.importorskip("gymnasium").spaces
    discrete = Dataset(
        spaces.Discrete(3, start=1), [Episode(np.array([1, 2, 3]), [0.5, 1.0]), Episode(np.array([3, 1]), [-1.0])]
    )
    found = Trajectories.from_minari(discrete)
    assert (found.states.tolist(), found.rewards.tolist()) == ([0, 1, 2], [0.5, 1.0, -1.0])
    pair = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))
    columns = (np.array([0, 1, 1]), np.array([1, 1, 0]))
    grid = [(0, 0), (0, 1), (1, 0), (1, 1)]
    found = Trajectories.from_minari(Dataset(pair, [Episode(columns, [0.0, 1.0])]), states=grid)
    assert [found.encoder.states[s] for s in found.states] == [(0, 1), (1, 1)]
    named = Dataset(None, [Episode({"at": np.array([[0.2], [1.7], [9.9]])}, [0.0, 1.0])])
    found = Trajectories.from_minari(named, states=range(3), encode=lambda seen: int(seen["at"][0]))
    assert found.states.tolist() == [0, 1]


class Step(tuple):
    """A step that raises what ends iterators, as `next` does where a caller's function finds nothing."""

    __slots__ = ()

    def __getitem__(self, place):
        raise StopIteration


def test_the_error_that_ends_iterators_drops_no_trajectory():
    with pytest.raises(RuntimeError, match="StopIteration"):
        Trajectories.from_episodes([[(0, 0.5)], [Step((1, 1.0))], [(1, 0.25)]], n_states=2)


@pytest.mark.filterwarnings("ignore:.*(set to|is) None:UserWarning")
def test_minari_itself(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    gymnasium = pytest.importorskip("gymnasium")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    episodes = [EpisodeBuffer(observations=[0, 4, 8], actions=[1, 1], rewards=[0.0, 0.5], terminations=[False, True],
                              truncations=[False, False])]  # fmt: skip
    space = gymnasium.spaces.Discrete(16)
    minari.create_dataset_from_buffers(
        "lake/test-v0", episodes, action_space=gymnasium.spaces.Discrete(4), observation_space=space,
        data_format="arrow", eval_env=None, algorithm_name="a", author="a", author_email="a", code_permalink="a",
        description="a")  # fmt: skip
    found = Trajectories.from_minari(minari.load_dataset("lake/test-v0"))
    assert (found.states.tolist(), found.rewards.tolist(), found.n_states) == ([0, 4], [0.0, 0.5], 16)


def test_returns_of_streams_and_frames_agree(tmp_path):
    pytest.importorskip("pyarrow")
    long_frame().to_parquet(tmp_path / "t.parquet", row_group_size=2)
    blocks = Trajectories.iter_sorted(tmp_path / "t.parquet", states=LETTERS, **COLUMNS, block_steps=1)
    options = {"return_range": (-2.0, 3.0)}
    assert first_visit_returns(blocks, 0.9, **options) == first_visit_returns(expected(), 0.9, **options)


def libraries(frame):
    """Yield the same rows as tables of other libraries, and whether their order holds."""
    pa, pl, duckdb = map(pytest.importorskip, ("pyarrow", "polars", "duckdb"))
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    held = pl.from_arrow(arrow)
    yield from ((arrow, True), (arrow.to_reader(max_chunksize=2), True), (held, True))
    yield held.with_columns(pl.col("where").cast(pl.Categorical)), True
    yield from ((held.lazy(), False), (duckdb.connect().from_arrow(arrow), False))


@pytest.mark.parametrize("ids", ["text", "numbers"])
def test_tables_of_every_library(ids, tmp_path):
    frame = long_frame(shuffled=True)
    if ids == "numbers":
        frame["who"] = frame["who"].str[2:].astype(int)
    whole = Trajectories.from_frame(frame, step="when", states=LETTERS, **COLUMNS)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    files = [(tmp_path / "t.parquet", True), (tmp_path / "t.csv", True)]
    for table, in_order in [*files, *libraries(frame)]:
        found = Trajectories.from_frame(table, step="when", states=LETTERS, **COLUMNS)
        assert found == whole
        if not in_order:
            with pytest.raises(TypeError, match="frame is a query, whose rows come in no fixed order: name the column"):
                Trajectories.from_frame(table, states=LETTERS, **COLUMNS)
    numbered = frame.assign(where=frame["where"].map(LETTERS.index))
    numbered.to_csv(tmp_path / "t.csv", index=False)
    for table, _ in [(tmp_path / "t.csv", True), *islice(libraries(numbered), 3)]:
        assert Trajectories.from_frame(table, 3, step="when", **COLUMNS).states.tolist() == whole.states.tolist()


def test_sorted_tables_in_blocks():
    for table in (long_frame(), *(table for table, _ in libraries(long_frame()))):
        blocks = list(Trajectories.iter_sorted(table, step="when", states=LETTERS, **COLUMNS, block_steps=1))
        assert len(blocks) > 1
        assert Trajectories.concatenate(blocks) == expected(StateEncoder(LETTERS))
    for table, _ in libraries(long_frame()[::-1]):
        with pytest.raises(ValueError, match="rows must be sorted"):
            list(Trajectories.iter_sorted(table, step="when", states=LETTERS, **COLUMNS, block_steps=1))


@pytest.mark.parametrize("name", ["who", "when"])
def test_entries_that_have_no_order_are_not_sorted(name):
    frame = long_frame().assign(**{name: pd.Series([1, "SECRET", 2, "b", 3, "c"], dtype=object)})
    with pytest.raises(TypeError, match=f"column '{name}' has entries that cannot be put in order") as error:
        list(Trajectories.iter_sorted(frame, step="when", states=LETTERS, **COLUMNS))
    assert "SECRET" not in str(error.value)


def test_rows_that_a_library_cannot_read_are_not_quoted():
    pl = pytest.importorskip("polars")
    broken = pl.from_pandas(long_frame()).lazy().with_columns(gain=pl.lit("SECRET").cast(pl.Float64))
    for read in (Trajectories.from_frame, lambda *table, **options: list(Trajectories.iter_sorted(*table, **options))):
        with pytest.raises(ValueError, match="the table cannot be read to its end") as error:
            read(broken, step="when", states=LETTERS, **COLUMNS)
        assert "SECRET" not in str(error.value)
        assert error.value.__context__ is None


@pytest.mark.parametrize("selected", [[0, 0], [0, 0, 1], [1, 1], [2, 0, 2], [-1, 2]])
def test_nobody_is_selected_twice(selected):
    walks = Trajectories([0, 1, 2], [0.0, 1.0, 0.5], [0, 1, 2, 3], 3)
    with pytest.raises(ValueError, match="a trajectory selected twice would count as two people"):
        walks[selected]


FLAGS = {"who": [2, 2, 1, 3], "state": [0, 1, 1, 0], "reward": [0.0, 1.0, 0.5, 2.0], "cut": [False, True, False, True]}
FLAG_COLUMNS = {"trajectory": "who", "state": "state", "reward": "reward", "truncated": "cut"}


def test_a_column_says_who_was_truncated():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(FLAGS)
    for table in (frame, pyarrow.table(FLAGS)):
        walks = Trajectories.from_frame(table, 2, **FLAG_COLUMNS)
        assert walks.truncated.tolist() == [True, False, True]
        of_all = Trajectories.from_frame(table, 2, **(FLAG_COLUMNS | {"truncated": True}))
        assert of_all.truncated.tolist() == [True, True, True]
    ordered = frame.sort_values("who", kind="stable")
    blocks = list(Trajectories.iter_sorted(ordered, 2, block_steps=1, **FLAG_COLUMNS))
    assert np.concatenate([block.truncated for block in blocks]).tolist() == [False, True, True]
    assert len(blocks) > 1
    for cut in ([0, 1, 0, 1], ["a", "b", "c", "d"], [True, None, False, True]):
        with pytest.raises(TypeError, match="column 'cut' must hold booleans, none missing"):
            Trajectories.from_frame(frame.assign(cut=cut), 2, **FLAG_COLUMNS)
    with pytest.raises(TypeError, match="column 'cut' must hold booleans, none missing"):
        Trajectories.from_frame(pyarrow.table(FLAGS | {"cut": [0, 1, 0, 1]}), 2, **FLAG_COLUMNS)
    with pytest.raises(ValueError, match="column 'cut' has missing entries"):
        Trajectories.from_frame(pyarrow.table(FLAGS | {"cut": [True, None, False, True]}), 2, **FLAG_COLUMNS)
    with pytest.raises(ValueError, match="has no column 'ended'"):
        Trajectories.from_frame(frame, 2, **(FLAG_COLUMNS | {"truncated": "ended"}))


def test_flags_go_with_their_trajectories():
    walks = Trajectories([0, 1, 1], [0.0, 0.0, 1.0], [0, 1, 2, 3], 2, truncated=[True, False, True])
    assert walks.truncated.tolist() == [True, False, True]
    assert not walks.truncated.flags.writeable
    assert walks[1:].truncated.tolist() == [False, True]
    assert walks[np.array([2, 1])].truncated.tolist() == [True, False]
    assert Trajectories.concatenate([walks[1:], walks[:1]]).truncated.tolist() == [False, True, True]
    without = Trajectories(walks.states, walks.rewards, walks.offsets, 2)
    assert without.truncated is None
    assert without[1:].truncated is None
    assert without != walks
    with pytest.raises(ValueError, match="parts must all say which trajectories were truncated, or none of them"):
        Trajectories.concatenate([walks, without])
    for flags, kind in (([True], ValueError), ([0, 1, 0], TypeError), ([[True]], ValueError)):
        with pytest.raises(kind, match="truncated must"):
            Trajectories(walks.states, walks.rewards, walks.offsets, 2, truncated=flags)


def test_episodes_of_minari_and_gymnasium_say_who_was_truncated():
    gymnasium = pytest.importorskip("gymnasium")
    ended, cut = ({"terminations": [False, flag], "truncations": [False, not flag]} for flag in (True, False))
    episodes = [types.SimpleNamespace(observations=[0, 1, 1], rewards=[0.0, 1.0], **flags) for flags in (ended, cut)]
    assert Trajectories.from_minari(episodes, states=range(2)).truncated.tolist() == [False, True]
    assert Trajectories.from_episodes(episodes, 2).truncated.tolist() == [False, True]
    assert Trajectories.from_episodes(episodes, 2, truncated=False).truncated.tolist() == [False, False]
    with pytest.raises(ValueError, match="episodes must all have terminations, or none of them"):
        Trajectories.from_minari([episodes[0], Episode([0, 1], [0.0])], states=range(2))
    with gymnasium.make("FrozenLake-v1") as lake:
        walks = Trajectories.from_gymnasium(lake, np.full(16, 2), 60, 5, seed=0)
    lengths = np.diff(walks.offsets)
    assert np.all(walks.truncated[lengths < 5] == False)  # noqa: E712
    assert 0 < walks.truncated.sum() < 60
