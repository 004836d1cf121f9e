"""Observation spaces become states by what is declared: exhaustively, on their own, entry by entry."""

import itertools

import numpy as np
import pytest

from dpfast import Trajectories
from dpfast.io.states import declared_observations

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces

CARD = spaces.Tuple((spaces.Discrete(3, start=4), spaces.Discrete(2)))
BINNED = spaces.Box(np.array([0.0, -1.0], np.float32), np.array([1.0, 1.0], np.float32))

#: A space, its bins, and all observations that tell its states apart, in the order of their numbers.
SPACES = {
    "Discrete": (spaces.Discrete(4, start=-1), None, [-1, 0, 1, 2]),
    "MultiDiscrete": (
        spaces.MultiDiscrete([2, 3], start=[5, -1]),
        None,
        [np.array(pair) for pair in itertools.product([5, 6], [-1, 0, 1])],
    ),
    "grid of MultiDiscrete": (
        spaces.MultiDiscrete([[2, 1], [1, 2]]),
        None,
        [np.array([[i, 0], [0, j]]) for i, j in itertools.product(range(2), range(2))],
    ),
    "MultiBinary": (spaces.MultiBinary(3), None, [np.array(bits) for bits in itertools.product([0, 1], repeat=3)]),
    "Tuple": (CARD, None, list(itertools.product([4, 5, 6], [0, 1]))),
    "Box": (BINNED, 2, [np.array(pair) for pair in itertools.product([0.1, 0.9], [-0.5, 0.5])]),
    "Box of edges": (
        spaces.Box(-np.inf, np.inf, (2,)),
        [[0.0, 1.0], []],
        [np.array([x, 7.0]) for x in (-3.0, 0.5, 1e30)],
    ),
    "Dict": (
        spaces.Dict({"at": BINNED, "card": CARD}),
        [1, [0.25]],
        [
            {"card": pair, "at": np.array([0.5, y])}
            for y, pair in itertools.product([0.0, 0.3], itertools.product([4, 5, 6], [0, 1]))
        ],
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_every_state_has_its_own_number(name):
    space, bins, observations = SPACES[name]
    number, encoder, encode = declared_observations(space, None, None, bins)
    assert number == len(observations)
    assert [encode(seen) for seen in observations] == list(range(number))
    assert (encoder is None) == (name == "Discrete")
    if "Box" not in name:
        rng_states = {encode(space.sample()) for _ in range(100)}
        assert rng_states <= set(range(number))


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("Discrete", 3),
        ("Discrete", -2),
        ("MultiDiscrete", [7, -2]),  # would be another's number in a mixed radix
        ("MultiDiscrete", [5, 2]),
        ("MultiBinary", [0, 0, 2]),
        ("Tuple", (4, 2)),
        ("Tuple", (3, 1)),
        ("Box", [np.nan, 0.0]),
    ],
)
def test_what_lies_outside_is_no_other_state(name, seen):
    space, bins, _ = SPACES[name]
    number, _, encode = declared_observations(space, None, None, bins)
    assert not 0 <= encode(seen) < number


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("Discrete", 0.5),
        ("Discrete", "0"),
        ("Discrete", [0, 1]),
        ("MultiDiscrete", [5.0, 0.0]),
        ("MultiDiscrete", [5]),
        ("MultiDiscrete", [5, 0, 0]),
        ("MultiBinary", [0, 0]),
        ("Tuple", (4,)),
        ("Tuple", ([4, 0], [])),  # as many entries in all
        ("Tuple", 4),
        ("Tuple", (4, 0, 0)),
        ("Dict", {"card": (4, 0)}),
        ("Dict", {"at": [0.1, 0.5], "card": (4, 0), "secret": 1}),
        ("Box", [0.1]),
        ("Box", "secret"),
    ],
)
def test_what_has_another_form_is_refused_unquoted(name, seen):
    space, bins, _ = SPACES[name]
    encode = declared_observations(space, None, None, bins)[2]
    with pytest.raises(TypeError, match=r"^an observation does not have the form of its space$") as refused:
        encode(seen)
    assert refused.value.__context__ is None


