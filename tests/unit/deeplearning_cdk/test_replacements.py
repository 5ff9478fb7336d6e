"""Changes of a running cluster, in which CloudFormation replaces nothing that holds data by a new, empty resource."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from deeplearning_cdk import NodeImage, Spending, TrainingCluster
from deeplearning_cli.changes.effects import Effect
from deeplearning_cli.changes.outcomes import STATEFUL
from deeplearning_cli.changes.templates import compare_templates
from tests.unit.deeplearning_cdk.clusters import props_of

CPU: dict[str, Any] = {"workers.instance_type": "m5.large"}
SPENDING = Spending(
    stop_when_idle=cdk.Duration.minutes(30),
    stop_after=cdk.Duration.hours(48),
    monthly_budget_usd=500,
    budget_stops=True,
)
SCRIPTS = ("workers.setup_script", "master.setup_script", "master.run_script")
EXAMPLES = Path(__file__).parents[3] / "examples"
CHANGED: dict[str, Any] = {
    "workers.instance_type": "c5.large",
    "workers.min_capacity": 2,
    "workers.desired_capacity": 5,
    "workers.max_capacity": 8,
    "workers.volume_size": 300,
    "master.instance_type": "c5.2xlarge",
    "software.image": replace(NodeImage.ubuntu(), parameter="/team/images/ubuntu"),
    "software.image_release": "2026-11-22",
    **dict.fromkeys(SCRIPTS, str(EXAMPLES / "run_elastic.sh")),
    "spending": SPENDING,
}
"""Changes that a user makes to a running cluster: all at once, since each would lose its data alone too."""
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "everything": (CPU, CPU | CHANGED, set()),
    "other scripts": (
        CPU | CHANGED,
        CPU | CHANGED | dict.fromkeys(SCRIPTS, str(EXAMPLES / "run_on_every_node.sh")),
        set(),
    ),
    "no workers": (CPU, CPU | {"workers.desired_capacity": 0}, set()),
    "no backups": (CPU, CPU | {"storage.backup": False}, {"AWS::Backup::BackupVault"}),
}
"""Before, after, and the types of what leaves the template and stays in the account."""


def _check(before, after, kept):
    """Make sure that two templates differ, that no data is lost, and that only these types are left behind."""
    changes = compare_templates(before, after)
    assert changes
    assert not [change for change in changes if change.loses_data]
    assert {
        change.resource_type for change in changes if change.resource_type in STATEFUL and change.effect is Effect.KEEP
    } == kept


@pytest.mark.fault(67)
@pytest.mark.parametrize(("before", "after", "kept"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_running_cluster_replaces_nothing_that_contains_data(synthesize, before, after, kept):
    first, second = synthesize(**before).template, synthesize(**after).template
    _check(first, second, kept)
    _check(second, first, set())


def _synthesize_with(make_stack, read_stack, **more):
    """Return the template of a cluster with what only a stack of its own can have."""
    stack = make_stack()
    props = {prop: make(stack, "Mine", arn) for prop, (make, arn) in more.items()}
    cdk.Tags.of(stack).add("team", "vision")
    TrainingCluster(stack, "Cluster", **props_of({**CPU, **props}))
    return read_stack(stack).template


@pytest.mark.fault(67)
def test_another_topic_and_more_tags_replace_nothing_that_contains_data(synthesize, make_stack, read_stack):
    topic = (sns.Topic.from_topic_arn, "arn:aws:sns:us-east-1:111122223333:mine")
    before, after = synthesize(**CPU).template, _synthesize_with(make_stack, read_stack, alarm_topic=topic)
    _check(before, after, set())
    _check(after, before, set())


@pytest.mark.fault(67)
def test_another_key_is_seen_to_replace_the_file_system_and_to_be_refused_by_the_vault(
    synthesize, make_stack, read_stack
):
    key = (kms.Key.from_key_arn, "arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab")
    after = _synthesize_with(make_stack, read_stack, encryption_key=key)
    changes = compare_templates(synthesize(**CPU).template, after)
    found = {(change.resource_type, change.effect) for change in changes if change.is_harmful}
    assert {("AWS::EFS::FileSystem", Effect.REPLACE), ("AWS::Backup::BackupVault", Effect.REFUSE)} <= found


@pytest.mark.fault(67)
def test_another_logical_id_of_the_table_is_seen_to_lose_the_clusters_state(synthesize):
    before = synthesize(**CPU)
    (name,) = before.of_type("AWS::DynamoDB::Table")
    after = copy.deepcopy(dict(before.template))
    after["Resources"]["Moved"] = after["Resources"].pop(name)
    assert [change.logical_id for change in compare_templates(before.template, after) if change.loses_data] == [name]
