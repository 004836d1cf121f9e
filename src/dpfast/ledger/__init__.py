"""What was spent: the ledger, the records of releases, and their export."""

from dpfast.ledger.ledger import BudgetExceeded, Ledger, Reservation
from dpfast.ledger.release import Release

__all__ = ["BudgetExceeded", "Ledger", "Release", "Reservation"]
