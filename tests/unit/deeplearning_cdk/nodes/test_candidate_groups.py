"""Groups of candidates: each has all that its nodes need, and the order is in the adjuster's settings alone."""

import copy
import json
import re
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs

from deeplearning_cdk import Candidate, Purchase, SharedFileSystem, TrainingCluster
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.names import NodeRole
from deeplearning_contract.settings import AdjusterSettings, NodeSettings
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, props_of
from tests.unit.deeplearning_cdk.conftest import render

GROUP = "AWS::AutoScaling::AutoScalingGroup"
THERE, SPOT, LARGER = (
    Candidate(availability_zone="us-east-1b"),
    Candidate(availability_zone="us-east-1c", purchase=Purchase.spot()),
    Candidate(instance_type="g5.48xlarge"),
)
FIRST: dict[str, Any] = {"workers.instance_type": "g5.12xlarge", "network.availability_zone": "us-east-1a"}
ALL = {**FIRST, "workers.fallbacks": (THERE, SPOT, LARGER)}


def groups_of(synthesis):
    """Return the properties of each group by its candidate, without the digest, and its role."""
    found = {}
    for entry in synthesis.of_type(GROUP).values():
        tags = {tag["Key"]: tag["Value"] for tag in entry["Properties"]["Tags"]}
        candidate = re.sub("-[0-9a-f]{4}$", "", tags["deeplearning:candidate"])
        found[candidate, tags["deeplearning:role"]] = entry
    return found


def data_of(synthesis, group):
    """Return the launch template data of a group."""
    name = group["Properties"]["LaunchTemplate"]["LaunchTemplateId"]["Ref"]
    return synthesis.template["Resources"][name]["Properties"]["LaunchTemplateData"]


def settings_of(synthesis, group):
    """Return the settings that the nodes of a group read."""
    text = render(data_of(synthesis, group)["UserData"]["Fn::Base64"])
    return NodeSettings.from_json(text.split("<<'SETTINGS'\n")[1].split("\nSETTINGS\n")[0])


def adjuster_of(template):
    """Return the environment of the adjuster."""
    name = next(name for name in template["Resources"] if "CapacityAdjusterFunction" in name)
    variables: dict[str, Any] = template["Resources"][name]["Properties"]["Environment"]["Variables"]
    return variables


TAGS = ["us-east-1a-g5.48xlarge-on-demand", "us-east-1b-g5.12xlarge-on-demand", "us-east-1c-g5.12xlarge-spot"]


def test_each_candidate_has_a_group_of_each_role_with_its_tag(synthesize):
    found = groups_of(synthesize(**ALL))
    assert sorted(found) == [(tag, role) for tag in ["0", *TAGS] for role in ("master", "worker")]
    for group in found.values():
        assert all(tag["PropagateAtLaunch"] for tag in group["Properties"]["Tags"])
        assert group["Properties"]["MinSize"] == "0"
        assert "DesiredCapacity" not in group["Properties"]
        assert (
            group["Properties"]["NotificationConfigurations"]
            == (found["0", "worker"]["Properties"]["NotificationConfigurations"])
        )


def test_each_candidate_launches_its_own_type_purchase_and_placement_in_its_own_zone(synthesize):
    synthesis = synthesize(**ALL)
    found = groups_of(synthesis)
    workers = {tag: found[tag, "worker"] for tag in ["0", *TAGS]}
    zones, types, markets = {}, {}, {}
    for tag, group in workers.items():
        (subnet,) = group["Properties"]["VPCZoneIdentifier"]
        zones[tag] = synthesis.template["Resources"][subnet["Ref"]]["Properties"]["AvailabilityZone"]
        types[tag] = data_of(synthesis, group)["InstanceType"]
        markets[tag] = data_of(synthesis, group).get("InstanceMarketOptions", {}).get("MarketType")
        assert found[tag, "master"]["Properties"]["VPCZoneIdentifier"] == [subnet]
        assert "InstanceMarketOptions" not in data_of(synthesis, found[tag, "master"])
    assert zones == dict(zip(["0", *TAGS], [f"us-east-1{letter}" for letter in "aabc"], strict=True))
    assert list(types.values()) == ["g5.12xlarge", "g5.48xlarge", "g5.12xlarge", "g5.12xlarge"]
    assert list(markets.values()) == [None, None, None, "spot"]
    assert len({group["Properties"]["PlacementGroup"]["Ref"] for group in found.values()}) == 4


def test_the_nodes_of_a_candidate_know_its_hardware(synthesize):
    synthesis = synthesize(**ALL)
    for (tag, role), group in groups_of(synthesis).items():
        settings = settings_of(synthesis, group)
        wanted = 8 if "48xlarge" in tag else 4
        assert settings.expected_gpu_count == wanted
        assert {each.gpu_count for each in settings.needs.hardware.values()} == {wanted}
        assert settings.role is NodeRole(role)


