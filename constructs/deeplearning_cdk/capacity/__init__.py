"""Capacity: the capacity adjuster with its triggers, the stack's request for capacity, and purchase options."""
