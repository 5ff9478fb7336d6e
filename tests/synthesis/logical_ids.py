"""
The logical ids of every preset, which running stacks depend on.

    python -m tests.synthesis.logical_ids    # writes logical_ids.json anew
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from stacks.cluster_stack import make_stack
from stacks.context import read_choices
from tests.gates.presets import PRESETS

GOLDEN = Path(__file__).with_name("logical_ids.json")


def list_logical_ids(template: Mapping[str, Any]) -> dict[str, str]:
    """Return logical id -> type of every resource of a template, sorted."""
    return {name: template["Resources"][name]["Type"] for name in sorted(template["Resources"])}


def main() -> None:
    """Synthesize every preset and write the golden file."""
    found = {}
    for preset, context in PRESETS.items():
        app = cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False)
        (choice,) = read_choices(context)
        make_stack(app, choice)
        found[preset] = list_logical_ids(app.synth().stacks[0].template)
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
