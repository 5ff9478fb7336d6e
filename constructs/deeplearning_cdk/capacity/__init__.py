"""Capacity: the capacity adjuster, the stack's request for capacity, purchase options and spending limits."""
