"""Hosts of a job: their facts, the probe that reads them, the checks before a start, and running processes."""
