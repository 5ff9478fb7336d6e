"""Nodes of an earlier launch template are found, and replaced by Auto Scaling, workers first."""

import argparse
import io
import json
from types import SimpleNamespace

import boto3
import pytest
from botocore.stub import Stubber

from deeplearning_cli import upgrade as command
from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.upgrade import OutdatedNodes, RefreshError, compare_group, replace_nodes
from deeplearning_contract.names import ROLE_TAG, NodeRole

WORKERS = OutdatedNodes(NodeRole.WORKER, "training-workers", "3", {"i-1": "2"}, 2)
MASTER = OutdatedNodes(NodeRole.MASTER, "training-master", "3", {"i-0": "2"}, 1)


@pytest.fixture
def autoscaling():
    client = boto3.client("autoscaling")
    with Stubber(client) as stubber:
        client.stubber = stubber
        yield client
        stubber.assert_no_pending_responses()


def expect_refresh(client, group, keep, *states):
    client.stubber.add_response(
        "start_instance_refresh",
        {"InstanceRefreshId": "r-1"},
        {
            "AutoScalingGroupName": group,
            "Strategy": "Rolling",
            "Preferences": {"MinHealthyPercentage": keep, "SkipMatching": True},
        },
    )
    for state in states:
        client.stubber.add_response(
            "describe_instance_refreshes",
            {"InstanceRefreshes": [{"InstanceRefreshId": "r-1", "AutoScalingGroupName": group, **state}]},
            {"AutoScalingGroupName": group, "InstanceRefreshIds": ["r-1"]},
        )


def make_group(role, versions, version="3"):
    return {
        "AutoScalingGroupName": f"training-{role}",
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": version},
        "Instances": [
            {"InstanceId": name, "LaunchTemplate": {"Version": found}} if found else {"InstanceId": name}
            for name, found in versions.items()
        ],
        "Tags": [{"Key": ROLE_TAG, "Value": role}],
    }


def test_nodes_of_another_version_are_outdated_and_so_are_those_without_one():
    found = compare_group(make_group("worker", {"i-1": "3", "i-2": "2", "i-3": None}))
    assert (found.role, found.outdated, found.count) == (NodeRole.WORKER, {"i-2": "2", "i-3": "none"}, 3)


def test_empty_groups_of_other_candidates_are_left_out():
    responses = SimpleNamespace(
        groups=[make_group("master", {}), make_group("worker", {}), make_group("worker", {"i-1": "3"})], unread=()
    )
    access = SimpleNamespace(read=lambda: responses)
    assert [(nodes.role.value, nodes.count) for nodes in command.find_outdated(access)] == [
        ("worker", 1),
        ("master", 0),
    ]


def test_a_refresh_is_followed_until_it_ends_and_each_change_is_reported_once(autoscaling):
    running = {"Status": "InProgress", "PercentageComplete": 0}
    expect_refresh(autoscaling, "training-workers", 50, running, running, {"Status": "Successful"})
    told, slept = [], []
    replace_nodes(autoscaling, WORKERS, 50, told.append, slept.append)
    assert told == ["worker: InProgress, 0 %", "worker: Successful, 0 %"]
    assert len(slept) == 2


def test_a_master_is_alone_and_nothing_of_its_group_is_kept(autoscaling):
    expect_refresh(autoscaling, "training-master", 0, {"Status": "Successful", "PercentageComplete": 100})
    replace_nodes(autoscaling, MASTER, 50, lambda _: None, lambda _: None)


def test_a_refresh_that_fails_is_an_error_with_awss_reason(autoscaling):
    expect_refresh(autoscaling, "training-workers", 50, {"Status": "Failed", "StatusReason": "no capacity"})
    with pytest.raises(RefreshError, match="Failed, no capacity; run `deeplearning-cdk status`"):
        replace_nodes(autoscaling, WORKERS, 50, lambda _: None, lambda _: None)


def test_a_refresh_that_aws_refuses_is_an_error_that_names_the_group(autoscaling):
    autoscaling.stubber.add_client_error("start_instance_refresh", "InstanceRefreshInProgress", "one is under way")
    with pytest.raises(RefreshError, match=r"training-workers were not replaced: .*one is under way"):
        replace_nodes(autoscaling, WORKERS, 50, lambda _: None, lambda _: None)