def test_the_groups_are_made_one_after_the_other_and_capacity_is_requested_after_all(synthesize):
    """In a fresh account two at once race for the service-linked role: it "has been taken in this account"."""
    synthesis = synthesize(**ALL)
    groups = synthesis.of_type(GROUP)
    made = sorted(groups, key=lambda name: len(synthesis.before(name) & set(groups)))
    assert [len(synthesis.before(name) & set(groups)) for name in made] == list(range(8))
    (request,) = synthesis.of_type("Custom::RequestedCapacity").values()
    assert set(groups) <= set(request["DependsOn"])
    assert request["Properties"]["Candidate"] == "0"


def test_the_adjuster_has_the_candidates_in_the_users_order_and_the_times_of_the_search(synthesize):
    synthesis = synthesize(**ALL, **{"workers.patience": Duration.minutes(4), "setup_timeout": Duration.hours(1)})
    groups = synthesis.of_type(GROUP).values()
    tags = {tag["Value"] for each in groups for tag in each["Properties"]["Tags"] if tag["Key"].endswith(":candidate")}
    given = {name: value for name, value in adjuster_of(synthesis.template).items() if isinstance(value, str)}
    read = AdjusterSettings.from_environment(dict.fromkeys(adjuster_of(synthesis.template), "1") | given)
    order = read.candidates.split(",")
    assert set(order) == tags
    assert [tag.rpartition("-")[0] or tag for tag in order] == ["0", TAGS[1], TAGS[2], TAGS[0]]
    assert read.first_candidate.rpartition("-")[0] == "us-east-1a-g5.12xlarge-on-demand"
    assert (read.patience_seconds, read.search_seconds) == (240, 45 * 60)
    # A cluster without fallbacks has none of these settings.
    assert not [
        name for name in adjuster_of(synthesize(**FIRST).template) if re.search("CANDIDATE|PATIENCE|SEARCH", name)
    ]


def test_a_reordered_list_changes_the_setting_of_the_adjuster_and_nothing_else(synthesize):
    one = synthesize(**ALL).template
    other = synthesize(**FIRST, **{"workers.fallbacks": (LARGER, SPOT, THERE)}).template
    assert adjuster_of(one)["DEEPLEARNING_CANDIDATES"] != adjuster_of(other)["DEEPLEARNING_CANDIDATES"]
    changed = copy.deepcopy(other)
    adjuster_of(changed)["DEEPLEARNING_CANDIDATES"] = adjuster_of(one)["DEEPLEARNING_CANDIDATES"]
    # As texts, so that the order of the resources counts too.
    assert json.dumps(changed) == json.dumps(one)


def test_fallbacks_add_to_the_template_and_change_no_resource_that_the_first_candidate_has(synthesize):
    without, found = synthesize(**FIRST).template["Resources"], synthesize(**ALL).template["Resources"]
    changed = {name for name in without if without[name] != found.get(name)}
    kinds = {without[name]["Type"] for name in changed}
    assert set(without) <= set(found)
    # The routes of endpoints, the key's user for spot instances, the order in the settings, event and metric of a
    # search, and what waits for more.
    assert kinds <= {
        "AWS::CloudWatch::Dashboard",
        "AWS::IAM::ManagedPolicy",
        "AWS::AutoScaling::AutoScalingGroup",
        "AWS::EC2::VPCEndpoint",
        "AWS::KMS::Key",
        "AWS::Lambda::Function",
        "Custom::RequestedCapacity",
        "AWS::CloudFormation::WaitCondition",
    }
    for name in changed:
        if without[name]["Type"] == "AWS::AutoScaling::AutoScalingGroup":
            assert without[name]["Properties"] == found[name]["Properties"]


def test_fallbacks_have_groups_by_their_tags_and_commands_of_a_role_run_on_the_nodes_of_all(make_stack, read_stack):
    cluster = TrainingCluster(stack := make_stack(region="us-east-1"), "Cluster", **props_of(ALL))
    assert [tag.rpartition("-")[0] for tag in cluster.nodes.fallbacks] == TAGS
    assert all(set(groups) == set(NodeRole) for groups in cluster.nodes.fallbacks.values())
    cluster.workers.add_user_data("echo hello")
    synthesis = read_stack(stack)
    for (_, role), group in groups_of(synthesis).items():
        text = render(data_of(synthesis, group)["UserData"]["Fn::Base64"])
        assert ("echo hello" in text) == (role == "worker")


@pytest.mark.parametrize(
    ("props", "said"),
    [
        (
            {"setup_timeout": Duration.minutes(34)},
            r"setup_timeout must leave 15 minutes .* after 4 candidates .* at least 35 min",
        ),
        (
            {"network.cidr": "10.0.0.0/24", "workers.desired_capacity": 20},
            r"must not exceed the 9 addresses that workers\.fallbacks\[0\]\.worker_subnet 10",
        ),
    ],
)
def test_time_and_addresses_must_suffice_for_every_candidate(make_stack, props, said):
    with pytest.raises(ValueError, match=said):
        TrainingCluster(make_stack(region="us-east-1"), "Cluster", **props_of({**ALL, **props}))


