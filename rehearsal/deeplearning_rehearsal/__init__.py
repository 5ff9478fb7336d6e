"""The judge of our own product: rehearses a cluster, checks its contract, trains on it and injects faults."""
