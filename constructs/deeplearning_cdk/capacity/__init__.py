"""Capacity: the capacity adjuster, the stack's request for capacity, purchases, candidates and spending limits."""
