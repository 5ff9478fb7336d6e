"""
A second deployment changes node groups of EKS as AWS does: all nodes are replaced, or none, or the group is.

EKS user guide, "Understand each phase of node updates" and "Customize managed nodes with launch templates".
"""

import json

import pytest

from tests.embedded_aws.eks_sample import Sample
from tests.embedded_aws.eks_template import NAME, make_template
from tests.real_time import wait_until

MINIMAL = {"UpdateStrategy": "MINIMAL"}
OTHER_DATA = {
    "LaunchTemplateData": {
        **make_template()["Resources"]["Template"]["Properties"]["LaunchTemplateData"],
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvdb", "Ebs": {"VolumeSize": 300}}],
    }
}


class UpdatedSample(Sample):
    """A deployed cluster with two nodes, whose stack is updated."""

    def __init__(self, cloud, name, nodes):
        super().__init__(cloud, name)
        self._nodes = nodes
        self.look()

    def look(self):
        """Take down the instances and the name of the group; return the sample."""
        self.old = [each["InstanceId"] for each in list_instances(self)["Instances"]]
        self.former_group = self.group["nodegroupName"]
        return self

    def update(self, template=None, **nodes):
        """Update the stack to other data of the launch template and other properties of the node group."""
        changed = make_template(
            Cluster={"Name": self.name},
            Nodes=self._nodes | nodes,
            **({"Template": template} if template else {}),
        )
        self.client("cloudformation").update_stack(StackName="sample", TemplateBody=json.dumps(changed))
        outcome = self.cloud.end()
        if outcome["status"] == "UPDATE_COMPLETE":
            self._nodes = self._nodes | nodes
        return outcome

    def follow(self):
        """Return what happened to nodes since the last time, in order: what, instance."""
        kinds = ("node", "node_gone", "drained")
        self.cloud.command("report")
        lines = [line for line in self.cloud._backlog if line["kind"] in kinds]
        self.cloud._backlog = [line for line in self.cloud._backlog if line not in lines]
        return [
            (line["kind"], line["machine"]["instance_id"] if "machine" in line else line["instance_id"])
            for line in lines
        ]


@pytest.fixture(scope="module")
def deploy(deploy_template):
    """Return the function that deploys a cluster with properties of its node group."""

    def deploy(name=NAME, nodes=None, **options):
        cloud = deploy_template(make_template(Cluster={"Name": name}, Nodes=nodes or {}), **(options or {}))
        assert isinstance(cloud.answer, dict), cloud.answer
        outcome = cloud.end()
        assert outcome["status"] == "CREATE_COMPLETE", outcome["reason"]
        for _ in range(2):
            cloud.next(lambda line: line["kind"] == "node")
        return UpdatedSample(cloud, name, nodes or {})

    return deploy


@pytest.fixture
def sample(share, deploy):
    """A cluster with a group that may have been replaced."""
    return share("sample", deploy).look()


def list_instances(sample):
    name = sample.group["resources"]["autoScalingGroups"][0]["name"]
    (group,) = sample.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
        "AutoScalingGroups"
    ]
    return group


def test_another_version_of_the_launch_template_replaces_all_nodes_after_a_surge(deploy):
    """The strategy DEFAULT launches two nodes more for each Availability Zone, whatever the group's maximum is."""
    sample = deploy()
    assert sample.update(OTHER_DATA)["status"] == "UPDATE_COMPLETE"
    events = sample.follow()
    assert [kind for kind, _ in events[:3]] == ["node", "node", "drained"]
    assert {name for kind, name in events if kind == "drained"} >= set(sample.old)
    assert sum(kind == "node" for kind, _ in events) == 4
    group = wait_until(lambda: found if len((found := list_instances(sample))["Instances"]) == 2 else None)
    assert (group["DesiredCapacity"], group["MaxSize"]) == (2, 2)
    assert not {each["InstanceId"] for each in group["Instances"]} & set(sample.old)
    assert sample.group["launchTemplate"]["version"] == "2"


def test_the_minimal_strategy_ends_a_node_before_it_launches_another(deploy):
    sample = deploy(nodes={"UpdateConfig": MINIMAL | {"MaxUnavailable": 1}})
    assert sample.update(OTHER_DATA)["status"] == "UPDATE_COMPLETE"
    assert [kind for kind, _ in sample.follow()] == ["drained", "node_gone", "node"] * 2


