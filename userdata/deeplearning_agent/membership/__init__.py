"""Membership: formation, liveness, evictions, replacements, and the files that nodes derive from it."""
