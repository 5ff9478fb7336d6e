"""Stacks whose jobs run in images are created and deleted without a node, and without an image."""

import json
import subprocess
import sys

import aws_cdk as cdk
import pytest

from stacks.cluster_stack import make_stack
from stacks.context import read_choices
from tests.real_time import GENEROUS_SECONDS

TRY_ONE = """
import json, sys
from cdk_rehearsal.orders import try_orders
print(json.dumps(try_orders(sys.argv[1], 1)))
"""


@pytest.mark.parametrize("platform", ["eks", "sagemaker"])
def test_a_stack_is_created_and_deleted_without_nodes(platform, tmp_path):
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False, builtin_cloud_formation_validation=False)
    (choice,) = read_choices({"platform": platform})
    make_stack(app, choice)
    app.synth()
    command = [sys.executable, "-c", TRY_ONE, str(tmp_path)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=GENEROUS_SECONDS, check=True)
    assert json.loads(ended.stdout) == []
