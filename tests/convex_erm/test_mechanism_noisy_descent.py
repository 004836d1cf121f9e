"""Noisy descent: every step is calibrated for what one person moves it by, whatever was released before."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dpfast import Privacy, io, noise
from dpfast.convex_erm.mechanism import NoisyDescent
from dpfast.privacy import compose_mu, gaussian_mu
from dpfast.releases.mechanism import release
from dpfast.releases.people import People
from dpfast.statistics.residuals import residual_bound
from dpfast.statistics.rows import RowMap

N = 300
BOUND = 2.0


def table(link, n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = 0.8 * rng.normal(size=(n, 3))
    if link == "logistic":
        return x, np.where(x @ [[1.0], [0.0], [-2.0]] > 0.0, 1.0, -1.0)
    return x, np.eye(3)[np.argmax(x @ rng.normal(size=(3, 3)), axis=1)]


def mechanism_of(link, adjacency="replace_one", *, n=N, epsilon=1.0, constant=False):
    rows = n if adjacency == "replace_one" else None
    row_map = RowMap(bound=BOUND, scale=np.full(3, 2.0))
    sizes = 3, 1 if link == "logistic" else 3
    return NoisyDescent(Privacy(epsilon, 1e-5, adjacency), link, row_map, sizes, constant, rows)


def requested(mechanism, people, seed):
    """Every stage of a fit, as the noise of a seed leads to it."""
    source = noise.resolve_source(seed)
    stages = mechanism.stages()
    stage = next(stages)
    while True:
        yield stage
        try:
            stage = stages.send(stage.mechanism.release(stage.statistic(people), source, stage.name))
        except StopIteration:
            return


def people_of(rows, outcomes):
    return People(io.open_table(rows, outcomes), n_threads=1)


ROWS = [[2.0, 0.0, 0.0], [1e6, -1e6, 1e6], [1e-3, 0.0, 0.0], [0.3, -0.2, 0.4], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(("link", "constant"), [("logistic", False), ("softmax", True)])
def test_no_neighbour_moves_any_step_beyond_its_part(link, constant, adjacency):
    mechanism = mechanism_of(link, adjacency, constant=constant, epsilon=4.0)
    x, y = table(link)
    # Where the first person is far out, and of the other class than it seems.
    x[0], y[0] = [1e6, -1e6, 1e6], [-1.0] if link == "logistic" else [0.0, 0.0, 1.0]
    ends = (
        [[1.0], [-1.0], [9.0], [-0.3]]
        if link == "logistic"
        else [*np.eye(3).tolist(), [9.0, 9.0, 9.0], [0.3, 0.0, 0.0]]
    )
    replaced = slice(0 if adjacency == "replace_one" else N, 1 if adjacency == "replace_one" else N)
    others = []
    for row in ROWS:
        for end in ends:
            rows, outcomes = (
                np.concatenate([v[: replaced.start], [new], v[replaced.stop :]]) for v, new in ((x, row), (y, end))
            )
            others.append(people_of(rows, outcomes))
    people, largest = people_of(x, y), 0.0
    for number, stage in enumerate(requested(mechanism, people, 0)):
        if number % 5 > 1:
            continue
        sums = stage.statistic(people).to_float64()
        far = max(float(np.linalg.norm(stage.statistic(other).to_float64() - sums)) for other in others)
        assert far / stage.mechanism.scale <= stage.mechanism.mu * (1.0 + 1e-12), stage.name
        largest = max(largest, far / stage.mechanism.scale / stage.mechanism.mu)
    assert largest > 0.99


def test_noise_is_for_the_rounding_of_all_of_a_persons_rows():
    mechanism = replace(mechanism_of("logistic", "replace_one"), n_rows=None, max_rows=10_000)
    step = mechanism._first_step
    assert mechanism._bound == residual_bound(mechanism._clip, step, 10_000) > residual_bound(mechanism._clip, step, 1)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize(("link", "constant"), [("logistic", True), ("softmax", False)])
def test_no_person_moves_any_step_beyond_its_part(link, constant, adjacency):
    """With all their rows, of which three count: alike, opposed, far out, few or many."""
    mechanism = replace(mechanism_of(link, adjacency, constant=constant, epsilon=8.0), n_rows=None, max_rows=3)
    x, y = table(link, 60)
    ids = np.arange(60) // 2 + 1
    end = (
        (lambda sign: [sign]) if link == "logistic" else (lambda sign: [1.0, 0.0, 0.0] if sign > 0 else [0.0, 0.0, 1.0])
    )
    far, near = [1e6, -1e6, 1e6], [0.3, -0.2, 0.4]
    persons = [[(far, sign)] * k for sign in (1.0, -1.0) for k in (1, 3, 7)]
    persons += [[(near, 1.0), (near, -1.0), (far, 1.0)], [(far, 1.0), (far, -1.0)], [(near, 1.0)] * 3]

    def people_with(person):
        rows, outcomes = [row for row, _ in person], [end(sign) for _, sign in person]
        own = np.zeros(len(person), int)
        joined = (np.concatenate([np.reshape(a, (-1, b.shape[1])), b]) for a, b in ((rows, x), (outcomes, y)))
        return People(io.open_table(*joined), np.concatenate([own, ids]), 3, 1)

    people = people_with(persons[0])
    others = [people_with(person) for person in (persons[1:] if adjacency == "replace_one" else [*persons, []])]
    largest = {}
    for number, stage in enumerate(requested(mechanism, people, 0)):
        if number > 2 and number % 9:
            continue
        sums = [stage.statistic(one).to_float64() for one in (people, *others)]
        # The last is without the person.
        base = sums[0] if adjacency == "replace_one" else sums[-1]
        far_off = max(float(np.linalg.norm(one - base)) for one in sums)
        share = far_off / stage.mechanism.scale / stage.mechanism.mu
        assert share <= 1.0 + 1e-12, stage.name
        assert stage.mechanism.unit == "person"
        largest[min(number, 1)] = max(largest.get(min(number, 1), 0.0), share)
    # A count of 1 to 3 rows differs by 2; a sum of three rows is clipped to the bound. Slopes of two classes of three
    # are at an angle of 120 degrees.
    is_at_an_angle = link == "softmax" and adjacency == "replace_one"
    assert largest[1] > (0.99 * math.sqrt(0.75) if is_at_an_angle else 0.99)
    assert largest[0] == pytest.approx(1.0 / 3.0 if adjacency == "replace_one" else 1.0)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_all_steps_together_keep_to_the_budget_and_use_it_up(adjacency):
    mechanism = mechanism_of("softmax", adjacency)
    mus = [stage.mechanism.mu for stage in requested(mechanism, people_of(*table("softmax")), 0)]
    whole = gaussian_mu(1.0, 1e-5)
    assert whole * (1.0 - 1e-9) <= compose_mu(mus) <= whole
    # As many steps as the released count asks for.
    assert abs(len(mus) - mechanism.schedule(N).n_steps) <= 8


def test_names_of_steps_differ_so_that_seeded_noise_does():
    mechanism = mechanism_of("logistic", "add_remove")
    names = [stage.name for stage in requested(mechanism, people_of(*table("logistic")), 0)]
    assert len(set(names)) == len(names) > 30
    releases = release(mechanism, people_of(*table("logistic")), noise.resolve_source(0), "fit")
    assert len({one.name for one in releases}) == len(releases)
    steps = np.array([one.values["sum"] for one in releases[1:]])
    assert len(np.unique(steps[:, 0, 0])) == len(steps)


def test_what_is_released_is_all_that_is_told():
    for adjacency in ("replace_one", "add_remove"):
        mechanism = mechanism_of("softmax", adjacency)
        releases = release(mechanism, people_of(*table("softmax")), noise.resolve_source(5), "fit")
        one, other = (mechanism.solve(releases) for _ in range(2))
        np.testing.assert_array_equal(one.theta, other.theta)
        count = releases[0].values["sum"][0, 0]
        assert one.people == (N if adjacency == "replace_one" else count)
        # Tables of another size lead to other noise alone.
        assert mechanism_of("softmax", adjacency, n=N).solve(releases).theta.tolist() == one.theta.tolist()


def test_a_private_number_of_people_leaves_nothing_but_its_noisy_count():
    mechanism = mechanism_of("logistic", "add_remove")
    stages = mechanism.stages()
    first = next(stages)
    assert first.mechanism.mu**2 == pytest.approx(0.02 * gaussian_mu(1.0, 1e-5) ** 2, rel=1e-6)
    # One person more moves it by 1.
    assert first.mechanism.scale * first.mechanism.mu == pytest.approx(1.0)


def test_labels_beyond_their_weight_count_as_it():
    for link in ("logistic", "softmax"):
        x, y = table(link)
        stage = next(mechanism_of(link).stages())
        sums = [stage.statistic(people_of(0.1 * x, size * y)).to_float64() for size in (1.0, 9.0)]
        np.testing.assert_array_equal(*sums)


def test_pure_privacy_is_refused():
    with pytest.raises(ValueError, match="delta > 0"):
        NoisyDescent(Privacy(1.0), "logistic", RowMap(bound=1.0), (3, 1), n_rows=N)


def test_with_hardly_any_noise_many_classes_are_told_apart_as_they_can_be():
    x, y = table("softmax", 4_000)
    mechanism = mechanism_of("softmax", n=4_000, epsilon=50.0)
    theta = mechanism.solve(release(mechanism, people_of(x, y), noise.resolve_source(0), "fit")).theta
    assert np.mean((x @ theta).argmax(axis=1) == y.argmax(axis=1)) > 0.97


def test_noise_of_a_step_has_the_calibrated_law():
    # Of rows that are 0, nothing but noise is released.
    mechanism = mechanism_of("softmax")
    nobody = people_of(np.zeros((N, 3)), np.eye(3)[np.zeros(N, int)])
    stage = next(iter(requested(mechanism, nobody, 0)))
    source = noise.SeededSource(0)
    draws = [stage.mechanism.release(stage.statistic(nobody), source, "x").values["sum"] for _ in range(400)]
    z = np.array(draws).ravel() / stage.mechanism.deviation
    # A clip of length c for sums that one person replaced moves by 2 c: mu of the step is its share of the whole.
    steps = mechanism.schedule(N).n_steps
    clip = 0.5 * math.sqrt(2.0 / 3.0) * mechanism.row_bound
    assert stage.mechanism.deviation == pytest.approx(2.0 * clip * math.sqrt(steps) / gaussian_mu(1.0, 1e-5), rel=1e-4)
    # Fails for two seeds in a million: it is fixed.
    assert abs(z.mean()) < 5.0 / math.sqrt(z.size)
    assert abs(z.var() - 1.0) < 5.0 * math.sqrt(2.0 / z.size)


def test_early_steps_show_that_noise_hides_little_where_few_of_them_suffice():
    """Classes that overlap: slopes are over long before the first half of the steps is."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.0, 1.0, size=(4_000, 3))
    y = np.eye(3)[np.argmax(x @ rng.normal(size=(3, 3)) + rng.gumbel(size=(4_000, 3)), axis=1)]
    mechanism = mechanism_of("softmax", n=4_000, constant=True)
    for seed in range(5):
        releases = release(mechanism, people_of(x, y), noise.resolve_source(seed), "fit")
        assert mechanism.shown_agreement(releases) > 0.99


