"""Reconciliation: confirms decisions, applies them, and shuts down a cluster."""
