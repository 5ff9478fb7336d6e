"""Runs an example app as `python app.py` does, without the CDK's own validator, which is five sixths of its time."""

import runpy
import sys

import aws_cdk as cdk


class App(cdk.App):
    """An app whose templates are linted by the test that runs it."""

    def __init__(self, **props):
        super().__init__(builtin_cloud_formation_validation=False, **props)


if __name__ == "__main__":
    cdk.App = App
    sys.path[0] = "."
    runpy.run_path(sys.argv[1], run_name="__main__")
