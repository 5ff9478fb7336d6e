"""Errors of looking at a cluster."""


class LookError(Exception):
    """A cluster could not be looked at; the message says why and what to do."""
