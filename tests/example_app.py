"""Runs an app as `python app.py` does, without the CDK's own validator, which is five sixths of its time."""

import os
import runpy
import sys
from pathlib import Path

import aws_cdk as cdk

ROOT = Path(__file__).parents[1]
REAL = cdk.App


def run_app(program, **props):
    """Run the program of an app with nothing of the checkout beside it; its `App` takes these props over its own."""
    # The templates are linted by the test that runs the app.
    forced = {"builtin_cloud_formation_validation": False, **props}
    cdk.App = lambda **own: REAL(**(own | forced))  # type: ignore[misc, assignment]
    sys.argv = [str(program)]
    sys.path[:] = [str(program.parent), *(path for path in sys.path[1:] if Path(path).resolve() != ROOT)]
    runpy.run_path(str(program), run_name="__main__")


def run_example(program, out, context):
    """Run an app as the CDK CLI does: in its folder and without AWS settings of the tests."""
    os.chdir(program.parent)
    for name in [name for name in os.environ if name.startswith(("AWS_", "CDK_"))]:
        del os.environ[name]
    run_app(program, outdir=str(out), context=context)


if __name__ == "__main__":
    run_app(Path(sys.argv[1]))
