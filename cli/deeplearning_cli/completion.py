"""`deeplearning-cdk completion`: prints what a shell needs to complete the command's words."""

import argparse
import importlib.util

from deeplearning_rehearsal.error_report import report_error
from deeplearning_rehearsal.errors import UnavailableError

SHELLS = ("bash", "zsh", "tcsh")


def print_completion(arguments: argparse.Namespace) -> int:
    """
    Print the completion script of a shell.

    Returns:
        0, or 2 when it cannot be made.
    """
    if importlib.util.find_spec("shtab") is None:
        return report_error(UnavailableError("missing: shtab; run: pip install 'deeplearning-cdk[operate]'"))
    import shtab  # noqa: PLC0415 - only this command needs it

    from deeplearning_cli.main import make_parser  # noqa: PLC0415 - it names this module

    print(shtab.complete(make_parser(), arguments.shell))
    return 0
