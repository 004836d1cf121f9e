"""The papers' error bounds as functions of public numbers: as printed, and corrected where they are off."""

from dpfast.theory import synthetic_control

__all__ = ["synthetic_control"]
