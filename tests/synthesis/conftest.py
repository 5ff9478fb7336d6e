"""Synthesizes the stacks that a context asks for, in this process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from stacks.context import read_choices
from stacks.horovod_stack import HorovodStack

CPU = {"workers.instance_type": "m5.large"}


@pytest.fixture
def synthesize(tmp_path: Path) -> Callable[..., dict[str, Mapping[str, Any]]]:
    """Return a function from a context to the templates by stack name."""

    def make(context: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        app = cdk.App(
            context={"aws:cdk:disable-asset-staging": True},
            outdir=str(tmp_path / "out"),
            analytics_reporting=False,
            builtin_cloud_formation_validation=False,
        )
        for choice in read_choices(context):
            HorovodStack(app, choice)
        return {artifact.stack_name: artifact.template for artifact in app.synth().stacks}

    return make
