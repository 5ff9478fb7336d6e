"""Capacity: the adjuster with what wakes it, the request for nodes, and purchase options."""
