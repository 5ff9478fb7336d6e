"""
Findings of cdk-nag 2, whose packs are aspects of the app.

Its package has the name of cdk-nag 3, so a process of its own imports it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag

from stacks.cluster_stack import make_stack
from stacks.context import read_choices
from tests.gates.finding import Finding
from tests.gates.planting import open_ssh
from tests.gates.presets import PRESETS, grant_all

NAG_2 = "cdk-nag 2"
PACKAGE = Path(__file__).parents[2] / "build" / "nag2"
_PACKS = ("AwsSolutions", "NIST80053R5", "HIPAASecurity", "PCIDSS321")
_RULES = ("AwsSolutions-", "NIST.800.53.R5-", "HIPAA.Security-", "PCI.DSS.321-", "CdkNagValidationFailure")


def check_with_nag_2(presets: Sequence[str] = tuple(PRESETS), alter: str = "grant_all") -> list[Finding]:
    """
    Return the findings, warnings too, in the stacks of presets.

    Args:
        presets: Their names.
        alter: Name of the function that changes each stack: `grant_all` or `open_ssh`.
    """
    command = [sys.executable, "-m", __name__, alter, *presets]
    paths = {"PYTHONPATH": f"{PACKAGE}:{Path(__file__).parents[2]}"}
    answer = subprocess.run(command, env=os.environ | paths, stdout=subprocess.PIPE, check=True)
    return [Finding(gate=NAG_2, more="docs/guides/ci.md", **each) for each in json.loads(answer.stdout)]


def _synthesize(preset: str, alter: Callable[[Any], None], folder: str) -> list[dict[str, str]]:
    app = cdk.App(
        context={"aws:cdk:disable-asset-staging": True},
        outdir=folder,
        analytics_reporting=False,
        builtin_cloud_formation_validation=False,
    )
    (choice,) = read_choices(PRESETS[preset])
    stack = make_stack(app, choice)
    alter(stack)
    for name in _PACKS:
        cdk.Aspects.of(app).add(getattr(cdk_nag, f"{name}Checks")())
    app.synth()
    metadata = json.loads(Path(folder, f"{stack.stack_name}.metadata.json").read_text())
    return [
        {"preset": preset, "rule": text.partition(":")[0], "place": path.strip("/"), "what": text}
        for path, entries in metadata.items()
        for entry in entries
        if entry["type"] in ("aws:cdk:error", "aws:cdk:warning") and (text := str(entry["data"])).startswith(_RULES)
    ]


def main() -> None:
    """Print the findings in the named presets as JSON."""
    alter = {"grant_all": grant_all, "open_ssh": open_ssh}[sys.argv[1]]
    found = []
    for preset in sys.argv[2:]:
        with tempfile.TemporaryDirectory(prefix="nag2-") as folder:
            found += _synthesize(preset, alter, folder)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
