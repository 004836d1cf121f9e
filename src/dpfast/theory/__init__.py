"""The papers' error bounds as functions of public numbers: as printed, and corrected where they are off."""
