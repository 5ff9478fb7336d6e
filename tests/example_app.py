"""Runs an app as `python app.py` does, without the CDK's own validator, which is five sixths of its time."""

import runpy
import sys
from pathlib import Path

import aws_cdk as cdk


class App(cdk.App):
    """An app whose templates are linted by the test that runs it."""

    def __init__(self, **props):
        super().__init__(builtin_cloud_formation_validation=False, **props)


if __name__ == "__main__":
    cdk.App = App
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