def test_noise_alone_shows_that_it_hides_the_classes():
    mechanism, nobody = mechanism_of("softmax"), people_of(np.zeros((N, 3)), np.eye(3)[np.zeros(N, int)])
    seeded = [release(mechanism, nobody, noise.resolve_source(seed), "fit") for seed in range(20)]
    assert np.mean([mechanism.shown_agreement(releases) for releases in seeded]) < 0.55


def test_several_classes_with_a_weak_signal_are_rarely_said_to_be_noise():
    """Signal as long as the noise in all entries, where early steps alone often show none; and noise alone, told."""
    mechanism = mechanism_of("softmax")
    rng, entries = np.random.default_rng(2), math.prod(mechanism.shape)
    deviation = mechanism.whole.deviation

    def shown(length, steps=30):
        mean = np.zeros(mechanism.shape)
        mean[0, :2] = length * deviation * math.sqrt(entries / 2.0) * np.array([1.0, -1.0])
        sums = [mean + rng.normal(scale=deviation * math.sqrt(steps), size=mean.shape) for _ in range(steps)]
        releases = [SimpleNamespace(values={"sum": one}, scales={"sum": deviation * math.sqrt(steps)}) for one in sums]
        return mechanism.shown_agreement(releases), mechanism.likely_agreement(releases)

    early, likely = np.array([shown(1.0) for _ in range(400)]).T
    assert np.mean(likely < 0.5) < 0.1 < np.mean(early < 0.5)
    assert np.mean([shown(0.0)[1] for _ in range(400)]) < 0.55


@pytest.mark.parametrize("steps", [7, 8])
def test_early_steps_are_those_of_the_first_half(steps):
    """Slopes change afterwards, and show nothing of the first ones."""
    mechanism = mechanism_of("logistic")
    scale = mechanism.whole.deviation * math.sqrt(steps)

    def shown(later):
        sums = [2.0 * scale + scale * np.random.default_rng(k).normal(size=mechanism.shape) for k in range(steps)]
        sums[(steps + 1) // 2 :] = [later * one for one in sums[(steps + 1) // 2 :]]
        return mechanism.shown_agreement([SimpleNamespace(values={"sum": one}, scales={"sum": scale}) for one in sums])

    assert 0.0 < shown(1.0) == shown(100.0) < 1.0


def test_two_classes_are_judged_by_early_steps():
    mechanism = mechanism_of("logistic")
    labels = np.ones((N, 1))
    releases = release(mechanism, people_of(np.zeros((N, 3)), labels), noise.resolve_source(0), "fit")
    found = mechanism.solve(releases)
    assert found.likely_agreement == found.agreement == mechanism.shown_agreement(releases)
