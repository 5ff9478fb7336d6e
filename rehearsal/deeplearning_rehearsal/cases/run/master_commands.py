"""Runs the shell lines of a case on the master, as the login user."""

from collections.abc import Iterable, Mapping

from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.training import last_lines

_SECONDS = 120.0


def run_commands(nodes: Nodes, master: str, user: str, lines: Iterable[str]) -> Mapping[str, str]:
    """
    Run each line in a login shell of its own.

    Args:
        nodes: The lab.
        master: Instance id of the master.
        user: The login user.
        lines: What to run.

    Returns:
        Line -> why it did not succeed; empty where it did.
    """
    found = {}
    for line in lines:
        answer = nodes.run(master, ["bash", "-c", line], user=user, login_shell=True, timeout=_SECONDS)
        said = last_lines(answer.stdout + answer.stderr)
        found[line] = f"status {answer.returncode}: {said}" if answer.returncode else ""
    return found
