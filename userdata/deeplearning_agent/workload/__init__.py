"""Workload of a node: set-up and run scripts, provisioning, the idle service and interruption notices."""
