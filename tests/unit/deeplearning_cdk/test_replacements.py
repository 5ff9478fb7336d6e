"""What a user changes on a running cluster, and that CloudFormation gives nothing that holds data a new, empty one."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from deeplearning_cdk import NodeImage, Spending, TrainingCluster
from deeplearning_cli.template_changes import STATEFUL, Effect, compare_templates

CPU: dict[str, Any] = {"worker_instance_type": "m5.large"}
SPENDING = Spending(
    stop_when_idle=cdk.Duration.minutes(30),
    stop_after=cdk.Duration.hours(48),
    monthly_budget_usd=500,
    budget_stops=True,
)
CHANGES: dict[str, dict[str, Any]] = {
    "more workers at least": {"worker_min_capacity": 2},
    "more workers": {"worker_desired_capacity": 5, "worker_max_capacity": 8},
    "no workers": {"worker_desired_capacity": 0},
    "other workers": {"worker_instance_type": "c5.large"},
    "another master": {"master_instance_type": "c5.2xlarge"},
    "another image": {"image": replace(NodeImage.ubuntu(), parameter="/team/images/ubuntu")},
    "a newer release of the image": {"image_release": "2026-11-22"},
    "larger volumes": {"volume_size": cdk.Size.gibibytes(300)},
    "a budget and times to stop": {"spending": SPENDING},
    "no backups": {"file_system_backup": False},
}
"""A change of props that a running cluster takes, by what the user wants."""

KEPT = {"no backups": {"AWS::Backup::BackupVault"}}
"""The types of what leaves the template and stays in the account."""


def _check(before: Any, after: Any, kept: set[str]) -> None:
    """Make sure that two templates differ, that no data is lost, and that only these types are left behind."""
    changes = compare_templates(before, after)
    assert changes
    assert not [change for change in changes if change.loses_data]
    assert {
        change.resource_type for change in changes if change.resource_type in STATEFUL and change.effect is Effect.KEEP
    } == kept


@pytest.mark.fault(67)
@pytest.mark.parametrize("wish", CHANGES)
def test_a_change_of_a_running_cluster_replaces_nothing_that_holds_data(synthesize: Any, wish: str) -> None:
    before, after = synthesize(**CPU).template, synthesize(**CPU | CHANGES[wish]).template
    _check(before, after, KEPT.get(wish, set()))
    _check(after, before, set())


@pytest.mark.fault(67)
@pytest.mark.parametrize("prop", ["setup_script", "run_script"])
def test_another_script_replaces_nothing_that_holds_data(synthesize: Any, tmp_path: Path, prop: str) -> None:
    scripts = [tmp_path / "first.sh", tmp_path / "second.sh"]
    for script in scripts:
        script.write_text(f"#!/bin/bash\n# {script.name}\n")
    without, first, second = (
        synthesize(**CPU, **more).template for more in ({}, *({prop: str(script)} for script in scripts))
    )
    _check(without, first, set())
    _check(first, second, set())


def _synthesize_stack(make_stack: Any, read_stack: Any, wish: str = "") -> Any:
    """Return the template of a cluster with what only a stack of its own can have."""
    stack = make_stack()
    props: dict[str, Any] = {}
    if wish == "alarm_topic":
        props["alarm_topic"] = sns.Topic.from_topic_arn(stack, "Mine", "arn:aws:sns:us-east-1:111122223333:mine")
    if wish == "encryption_key":
        key = "arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab"
        props["encryption_key"] = kms.Key.from_key_arn(stack, "Mine", key)
    if wish == "tags":
        cdk.Tags.of(stack).add("team", "vision")
    TrainingCluster(stack, "Cluster", **CPU, **props)
    return read_stack(stack).template


@pytest.mark.fault(67)
@pytest.mark.parametrize("wish", ["alarm_topic", "tags"])
def test_another_topic_and_more_tags_replace_nothing_that_holds_data(
    make_stack: Any, read_stack: Any, wish: str
) -> None:
    before, after = _synthesize_stack(make_stack, read_stack), _synthesize_stack(make_stack, read_stack, wish)
    _check(before, after, set())
    _check(after, before, set())


@pytest.mark.fault(67)
def test_another_key_is_seen_to_replace_the_file_system_and_the_vault(make_stack: Any, read_stack: Any) -> None:
    before = _synthesize_stack(make_stack, read_stack)
    changes = compare_templates(before, _synthesize_stack(make_stack, read_stack, "encryption_key"))
    lost = {(change.resource_type, change.effect) for change in changes if change.loses_data}
    assert {("AWS::EFS::FileSystem", Effect.REPLACE), ("AWS::Backup::BackupVault", Effect.REPLACE)} <= lost


@pytest.mark.fault(67)
def test_another_logical_id_of_the_table_is_seen_to_lose_the_clusters_state(synthesize: Any) -> None:
    before = synthesize(**CPU)
    (name,) = before.of_type("AWS::DynamoDB::Table")
    after = copy.deepcopy(dict(before.template))
    after["Resources"]["Moved"] = after["Resources"].pop(name)
    assert [change.logical_id for change in compare_templates(before.template, after) if change.loses_data] == [name]
