"""A cluster as its users see it: `deeplearning-cdk status`, and shell lines on its master."""

import time
from collections.abc import Callable, Iterable, Mapping

from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.training import last_lines

_SECONDS = 120.0
"""Agents look for troubles of their node once a minute, and ship what they say every ten seconds."""
_INTERVAL_SECONDS = 1.0
_COMMAND_SECONDS = 120.0


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


def run_commands(nodes: Nodes, master: str, user: str, lines: Iterable[str]) -> Mapping[str, str]:
    """Run each shell line on the master in a login shell; return line -> why it did not succeed, empty where it did."""
    found = {}
    for line in lines:
        answer = nodes.run(master, ["bash", "-c", line], user=user, login_shell=True, timeout=_COMMAND_SECONDS)
        said = last_lines(answer.stdout + answer.stderr)
        found[line] = f"status {answer.returncode}: {said}" if answer.returncode else ""
    return found
