"""Checks of a formed cluster: the contract, provisioning, metrics and training."""
