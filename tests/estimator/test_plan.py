import pandas as pd

from dpfast import Plan, PrivateStandardScaler


def test_plans_are_rows_to_be_compared():
    sizes = [PrivateStandardScaler.plan(n, 3, epsilon=1.0, delta=1e-6, box_x=(0, 1)) for n in (100, 10_000)]
    table = pd.concat([plan.summary() for plan in [*sizes, Plan(5, 1.0, 0.1, None, {}, score=0.5)]])
    assert table["n"].tolist() == [100, 10_000, 5]
    assert table["expected_error"].tolist() == [plan.expected_error for plan in sizes] + [1.0]
    assert table["needed_n"].isna().tolist() == [False, False, True]
    assert table["score"].isna().tolist() == [True, True, False]


def test_a_plan_for_just_enough_people_says_it_once():
    assert str(Plan(681, 0.1, 0.1, 681, {}, score=0.5, expected_score=0.46)) == (
        "681 people are needed for an added error of 0.1 of the outcomes' bound; a score of 0.5 without privacy becomes"
        " 0.46"
    )
    assert str(Plan(1_000, 0.07, 0.1, 681, {})) == (
        "with 1,000 people privacy adds an error of 0.07 of the outcomes' bound; 681 people are needed for 0.1"
    )
