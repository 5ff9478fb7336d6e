"""Data: sources, their contents, staging and publication on the shared or local disk."""
