"""A view says of a cluster what AWS answered, and no more."""

from datetime import datetime, timedelta, timezone

import pytest

from deeplearning_contract.cluster_state import Departure, Phase
from deeplearning_contract.reason import Reason
from deeplearning_view.aws_responses import AwsResponses
from deeplearning_view.node_rows import read_login_user
from deeplearning_view.view_builder import make_view
from tests.unit.deeplearning_view import cluster_responses as given
from tests.unit.deeplearning_view.cluster_responses import (
    IMAGE,
    LOST_ID,
    MASTER_ID,
    WORKER_ID,
    make_group,
    make_instance,
    make_item,
    make_line,
    make_responses,
)

NOW = datetime.fromisoformat(given.BEGUN) + timedelta(minutes=2)


MEMBERS = ((MASTER_ID, "master"), (given.WORKER_ID, "worker"))


def look(responses):
    return make_view(responses, NOW)


def test_a_formed_cluster_shows_its_members_in_rank_order_with_what_they_are():
    view = look(make_responses())
    assert (view.verdict, view.formed, view.asked, view.generation) == ("formed", 2, 2, 1)
    assert [node.name for node in view.nodes] == ["deeplearning-worker1", "deeplearning-worker2"]
    master = view.nodes[0]
    assert (master.role, master.instance_id, master.address) == ("master", MASTER_ID, "10.0.0.4")
    assert (master.zone, master.image_id, master.gpu_count) == ("us-east-1a", IMAGE, 4)
    assert (master.lifecycle, master.phase, master.age_seconds) == ("running, InService", "formed", 120)
    assert (view.since, view.problems, view.warnings, view.unread) == (given.BEGUN, (), (), ())


def test_recorded_responses_give_the_same_view():
    responses = make_responses()
    responses.stack["CreationTime"] = datetime(2026, 11, 22, 10, tzinfo=timezone.utc)
    assert look(AwsResponses.from_json(responses.to_json())) == look(responses)


@pytest.mark.parametrize(
    ("status", "item", "verdict"),
    [
        ("CREATE_IN_PROGRESS", None, "forming"),
        ("CREATE_IN_PROGRESS", make_item(Phase.LAUNCHED, ()), "forming"),
        ("CREATE_IN_PROGRESS", make_item(Phase.PUBLISHED), "forming"),
        ("CREATE_IN_PROGRESS", make_item(Phase.FORMED), "formed"),
        ("CREATE_IN_PROGRESS", make_item(Phase.FAILED, ()), "failed"),
        ("CREATE_COMPLETE", make_item(Phase.PUBLISHED, has_formed=True), "formed"),
        ("CREATE_COMPLETE", None, "formed"),
        ("UPDATE_ROLLBACK_COMPLETE", make_item(), "formed"),
        ("ROLLBACK_IN_PROGRESS", None, "failed"),
        ("ROLLBACK_COMPLETE", None, "failed"),
        ("DELETE_COMPLETE", None, "deleted"),
    ],
)
def test_the_verdict_comes_from_the_stack_and_the_state_item(status, item, verdict):
    assert look(make_responses(status, item=item)).verdict == verdict


def test_a_cluster_without_any_node_was_stopped_on_purpose():
    groups = [make_group("masters", "master", 0, []), make_group("workers", "worker", 0, [])]
    assert look(make_responses(groups=groups)).verdict == "stopped"


def test_a_node_that_is_no_member_yet_shows_its_last_step_and_one_without_a_line_boots():
    lines = [
        make_line(WORKER_ID, "worker", "mounted", step="mount the file system"),
        make_line(WORKER_ID, "worker", "counted", seconds=1, step="count GPUs"),
    ]
    view = look(make_responses("CREATE_IN_PROGRESS", item=make_item(Phase.LAUNCHED, ()), node_lines=lines))
    assert [(node.role, node.phase, node.gpu_count) for node in view.nodes] == [
        ("master", "booting", None),
        ("worker", "count GPUs", None),
    ]


def test_a_node_whose_step_failed_is_failed_though_it_has_logged_since():
    lines = [
        make_line(WORKER_ID, "worker", "no", level="ERROR", reason=Reason("the disk is full; free it"), step="install"),
        make_line(WORKER_ID, "worker", "waits", seconds=1),
    ]
    view = look(make_responses("CREATE_IN_PROGRESS", item=make_item(Phase.LAUNCHED, ()), node_lines=lines))
    assert view.nodes[-1].phase == "failed"


def test_a_terminated_node_is_shown_behind_the_members_as_gone():
    instances = [make_instance(LOST_ID, "worker", "", state="terminated"), *make_responses().instances]
    view = look(make_responses(instances=instances))
    assert [(node.instance_id, node.phase, node.is_gone) for node in view.nodes][-1] == (LOST_ID, "gone", True)


def test_the_master_is_where_one_logs_in_and_ssh_needs_a_key_pair():
    session = f"aws ssm start-session --region us-east-1 --target {MASTER_ID}"
    assert look(make_responses()).log_in == (session,)
    instances = [make_instance(MASTER_ID, "master", "10.0.0.4") | {"KeyName": "mine", "PublicIpAddress": "192.0.2.7"}]
    assert look(make_responses(instances=instances)).log_in == (session, "ssh ubuntu@192.0.2.7")


