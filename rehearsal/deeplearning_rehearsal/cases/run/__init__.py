"""Runs of fault cases: their stacks, the faults of AWS, and what each platform does while a case injects."""
