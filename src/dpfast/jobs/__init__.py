"""Batch jobs: a TOML file says what to read, fit, spend and write."""

from dpfast.jobs.job_types import Job
from dpfast.jobs.outputs import OutputError
from dpfast.jobs.run import check, plan, run

__all__ = ["Job", "OutputError", "check", "plan", "run"]
