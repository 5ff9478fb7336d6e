"""Why a command gives no answer; `main` alone prints it."""

REFUSED = 2
"""The exit status when there is no answer."""


class RefusedError(Exception):
    """A command cannot be carried out; its text is the cause and the remedy, as the user reads it."""
