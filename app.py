"""Create and synthesize the stacks that the user chose."""

import os
import sys
from pathlib import Path

import aws_cdk as cdk
from jsii.errors import JavaScriptError

from stacks.cluster_stack import make_stack
from stacks.context import read_choices, read_context


def main() -> None:
    """Read the context, create one stack per region, and write the cloud assembly."""
    context = read_context(sys.argv[1:], os.environ, Path(__file__).parent)
    choices = read_choices(context)
    app = cdk.App(
        context=context,
        outdir=os.environ.get("CDK_OUTDIR", "cdk.out"),
        # Otherwise the CLI adds a resource of its own, and the template would depend on how it was synthesized.
        analytics_reporting=False,
        # `make check` enables it; it takes five times as long as everything else.
        builtin_cloud_formation_validation=False,
    )
    for choice in choices:
        make_stack(app, choice)
    app.synth()


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")
    except RuntimeError as error:
        # Errors of the CDK itself, such as the findings of its validations at the end.
        if not isinstance(error.__cause__, JavaScriptError):
            raise
        sys.exit(f"error: {' '.join(str(error).split())}")
