"""Proves the roles of a cluster in both directions: that they allow what is done, and nothing besides."""
