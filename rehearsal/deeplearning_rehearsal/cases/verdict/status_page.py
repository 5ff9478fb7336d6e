"""What `deeplearning-cdk status` says of a cluster, and when it is taken for what it stays."""

import time
from collections.abc import Callable, Iterable

_SECONDS = 120.0
"""Agents look for troubles of their node once a minute, and ship what they say every ten seconds."""
_INTERVAL_SECONDS = 1.0


def await_status(ask: Callable[[], str], texts: Iterable[str], seconds: float = _SECONDS) -> str:
    """
    Ask until the page has all of some texts, and return the last one.

    Args:
        ask: Returns the page.
        texts: What it must have.
        seconds: How long it may lack one.
    """
    needed = tuple(texts)
    give_up = time.monotonic() + seconds
    while True:
        page = ask()
        words = join_lines(page)
        if all(text in words for text in needed) or time.monotonic() > give_up:
            return page
        time.sleep(min(_INTERVAL_SECONDS, seconds))


def join_lines(page: str) -> str:
    """Return a page as one line, in which words stand beside each other wherever the page was broken."""
    return " ".join(page.split())