def test_the_login_user_is_that_of_the_user_data():
    assert read_login_user({"workers": {"UserData": "not base64!"}, "masters": given.make_template()}) == "ubuntu"
    assert read_login_user({"workers": given.make_template(settings={"login_user": "a; rm -rf /"})}) == ""


def test_a_node_with_another_image_than_new_nodes_get_is_warned_about():
    templates = {"masters": given.make_template(), "workers": given.make_template("ami-0fedcba9876543210")}
    (warning,) = look(make_responses(templates=templates)).warnings
    assert warning.startswith("deeplearning-worker2 has the image ami-0123456789abcdef0, and new nodes get ami-0fed")
    assert warning.endswith("replace it: deeplearning-cdk upgrade")


def test_a_group_that_launches_nothing_is_warned_about_with_the_way_on():
    suspended = [{"ProcessName": "Launch", "SuspensionReason": "User suspended at noon"}]
    groups = [make_group("workers", "worker", 1, [], SuspendedProcesses=suspended)]
    (warning,) = look(make_responses(groups=groups)).warnings
    assert "User suspended at noon" in warning
    assert warning.endswith(
        "aws autoscaling resume-processes --scaling-processes Launch --auto-scaling-group-name workers"
    )


@pytest.mark.parametrize(
    ("limits", "settings", "is_warned"),
    [
        (None, {}, False),
        ({}, {}, True),
        ({"DEEPLEARNING_STOP_AFTER_SECONDS": "0"}, {"stop_when_idle_seconds": 0}, True),
        ({"DEEPLEARNING_STOP_AFTER_SECONDS": "3600"}, {}, False),
        ({"DEEPLEARNING_BUDGET_TOPIC_ARN": "arn:aws:sns:us-east-1:123456789012:budget"}, {}, False),
        ({}, {"stop_when_idle_seconds": 3600}, False),
    ],
)
def test_a_cluster_that_nothing_stops_is_warned_about(limits, settings, is_warned):
    templates = {"masters": given.make_template(settings=settings)}
    warnings = look(make_responses(limits=limits, templates=templates)).warnings
    assert [text.partition(",")[0] for text in warnings] == ["nothing stops this cluster automatically"] * is_warned


def test_provisioning_is_shown_and_its_failures_with_their_remedies():
    def say(node, role, state, detail, seconds=0.0, **parts):
        details = {"provision": "environment", "state": state, "detail": detail, **parts}
        return given.make_line(node, role, "goes by", seconds=seconds, **details)

    waits = "waiting for the master"
    lines = [say(given.MASTER_ID, "master", "running (42 %)", "compiling Horovod")]
    lines += [say(given.WORKER_ID, "worker", "waiting", waits)]
    view = look(make_responses(node_lines=lines))
    assert view.problems == ()
    assert view.provisioning == (
        "environment is running (42 %): compiling Horovod (deeplearning-worker1)",
        "environment is waiting: waiting for the master (deeplearning-worker2)",
    )
    lines.append(
        say(
            given.MASTER_ID,
            "master",
            "failed",
            "Horovod could not be compiled; pin another version; last lines: a.cc:1:1: error: no",
            seconds=1.0,
            reason=Reason("Horovod could not be compiled", "pin another version", "a.cc:1:1: error: no"),
        )
    )
    view = look(make_responses(node_lines=lines))
    assert view.verdict == "formed"
    (problem,) = view.problems
    assert (problem.what, problem.remedy) == ("environment on deeplearning-worker1", "pin another version")
    assert problem.cause == "Horovod could not be compiled; last lines: a.cc:1:1: error: no"
    done = say(given.MASTER_ID, "master", "done", "Horovod", seconds=2.0)
    assert look(make_responses(node_lines=[*lines, done])).problems == ()


def test_nodes_with_efa_that_use_tcp_get_a_warning_until_they_report_otherwise():
    slow = {"provider": "tcp: libfabric lists no EFA"}
    lines = [given.make_line(node, role, "NCCL will not", "WARNING", **slow) for node, role in MEMBERS]
    (warning,) = look(make_responses(node_lines=lines)).warnings
    assert warning == (
        "deeplearning-worker1, deeplearning-worker2: EFA is not used, tcp: libfabric lists no EFA; see "
        "`deeplearning health`, or deploy with network.efa=False"
    )
    later = [given.make_line(node, role, "goes by", seconds=9.0, provider="efa: 1 of 1") for node, role in MEMBERS]
    view = look(make_responses(node_lines=lines + later))
    assert view.warnings == ()
    assert {node.phase for node in view.nodes} == {"formed"}


def test_the_end_of_the_capacity_is_warned_about():
    (warning,) = look(make_responses(item=make_item(notice="the capacity block ends at noon"))).warnings
    assert warning == "the capacity ends soon: the capacity block ends at noon"


def test_an_unreadable_state_item_is_reported_and_the_rest_is_shown():
    view = look(make_responses(item={"cluster": {"S": "training-1"}, "document": {"S": "{"}}))
    assert view.verdict == "formed"
    assert view.unread[0].startswith("the state item: state must be JSON")
    assert len(view.nodes) == 2


def test_a_node_that_left_a_formed_cluster_is_a_past_problem():
    item = make_item(departed=(Departure(LOST_ID, 2, Reason("it does not answer any more")),))
    (problem,) = look(make_responses(item=item)).problems
    assert problem.is_past
    assert (problem.what, problem.cause) == (f"node {LOST_ID}", "it does not answer any more")
    assert problem.remedy