def test_beyond_the_edges_entries_are_in_the_outermost_bins():
    encode = declared_observations(BINNED, None, None, [4, [0.0]])[2]
    assert [encode([x, -9.0]) // 2 for x in (-np.inf, -5.0, 0.0, 0.25, 0.2499, 0.75, 1.0, 2.0, np.inf)] == [
        *(0, 0, 0, 1, 0, 3, 3, 3, 3)
    ]
    widest = spaces.Box(np.float64(-1.7e308), np.float64(1.7e308), (1,), np.float64)
    encode = declared_observations(widest, None, None, 4)[2]
    assert [encode([x]) for x in (-1.6e308, -1.0, 1.0, 1.6e308)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("space", "bins", "error", "message"),
    [
        (BINNED, None, ValueError, "bins are needed for a Box"),
        (BINNED, [2], ValueError, "one item for every entry of the Boxes there are, got fewer"),
        (BINNED, [2, 2, 2], ValueError, "one item for every entry of the Boxes there are, got more"),
        (CARD, 2, ValueError, "got more"),
        (CARD, [2], ValueError, "got more"),
        (BINNED, 0, ValueError, "bins must be at least 1"),
        (BINNED, 2.5, TypeError, "bins must be an integer"),
        (BINNED, "many", TypeError, "bins must be an integer"),
        (BINNED, [2, [1.0, 1.0]], ValueError, "finite edges that increase"),
        (BINNED, [2, [np.nan]], ValueError, "finite edges that increase"),
        (BINNED, [2, ["a"]], ValueError, "bins must hold numbers"),
        (BINNED, 100_000, ValueError, "has 10000000000 states, and at most"),
        (spaces.MultiDiscrete([2**40, 2**40]), None, ValueError, "states, and at most"),
        (spaces.Box(-np.inf, np.inf, (2,)), 3, ValueError, "must list edges for an entry of a Box without finite"),
        (spaces.Text(4), None, TypeError, "observations are Text, and states are made of Discrete, MultiDiscrete"),
        (spaces.Sequence(spaces.Discrete(2)), None, TypeError, "observations are Sequence"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Text(4))), None, TypeError, "observations are Text"),
    ],
    ids=str,
)
def test_what_declares_no_states_is_refused_before_anything_is_observed(space, bins, error, message):
    with pytest.raises(error, match=message):
        declared_observations(space, None, None, bins)


def test_bins_do_not_go_with_states():
    with pytest.raises(ValueError, match="bins and states exclude each other"):
        declared_observations(CARD, [1, 2], None, 3)


def test_blackjack_is_played_as_it_declares_itself():
    with gymnasium.make("Blackjack-v1") as env:
        walks = Trajectories.from_gymnasium(env, lambda seen: int(seen[0] < 17), 30, 50, seed=0)
    assert walks.n_states == 32 * 11 * 2
    seen = [walks.encoder.states[state] for state in walks.states]
    assert all(4 <= hand < 32 and 1 <= dealer <= 10 and ace in (0, 1) for hand, dealer, ace in seen)


def dataset(minari, name, space, episodes, data_format="arrow"):
    from minari.data_collector import EpisodeBuffer

    buffers = [
        EpisodeBuffer(observations=seen, actions=[0] * len(rewards), rewards=rewards,
                      terminations=[False] * len(rewards), truncations=[False] * (len(rewards) - 1) + [True])
        for seen, rewards in episodes
    ]  # fmt: skip
    minari.create_dataset_from_buffers(
        name, buffers, action_space=spaces.Discrete(4), observation_space=space, data_format=data_format,
        eval_env=None, algorithm_name="a", author="a", author_email="a", code_permalink="a",
        description="a")  # fmt: skip
    return minari.load_dataset(name)


@pytest.mark.filterwarnings("ignore:.*(set to|is) None:UserWarning")
def test_datasets_of_minari_and_their_episodes(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    cards = (np.array([4, 6, 5]), np.array([0, 1, 1]))
    found = dataset(minari, "cards/test-v0", CARD, [(cards, [0.0, 1.0]), ((cards[0][:2], cards[1][:2]), [0.5])])
    walks = Trajectories.from_minari(found)
    assert [walks.encoder.states[state] for state in walks.states] == [(4, 0), (6, 1), (4, 0)]
    assert (walks.rewards.tolist(), walks.offsets.tolist(), walks.n_states) == ([0.0, 1.0, 0.5], [0, 2, 3], 6)
    episodes = list(found.iterate_episodes())
    assert Trajectories.from_minari(episodes, space=CARD) == walks
    assert Trajectories.from_minari(iter(episodes), space=CARD) == walks
    assert Trajectories.from_minari(episodes[1], space=CARD) == walks[1:]
    names = list(itertools.product([4, 5, 6], [0, 1]))
    assert Trajectories.from_episodes(episodes, states=names) == walks
    assert Trajectories.from_minari(episodes, states=names) == walks
    with pytest.raises(ValueError, match="episodes declare no observation space"):
        Trajectories.from_minari(episodes)
    with pytest.raises(TypeError, match="dataset must hold Minari's episodes, got a int"):
        Trajectories.from_minari([1], space=CARD)
    with pytest.raises(TypeError, match="dataset must be of Minari, or its episodes, got int"):
        Trajectories.from_minari(1, space=CARD)
    boxed = dataset(minari, "box/test-v0", BINNED, [(np.array([[0.1, 0.5], [0.9, 0.2]], np.float32), [1.0])])
    assert Trajectories.from_minari(boxed, bins=2).states.tolist() == [1]
