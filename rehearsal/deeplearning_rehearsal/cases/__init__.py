"""Fault cases: small TOML files that say what is injected into a rehearsal, when, and what must be seen then."""
