"""Reconciliation: carries decisions out, confirms them, and shuts a cluster down."""
