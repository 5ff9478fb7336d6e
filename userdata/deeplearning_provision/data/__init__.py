"""Data: sources, staging, leases and publication on the shared or local disk."""
