"""Runs of fault cases: actions, injections, data and programs."""