def test_warnings_about_types_are_about_those_of_fallbacks_too(synthesize):
    props = {"workers.instance_type": "g5.12xlarge", "workers.fallbacks": (Candidate(instance_type="p4d.24xlarge"),)}
    warnings = synthesize(**props, region="us-west-1").warnings
    assert any("instanceTypeNotInRegion:p4d.24xlarge" in text for text in warnings)


# --- Rights -------------------------------------------------------------------------------------------


def test_no_right_changes_with_fallbacks_but_to_send_the_event_and_that_of_the_key_for_spot(synthesize):
    kinds = ("AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::IAM::Role", "AWS::SNS::TopicPolicy")
    without, found = synthesize(**FIRST), synthesize(**ALL)
    # Rights over groups are by the cluster's tag, so that they are over those of every candidate.
    assert not [group for group in found.of_type(GROUP) if group in json.dumps(found.of_type(kinds[0]))]
    moved = f'"{EventKind.CAPACITY_MOVED.value}", '
    for kind in kinds:
        assert json.dumps(found.of_type(kind)).replace(moved, "") == json.dumps(without.of_type(kind))
    assert moved in json.dumps(found.policies("CapacityAdjuster"))
    spot = synthesize(**FIRST, **{"workers.purchase": Purchase.spot()})
    assert found.only("AWS::KMS::Key") == spot.only("AWS::KMS::Key")
    assert found.only("AWS::KMS::Key") != without.only("AWS::KMS::Key")


# --- The shared file system ---------------------------------------------------------------------------


def targets_of(synthesis):
    """Return the mount targets by the zone of their subnet."""
    found = {}
    for entry in synthesis.of_type("AWS::EFS::MountTarget").values():
        subnet = synthesis.template["Resources"][entry["Properties"]["SubnetId"]["Ref"]]
        found[subnet["Properties"]["AvailabilityZone"]] = entry["Properties"]
    return found


@pytest.mark.parametrize("props", [{}, {"storage.file_system": "fs-0123456789abcdef0"}], ids=["new", "by id"])
def test_the_file_system_has_a_mount_target_in_each_zone(synthesize, props):
    synthesis = synthesize(**ALL, **props)
    targets = targets_of(synthesis)
    assert list(targets) == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert len({json.dumps(each["SecurityGroups"]) for each in targets.values()}) == 1
    made = {name for name in synthesis.template["Resources"] if "MountTarget" in name}
    for name in synthesis.of_type(GROUP):
        assert made & synthesis.before(name) == set(synthesis.of_type("AWS::EFS::MountTarget"))


@pytest.mark.parametrize("zones", [1, 2])
def test_a_file_system_of_the_app_without_a_mount_target_in_a_zone_is_refused(make_stack, zones):
    stack = make_stack(region="us-east-1")
    names = ["us-east-1a", "us-east-1b"]
    vpc = ec2.Vpc(stack, "Vpc", availability_zones=names)
    subnets = ec2.SubnetSelection(subnets=vpc.private_subnets[:zones])
    system = efs.FileSystem(stack, "Efs", vpc=vpc, vpc_subnets=subnets, allow_anonymous_access=True)
    props = props_of({**FIRST, "workers.fallbacks": [THERE], "network.vpc": vpc, "storage.file_system": system})
    if zones == 2:
        assert TrainingCluster(stack, "Cluster", **props).nodes.fallbacks
    else:
        with pytest.raises(
            ValueError, match=r"storage\.file_system must have a mount target .* none in us-east-1b; add"
        ):
            TrainingCluster(stack, "Cluster", **props)


def test_a_file_system_that_another_cluster_made_serves_types_and_purchases(make_stack):
    stack = make_stack(region="us-east-1")
    vpc = ec2.Vpc(stack, "Vpc", availability_zones=["us-east-1a"])
    shared = SharedFileSystem(stack, "Shared", vpc=vpc, subnet=vpc.private_subnets[0])
    props = {**FIRST, "workers.fallbacks": [LARGER], "network.vpc": vpc, "storage.file_system": shared}
    assert TrainingCluster(stack, "Cluster", **props_of(props)).nodes.fallbacks


def test_a_cluster_that_reaches_its_master_by_ssh_has_public_subnets_in_each_zone(make_stack):
    stack: cdk.Stack = make_stack(region="us-east-1")
    vpc = ec2.Vpc(stack, "Vpc", availability_zones=["us-east-1a", "us-east-1b"])
    props = {**FIRST, "workers.fallbacks": [THERE], "network.vpc": vpc, "master.ssh_peer": "203.0.113.7/32"}
    place = TrainingCluster(stack, "Cluster", **props_of(props)).network.places
    (found,) = place.values()
    assert found.master_subnet.subnet_id == vpc.public_subnets[1].subnet_id
    assert found.has_public_master


def test_every_other_prop_goes_together_with_fallbacks_in_the_same_zone(synthesize):
    props = {**EVERYTHING, "workers.fallbacks": (Candidate(purchase=Purchase.on_demand()),)}
    found = groups_of(synthesize(**props | {"setup_timeout": Duration.minutes(30)}))
    assert len(found) == 4