def test_sizes_labels_and_taints_are_changed_without_another_node(deploy):
    sample = deploy()
    taint = {"Key": "own", "Value": "yes", "Effect": "NO_SCHEDULE"}
    sizes = {"MinSize": 1, "DesiredSize": 2, "MaxSize": 3}
    changes = {"ScalingConfig": sizes, "Labels": {"owner": "us"}, "Taints": [taint], "UpdateConfig": MINIMAL}
    assert sample.update(**changes)["status"] == "UPDATE_COMPLETE"
    assert sample.follow() == []
    changed = sample.cloud.next(lambda line: line["kind"] == "changed")
    assert (changed["labels"].get("owner"), "team" in changed["labels"]) == ("us", False)
    assert changed["taints"] == [{"key": "own", "value": "yes", "effect": "NoSchedule"}]
    group = sample.group
    assert group["scalingConfig"] == {"minSize": 1, "desiredSize": 2, "maxSize": 3}
    assert (group["updateConfig"], group["labels"]) == ({"updateStrategy": "MINIMAL"}, {"owner": "us"})


def test_versions_are_not_updated_together_with_anything_else(deploy):
    """Words: aws/containers-roadmap#1258."""
    sample = deploy()
    outcome = sample.update(OTHER_DATA, ScalingConfig={"MinSize": 0, "DesiredSize": 1, "MaxSize": 2})
    assert outcome["status"].startswith("UPDATE_ROLLBACK")
    assert "Version and ReleaseVersion updates cannot be combined with other updates" in outcome["reason"]


def test_tags_are_not_updated_together_with_the_launch_template(deploy):
    """awsdocs/aws-cloudformation-user-guide#1181."""
    outcome = deploy().update(OTHER_DATA, Tags={"team": "other"})
    assert "Version and ReleaseVersion updates cannot be combined with other updates" in outcome["reason"]


@pytest.mark.parametrize(
    "change",
    [
        {"InstanceTypes": ["c5.4xlarge"]},
        {"AmiType": "AL2023_x86_64_STANDARD"},
        {"Subnets": [{"Ref": "Subnet"}, {"Ref": "OtherSubnet"}]},
        {"CapacityType": "SPOT"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_type_image_subnet_or_purchase_option_replaces_the_group(sample, change):
    """`createOnlyProperties` in CloudFormation's schema of AWS::EKS::Nodegroup."""
    assert sample.update(**change)["status"] == "UPDATE_COMPLETE"
    assert sample.group["nodegroupName"] != sample.former_group
    assert {name for kind, name in sample.follow() if kind == "node_gone"} == set(sample.old)
    assert sample.cloud.physical_id("Nodes") == f"{NAME}/{sample.group['nodegroupName']}"


def test_a_group_with_a_name_of_its_own_is_not_replaced(deploy):
    """The new group would have the name of the one that is still there."""
    sample = deploy(nodes={"NodegroupName": "own"})
    outcome = sample.update(InstanceTypes=["c5.4xlarge"])
    assert "NodeGroup already exists with name own" in outcome["reason"]
    assert sample.group["instanceTypes"] == ["c5.2xlarge"]


def test_an_update_fails_where_pods_do_not_end(deploy):
    """Words: aws/containers-roadmap#1282."""
    sample = deploy("full")
    reason = sample.update(OTHER_DATA)["reason"]
    assert "Update failed due to [{ErrorCode: PodEvictionFailure,ErrorMessage: Reached max retries while" in reason
    assert f"in node group {sample.former_group},ResourceIds: [ip-10-0-0-" in reason


def test_an_update_fails_where_ec2_has_no_room_for_the_surge(deploy):
    fault = {"code": "InsufficientInstanceCapacity", "ordinals": list(range(3, 100))}  # However often it tries again.
    sample = deploy(faults=[fault])
    reason = sample.update(OTHER_DATA)["reason"]
    assert "Update failed due to [{ErrorCode: AsgInstanceLaunchFailures,ErrorMessage: Could not launch" in reason
    assert "We currently do not have sufficient c5.2xlarge capacity" in reason
    assert set(sample.old) <= {each["InstanceId"] for each in list_instances(sample)["Instances"]}


def test_an_update_takes_its_turn_and_keeps_the_launch_template(deploy):
    """aws/containers-roadmap#2204, eksctl-io/eksctl#3104."""
    sample = deploy()
    key = {"clusterName": NAME, "nodegroupName": sample.former_group}
    own = sample.group["launchTemplate"]["id"]
    made = sample.client("ec2").create_launch_template(LaunchTemplateName="own", LaunchTemplateData={})
    other = made["LaunchTemplate"]["LaunchTemplateId"]
    said = sample.refuse("update_nodegroup_version", **key, launchTemplate={"id": other, "version": "1"})
    assert "cannot change, only its version" in said
    said = sample.refuse("update_nodegroup_version", **key, launchTemplate={"id": own, "name": "own"})
    assert "Either provide launch template ID or launch template name in the request." in said
    sample.eks.update_nodegroup_version(**key, launchTemplate={"id": own, "version": "1"})
    said = sample.refuse("update_nodegroup_config", **key, scalingConfig={"desiredSize": 1})
    assert "Nodegroup cannot be updated as it is currently not in Active State" in said
    assert "No update found for ID" in sample.refuse(
        "describe_update", name=NAME, updateId="x", nodegroupName=key["nodegroupName"]
    )
