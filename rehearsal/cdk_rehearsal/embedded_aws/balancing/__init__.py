"""Elastic Load Balancing: what it refuses, and the health of targets by requests to the lab's machines."""