def test_an_interruption_says_that_the_refresh_continues_and_how_to_cancel_it(autoscaling):
    def interrupt(_seconds):
        raise KeyboardInterrupt

    expect_refresh(autoscaling, "training-workers", 50, {"Status": "InProgress"})
    told = []
    with pytest.raises(KeyboardInterrupt):
        replace_nodes(autoscaling, WORKERS, 50, told.append, interrupt)
    assert "AWS continues a refresh that has begun" in told[-1]
    assert told[-1].endswith("aws autoscaling cancel-instance-refresh --auto-scaling-group-name training-workers")


@pytest.fixture
def run(monkeypatch):
    """Run the command over groups; return its status and the groups that it replaced."""

    def run(*groups, refresh_error=None, **more):
        replaced = []
        monkeypatch.setattr(command, "open_cloud", lambda _: CloudAccess(lambda _: None, "us-east-1", None))
        monkeypatch.setattr(
            "deeplearning_view.aws_reader.read_responses", lambda *_, **__: argparse.Namespace(groups=groups, unread=[])
        )

        def replace(_client, nodes, *_):
            if refresh_error:
                raise refresh_error
            replaced.append(nodes.role.value)

        monkeypatch.setattr(command, "replace_nodes", replace)
        arguments = {"dry_run": False, "yes": True, "keep_percent": 50, "json": False} | more
        return command.run(argparse.Namespace(**arguments)), replaced

    return run


OUTDATED = (make_group("master", {"i-0": "2"}), make_group("worker", {"i-1": "2", "i-2": "3"}))


def test_workers_are_replaced_before_the_master(run):
    assert run(*OUTDATED) == (0, ["worker", "master"])


def test_a_dry_run_names_the_outdated_nodes_and_replaces_none(run, capsys):
    assert run(*OUTDATED, dry_run=True) == (0, [])
    printed = capsys.readouterr().out
    assert "worker: 1 of 2 nodes started from another version than 3 of the launch template: i-1 (version 2)" in printed


def test_nothing_is_replaced_when_all_nodes_are_current(run):
    assert run(make_group("master", {"i-0": "3"}), make_group("worker", {"i-1": "3"})) == (0, [])


def test_no_node_is_replaced_without_consent(run, capsys):
    assert run(*OUTDATED, yes=False) == (2, [])
    assert "give --yes" in capsys.readouterr().err


class Terminal(io.StringIO):
    """Standard input with a user who types one line."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("typed", "result"), [("yes\n", (0, ["worker", "master"])), ("\n", (2, [])), ("", (2, []))])
def test_consent_is_asked_for_on_standard_error(run, capsys, monkeypatch, typed, result):
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert run(*OUTDATED, yes=False, json=True) == result
    printed = capsys.readouterr()
    assert "Continue? [y/N]" in printed.err
    assert list(json.loads(printed.out)) == (["error"] if result[0] else ["groups"])


@pytest.mark.parametrize("dry_run", [True, False])
def test_json_is_one_document_with_an_entry_for_each_group(run, capsys, dry_run):
    current = make_group("master", {"i-0": "3"})
    outdated = make_group("worker", {"i-1": "2", "i-2": "3"})
    assert run(current, outdated, json=True, dry_run=dry_run) == (0, [] if dry_run else ["worker"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["groups"] == [
        {
            "role": "worker",
            "group": "training-worker",
            "version": "3",
            "count": 2,
            "outdated": {"i-1": "2"},
            "is_replaced": not dry_run,
        },
        {
            "role": "master",
            "group": "training-master",
            "version": "3",
            "count": 1,
            "outdated": {},
            "is_replaced": False,
        },
    ]
    assert "worker: 1 of 2 nodes started from another version" in printed.err


def test_json_of_a_failed_refresh_is_its_error(run, capsys):
    status, _ = run(*OUTDATED, json=True, refresh_error=RefreshError("no capacity"))
    assert status == 1
    assert json.loads(capsys.readouterr().out) == {"error": {"message": "no capacity", "exit_status": 1}}


def test_a_cluster_without_groups_is_reported(run, capsys):
    assert run() == (2, [])
    assert "no groups that can be read" in capsys.readouterr().err
