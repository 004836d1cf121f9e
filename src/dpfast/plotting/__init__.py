"""Pictures of released and public numbers; matplotlib is needed only here.

Every one takes `ax`, `title`, `label` and `unit` and returns the axes. Without `ax` it has a figure of its own, made
without pyplot; drawn on the same axes again, with another `label`, a second series stands beside the first. The styles
of `series` distinguish the series, also in other pictures. Their colours are for people who see red, green or blue
otherwise. Markers and styles of lines are for readers of grey.
"""

from dpfast.registry import lazy, stub_homes

__all__ = sorted(_HOMES := stub_homes(__file__))

__getattr__, __dir__ = lazy(__name__, _HOMES)
