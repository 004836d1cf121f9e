"""What was spent: the ledger, the records of releases, and their export."""

from dpfast.ledger.ledger import BudgetExceeded, Ledger, Reservation, paying
from dpfast.ledger.release import Release
from dpfast.privacy.filters import Split

__all__ = ["BudgetExceeded", "Ledger", "Release", "Reservation", "Split", "paying"]
