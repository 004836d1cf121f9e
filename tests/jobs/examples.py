"""Tables that fit the templates of jobs, made up."""

import numpy as np
import pandas as pd

from dpfast.jobs.job_types import kinds, template

JOB_TYPES = kinds()


def table_of(kind, n=400, seed=0):
    """Return a table for the job that ``dpfast new`` writes."""
    rng = np.random.default_rng(seed)
    if kind == "synthetic_control":
        return pd.DataFrame(rng.uniform(0, 5, (n, 4)), columns=["2019", "2020", "2021", "2022"])
    if kind == "policy_evaluation":
        steps = {"patient": np.repeat(np.arange(n), 3), "step": np.tile(np.arange(3), n)}
        return pd.DataFrame(steps | {"state": rng.choice(["well", "ill", "home"], 3 * n), "reward": rng.random(3 * n)})
    columns = {"age": rng.uniform(18, 100, n), "smoker": rng.random(n) < 0.3, "dose": rng.normal(size=n)}
    columns |= {"site": rng.choice(["Bern", "Basel", "Genf"], n), "days": rng.gamma(2, 2, n)}
    return pd.DataFrame(
        columns | {"readmitted": rng.random(n) < 0.2, "outcome": rng.choice(["home", "ward", "dead"], n)}
    )


def write_job(folder, kind, *changes, table=None):
    """Write the job of ``dpfast new`` and its table, with some lines replaced by others."""
    text = template(JOB_TYPES[kind])
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    (table_of(kind) if table is None else table).to_csv(folder / "table.csv", index=False)
    path = folder / "job.toml"
    path.write_text(text)
    return path


def without(text, section):
    """Return a job without a section, whose comments may stay."""
    before, _, after = text.partition(f"\n[{section}]\n")
    lines = after.splitlines(keepends=True)
    end = next(number for number, line in enumerate(lines) if line.removeprefix("# ").startswith("["))
    return before + "\n" + "".join(lines[end:])
