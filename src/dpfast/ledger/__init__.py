"""Records of spending: the ledger, the records of releases, and their export."""

from dpfast.ledger.entries import Release
from dpfast.ledger.ledger import BudgetExceeded, Ledger, PaidFailure, Reservation, paying
from dpfast.privacy.composition import Split

__all__ = ["BudgetExceeded", "Ledger", "PaidFailure", "Release", "Reservation", "Split", "paying"]
