"""The version of the package that is installed."""

from importlib.metadata import version

__version__ = version("dpfast")
