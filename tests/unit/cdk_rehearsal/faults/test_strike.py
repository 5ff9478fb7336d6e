"""Faults that strike complete stacks, without a lab."""

from types import SimpleNamespace

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.faults.strike import strike

GROUP = {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {}}
STACK = AssemblyStack("web", "123456789012", "us-east-1", {"Resources": {"Group": GROUP}}, ())
TAGS = {"aws:cloudformation:stack-name": "web", "aws:cloudformation:logical-id": "Group"}


class Groups:
    """The API of Auto Scaling, with one group that wants two instances."""

    def __init__(self, *instances):
        self.instances = [{"InstanceId": name, "LifecycleState": state} for name, state in instances]

    def describe_auto_scaling_instances(self, **_):
        return {"AutoScalingInstances": [{"AutoScalingGroupName": "web-Group"}]}

    def describe_auto_scaling_groups(self, **_):
        return {"AutoScalingGroups": [{"DesiredCapacity": 2, "Instances": self.instances}]}

    def describe_scaling_activities(self, **_):
        return {"Activities": [{"Description": "Launching a new EC2 instance.  Status Reason: no."}]}


def make_run(groups, *machines):
    """A run of machines, by their id and tags, that looks once whether a condition holds."""
    ended = []

    def wait_until(condition, _seconds):
        assert condition()

    return SimpleNamespace(
        machines=tuple(SimpleNamespace(instance_id=name, tags=tags) for name, tags in machines),
        client=lambda _: groups,
        power_off=ended.append,
        wait_until=wait_until,
        ended=ended,
    )


def test_an_instance_of_the_group_ends_and_not_a_single_one():
    groups = Groups(("i-2", "InService"), ("i-3", "InService"))
    run = make_run(groups, ("i-0", {}), ("i-1", TAGS), ("i-2", TAGS))
    assert strike("instance", run, [STACK]) == []
    assert [machine.instance_id for machine in run.ended] == ["i-1"]


def test_a_group_that_does_not_replace_an_instance_is_a_problem_with_its_last_activity():
    pending = Groups(("i-2", "InService"), ("i-3", "Pending"))
    kept = Groups(("i-1", "InService"), ("i-2", "InService"), ("i-3", "InService"))
    for groups in (pending, kept):
        (problem,) = strike("instance", make_run(groups, ("i-1", TAGS), ("i-2", TAGS)), [STACK])
        assert problem.startswith("web-Group must replace i-1 in 120 s, its last activity: Launching a new EC2")


def test_a_group_without_instances_has_none_to_strike():
    for fault in ("instance", "network"):
        (problem,) = strike(fault, make_run(Groups(), ("i-0", {})), [STACK])
        assert problem == f"fault {fault} must strike an instance of a group, none runs"


def test_nothing_strikes_complete_stacks_without_a_fault_or_with_one_of_launches():
    assert strike(None, make_run(Groups(), ("i-1", TAGS)), [STACK]) == []
    assert strike("capacity", make_run(Groups(), ("i-1", TAGS)), [STACK]) == []
