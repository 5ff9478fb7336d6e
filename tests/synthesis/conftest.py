"""Synthesizes the stacks that a context asks for, in this process."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import aws_cdk as cdk
import pytest

from stacks.cluster_stack import make_stack
from stacks.context import read_choices
from tests.example_app import run_example

CPU = {"workers.instance_type": "m5.large"}


@pytest.fixture(scope="session")
def run_as_cli():
    """
    Return a function that runs an app as the CDK CLI does, from its program, the assembly's folder and the context.

    One process runs one app after the other: to start Python and jsii takes as long as most apps.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda program, out, context: pool.submit(run_example, program, out, dict(context)).result()


@pytest.fixture(scope="session")
def synthesize(tmp_path_factory):
    """
    Return a function from a context to the templates by stack name, fresh copies; a context is synthesized once.

    `alter` changes each stack before it is synthesized.
    """
    folders = {}

    def make(context, alter=None):
        key = json.dumps([context, getattr(alter, "__name__", "")], sort_keys=True)
        if key not in folders:
            folder = tmp_path_factory.mktemp("assembly")
            app = cdk.App(
                context={"aws:cdk:disable-asset-staging": True},
                outdir=str(folder),
                analytics_reporting=False,
                builtin_cloud_formation_validation=False,
            )
            for choice in read_choices(context):
                stack = make_stack(app, choice)
                if alter is not None:
                    alter(stack)
            app.synth()
            folders[key] = folder
        # Templates are read from files: to carry them through jsii takes as long as half of a synthesis.
        return {
            path.name.removesuffix(".template.json"): json.loads(path.read_text())
            for path in folders[key].glob("*.template.json")
        }

    return make
