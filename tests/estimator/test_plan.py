import pandas as pd
import pytest

from dpfast import Plan, PrivateStandardScaler
from dpfast.estimator.plan import least


def test_plans_are_rows_to_be_compared():
    sizes = [PrivateStandardScaler.plan(n, 3, epsilon=1.0, delta=1e-6, box_x=(0, 1)) for n in (100, 10_000)]
    table = pd.concat([plan.summary() for plan in [*sizes, Plan(5, 1.0, 0.1, None, {}, score=0.5)]])
    assert table["n"].tolist() == [100, 10_000, 5]
    assert table["expected_error"].tolist() == [plan.expected_error for plan in sizes] + [1.0]
    assert table["needed_n"].isna().tolist() == [False, False, True]
    assert table["score"].isna().tolist() == [True, True, False]
    assert str(table).splitlines()[0].split() == list(table)


def test_a_plan_for_just_enough_people_says_it_once():
    assert str(Plan(681, 0.1, 0.1, 681, {}, score=0.5, expected_score=0.46)) == (
        "681 people are needed for an added error of 0.1 of the outcomes' bound; a score of 0.5 without privacy becomes"
        " 0.46"
    )
    assert str(Plan(1_000, 0.07, 0.1, 681, {})) == (
        "with 1,000 people privacy adds an error of 0.07 of the outcomes' bound; 681 people are needed for 0.1"
    )


@pytest.mark.parametrize("enough", [1, 2, 3, 1_000, 1_023, 1_024, 1_025])
def test_the_least_number_is_found_in_few_tries(enough):
    tries = []

    def is_enough(people):
        tries.append(people)
        assert len(tries) < 100
        if people < enough / 2:
            raise ValueError("too few for the algorithm")
        return people >= enough

    assert least(is_enough) == least(is_enough, enough) == enough
    assert enough == 1 or least(is_enough, enough - 1) is None
