"""Verdicts of fault cases: what was seen, and the results."""
