"""Capacity: the capacity adjuster with its triggers, the stack's request for nodes, and purchase options."""
