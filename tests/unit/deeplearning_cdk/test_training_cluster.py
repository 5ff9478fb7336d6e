"""
Template of a cluster, and its promises.

Two defects of the predecessor cannot occur: nothing is written to the file system to remember a choice (D55), and no
conda environment of the image is touched (D66).
"""

import json
import re

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import InstanceTypeFacts, JobEnvironment, NodeImage, TrainingCluster, Workers
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, plan, props_of, warn
from tests.unit.deeplearning_cdk.test_public_api import MISLEADING_NAME, VARIANTS

ROLES = tuple(NodeRole)
GROUP = "AWS::AutoScaling::AutoScalingGroup"
CPU = {"workers.instance_type": "m5.large"}


# --- Groups -------------------------------------------------------------------------------------------


@pytest.mark.fault(2, 67)
@pytest.mark.defect("D21")
@pytest.mark.parametrize("props", [{}, {**CPU, "workers.desired_capacity": 0}], ids=["some workers", "none"])
def test_groups_request_no_capacity_and_keep_an_adjusted_one(synthesize, props):
    """
    A group is complete for CloudFormation "when the desired capacity is reached", by default its minimum.

    (`AWS::AutoScaling::AutoScalingGroup`, `DesiredCapacity`.) A literal 0 would be set again where CloudFormation reads
    `IgnoreUnmodifiedGroupSizeProperties` for all sizes together, and by the rollback of an update, in which it "is
    ignored" (`UpdatePolicy`); what is left out "will remain untouched" (aws/aws-cdk#5507).
    """
    for role in ROLES:
        group = synthesize(**props).group(role)
        assert "DesiredCapacity" not in group["Properties"]
        assert group["Properties"]["MinSize"] == "0"
        assert {"Key": "deeplearning:candidate", "PropagateAtLaunch": True, "Value": "0"} in group["Properties"]["Tags"]
        assert group["UpdatePolicy"] == {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}
        assert "CreationPolicy" not in group


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    ("fields", "capacity"),
    [
        ({}, (1, 3, 3)),
        ({"desired_capacity": 0}, (0, 0, 0)),
        ({"desired_capacity": 1}, (1, 1, 1)),
        ({"desired_capacity": 40}, (1, 40, 40)),
        ({"desired_capacity": 2, "max_capacity": 8}, (1, 2, 8)),
        ({"min_capacity": 2}, (2, 3, 3)),
        ({"min_capacity": 5}, (5, 5, 5)),
        ({"max_capacity": 2}, (1, 2, 2)),
        ({"max_capacity": 0}, (0, 0, 0)),
        ({"min_capacity": 0}, (0, 3, 3)),
    ],
)
@pytest.mark.defect("D67")
def test_workers_have_the_requested_capacity_and_may_grow(fields, capacity):
    assert Workers(**fields).capacity == capacity


@pytest.mark.parametrize(("props", "wanted"), [({}, ("1", "3", "3")), (EVERYTHING, ("2", "4", "8"))])
def test_the_adjuster_has_the_users_capacities_and_there_is_one_master_for_any_number_of_workers(
    synthesize, props, wanted
):
    synthesis = synthesize(**props)
    request = synthesis.only("Custom::RequestedCapacity")
    function = synthesis.template["Resources"][request["ServiceToken"]["Fn::GetAtt"][0]]["Properties"]
    fewest = function["Environment"]["Variables"]["DEEPLEARNING_WORKER_MIN_CAPACITY"]
    workers, master = (synthesis.group(role)["Properties"]["MaxSize"] for role in (NodeRole.WORKER, NodeRole.MASTER))
    assert (fewest, request["Workers"], workers) == wanted
    assert (request["Master"], master) == ("1", "1")


def test_groups_notify_the_topic_of_launches_terminations_and_their_errors(synthesize):
    for role in ROLES:
        (notification,) = synthesize().group(role)["Properties"]["NotificationConfigurations"]
        assert notification["NotificationTypes"] == [
            f"autoscaling:EC2_INSTANCE_{event}" for event in ("LAUNCH", "LAUNCH_ERROR", "TERMINATE", "TERMINATE_ERROR")
        ]


@pytest.mark.fault(25)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.defect("D14")
def test_role_is_a_tag_even_under_a_misleading_stack_name(synthesize, role):
    synthesis = synthesize(stack_name=MISLEADING_NAME)
    tags = {tag["Key"]: tag for tag in synthesis.group(role)["Properties"]["Tags"]}
    assert tags["deeplearning:role"]["Value"] == role.value
    assert tags["deeplearning:cluster"]["Value"].startswith(f"{MISLEADING_NAME}-")
    assert all(tag["PropagateAtLaunch"] for tag in tags.values())
    assert synthesis.settings(role).role is role


@pytest.mark.defect("D48")
def test_every_group_uses_a_launch_template_and_none_a_launch_configuration(synthesize):
    synthesis = synthesize()
    assert not synthesis.of_type("AWS::AutoScaling::LaunchConfiguration")
    assert all("LaunchTemplate" in group["Properties"] for group in synthesis.of_type(GROUP).values())


def test_instances_ask_for_imdsv2_with_one_hop_and_read_their_tags(synthesize):
    expected = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "InstanceMetadataTags": "enabled"}
    assert [synthesize().launch_data(role)["MetadataOptions"] for role in ROLES] == [expected] * 2


@pytest.mark.parametrize(("variant", "device"), [("default", "/dev/sda1"), ("amazon-linux", "/dev/xvda")])
@pytest.mark.defect("D50", "D64")
def test_root_volume_is_encrypted_gp3_on_the_images_device(synthesize, variant, device):
    synthesis = synthesize(**VARIANTS[variant])
    (volume,) = synthesis.launch_data(NodeRole.WORKER)["BlockDeviceMappings"]
    (key,) = synthesis.of_type("AWS::KMS::Key")
    assert volume == {
        "DeviceName": device,
        "Ebs": {
            "DeleteOnTermination": True,
            "Encrypted": True,
            "KmsKeyId": {"Fn::GetAtt": [key, "Arn"]},
            "VolumeSize": 150,
            "VolumeType": "gp3",
        },
    }


@pytest.mark.fault(10)
def test_all_nodes_live_in_one_subnet_of_one_zone(synthesize):
    synthesis = synthesize(**VARIANTS["capacity-block"])
    zones = {subnet["Properties"]["AvailabilityZone"] for subnet in synthesis.of_type("AWS::EC2::Subnet").values()}
    assert zones == {"us-east-1a"}
    subnets = [json.dumps(group["Properties"]["VPCZoneIdentifier"]) for group in synthesis.of_type(GROUP).values()]
    assert len(set(subnets)) == 1
    # A group of one subnet has nothing to rebalance.
    assert len(json.loads(subnets[0])) == 1


# --- Order of creation --------------------------------------------------------------------------------


@pytest.mark.fault(19, 65)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.defect("D49")
def test_groups_come_after_everything_that_their_nodes_need(synthesize, role):
    synthesis = synthesize()
    before = synthesis.before(synthesis.group_id(role))
    for kind in (
        "AWS::EC2::Route",
        "AWS::EC2::SubnetRouteTableAssociation",
        "AWS::EC2::NatGateway",
        "AWS::EC2::VPCGatewayAttachment",
        "AWS::EC2::VPCEndpoint",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EFS::MountTarget",
        "AWS::IAM::Role",
        "AWS::IAM::ManagedPolicy",
        "AWS::CloudFormation::WaitConditionHandle",
        "AWS::KMS::Key",
        "AWS::Lambda::Function",
        "AWS::Lambda::Permission",
        "AWS::Logs::LogGroup",
        "AWS::SNS::Subscription",
        "AWS::SNS::TopicPolicy",
        "AWS::Events::Rule",
        "AWS::SQS::Queue",
        "AWS::SQS::QueuePolicy",
        "AWS::DynamoDB::Table",
    ):
        beside = re.compile("Monitoring|Image|FlowLog|Backup")
        found = {name for name in synthesis.of_type(kind) if not beside.search(name)}
        assert found, kind
        assert found <= before, kind


@pytest.mark.defect("D43")
def test_wait_starts_with_the_groups(synthesize):
    synthesis = synthesize()
    (wait,) = synthesis.of_type("AWS::CloudFormation::WaitCondition")
    needs = {name for role in ROLES for name in synthesis.group(role)["DependsOn"]}
    assert needs - set(synthesis.of_type(GROUP)) <= synthesis.before(wait)


def test_nothing_depends_on_itself(synthesize):
    synthesis = synthesize(**VARIANTS["amazon-linux"])
    assert not [name for name in synthesis.template["Resources"] if name in synthesis.before(name)]


@pytest.mark.fault(63)
@pytest.mark.parametrize(("props", "seconds"), [({}, 55 * 60), (EVERYTHING, 20 * 60)], ids=["default", "chosen"])
def test_wait_ends_with_the_setup_timeout_and_nodes_stop_before_it(synthesize, props, seconds):
    synthesis = synthesize(**props)
    wait = synthesis.only("AWS::CloudFormation::WaitCondition")
    assert (wait["Timeout"], wait["Count"]) == (str(seconds), 1)
    assert 0 < synthesis.settings(NodeRole.MASTER).setup_seconds < seconds


# --- What users do with a cluster ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def used(make_app, read_stack):
    """Return a synthesized cluster with which its user has done all of this."""
    stack = cdk.Stack(make_app(), "Stack")
    cluster = TrainingCluster(stack, "Cluster", **props_of(CPU))
    buckets = {name: s3.Bucket(stack, name) for name in ("Data", "More", "Own", "Named")}
    for name in ("Data", "More"):
        buckets[name].grant_read(cluster)
    buckets["Own"].grant_write(cluster.master)
    principals = [cluster.grant_principal]
    everything = buckets["Named"].arn_for_objects("*")
    buckets["Named"].add_to_resource_policy(
        iam.PolicyStatement(actions=["s3:GetObject"], resources=[everything], principals=principals)
    )
    cluster.connections.allow_from(ec2.Peer.ipv4("192.0.2.0/24"), ec2.Port.tcp(8265))
    client = ec2.SecurityGroup(stack, "Client", vpc=cluster.network.vpc)
    cluster.file_system.connections.allow_default_port_from(client)
    cdk.Tags.of(cluster).add("team:name", "vision")
    return read_stack(stack)


def test_grants_of_users_reach_both_roles_before_the_nodes(used):
    made = {name for name in used.of_type("AWS::IAM::ManagedPolicy") if "Grants" in name}
    assert len(made) == len(ROLES)
    for role in ROLES:
        assert made <= used.before(used.group_id(role))
        found = used.policies(f"{role.value.title()}Role")
        (policy,) = (each for each in found if "s3:GetObject*" in json.dumps(each))
        assert re.findall(r'"(Data|More)[0-9A-F]{8}"', json.dumps(policy)) == ["Data", "Data", "More", "More"]


def test_grant_to_one_node_group_reaches_its_role_alone(used):
    policy = used.only("AWS::IAM::Policy")
    assert "MasterRole" in policy["Roles"][0]["Ref"]
    assert re.search(r'"Own[0-9A-F]{8}"', json.dumps(policy))


def test_policies_connections_and_tags_of_users_reach_every_node_and_the_file_system(used):
    (statement,) = used.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert len(statement["Principal"]["AWS"]) == 2
    nodes = used.part("AWS::EC2::SecurityGroup", "NodesSecurityGroup")
    assert nodes["Properties"]["SecurityGroupIngress"][0]["FromPort"] == 8265
    rules = used.of_type("AWS::EC2::SecurityGroupIngress").values()
    assert sum(rule["Properties"].get("FromPort") == 2049 for rule in rules) == 2
    tags = used.group(NodeRole.WORKER)["Properties"]["Tags"]
    assert {"Key": "team:name", "PropagateAtLaunch": True, "Value": "vision"} in tags


@pytest.mark.parametrize(
    ("is_of_stack", "key", "said"),
    [
        (False, "team/name", "got 'team/name'; rename the tag"),
        # Kept off the group alone, it is still the stack's.
        (True, "Cost Center", r"tag key of the stack Stack must .*got 'Cost Center'; .*aws:cdk:stack"),
    ],
)
def test_tag_key_that_would_fail_every_launch_is_refused(make_stack, read_stack, is_of_stack, key, said):
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster", **props_of(CPU))
    if is_of_stack:
        cdk.Tags.of(stack).add(key, "vision", exclude_resource_types=[GROUP])
    else:
        cdk.Tags.of(cluster).add(key, "vision")
    with pytest.raises(RuntimeError, match=said):
        read_stack(stack)


@pytest.mark.parametrize("place", [lambda stack: stack, lambda stack: cdk.NestedStack(stack, "Nested")])
def test_a_tag_of_the_stack_that_would_fail_every_launch_is_refused(make_app, place):
    """Source: CloudFormation user guide, "Resource tag": the tags of a stack are on instances too."""
    keys = {"Cost Center", "team/name", ".", "..", "_index", "aws:team"}
    stack = cdk.Stack(make_app(), "Stack", tags=dict.fromkeys(keys, "ml") | {"team": "a#b"})
    cluster = TrainingCluster(place(stack), "Cluster", **props_of(CPU))
    problems = cluster.workers.group.node.validate()
    assert any("tag team must have at most 256 letters" in text for text in problems)
    named = [text for text in problems if text.startswith("tag key of the stack Stack must ")]
    assert {key for key in keys for text in named if f"got '{key}'; " in text} == keys


def test_a_tag_that_is_kept_off_the_group_and_the_stack_is_taken(make_app, read_stack):
    stack = cdk.Stack(make_app(), "Stack", tags={"team": "vision", "cost:center": "ml"})
    TrainingCluster(stack, "Cluster", **props_of(CPU))
    excluded = ["AWS::AutoScaling::AutoScalingGroup", "aws:cdk:stack"]
    cdk.Tags.of(stack).add("Cost Center", "ml", exclude_resource_types=excluded)
    assert "Cost Center" in str(read_stack(stack).of_type("AWS::EC2::VPC"))
    assert stack.tags.tag_values() == {"team": "vision", "cost:center": "ml"}


@pytest.fixture(scope="module")
def two_clusters(make_app):
    """Return a cluster without and one with SSH in one stack."""
    stack = cdk.Stack(make_app(), "Stack", env=cdk.Environment(region="eu-west-1"))
    open_ = props_of({**CPU, "master.ssh_peer": "203.0.113.7/32", "key_pair": "mine"})
    return TrainingCluster(stack, "Quiet", **props_of(CPU)), TrainingCluster(stack, "Open", **open_)


@pytest.mark.defect("D24")
def test_two_clusters_of_one_stack_have_different_names_and_metrics_of_their_groups(two_clusters):
    names = [cluster.cluster_name for cluster in two_clusters]
    assert len(set(names)) == len(names)
    assert [cluster.metrics.cluster_name for cluster in two_clusters] == names
    workers = two_clusters[0].workers
    resolve = cdk.Stack.of(workers).resolve
    for metric in (workers.metric_cpu_utilization(), workers.metric_network_in(), workers.metric_network_out()):
        assert metric.namespace == "AWS/EC2"
        assert resolve(metric.dimensions["AutoScalingGroupName"]) == resolve(workers.group.ref)


@pytest.mark.defect("D67")
def test_outputs_have_the_commands_to_log_in(two_clusters):
    quiet, open_ = two_clusters
    assert quiet.session_command.startswith("aws ssm start-session --region eu-west-1 --target $(aws ec2 ")
    assert f"Values={quiet.cluster_name} " in quiet.session_command
    assert quiet.ssh_command is None
    assert open_.ssh_command.startswith("ssh ubuntu@$(aws ec2 ")
    assert "PublicIpAddress" in open_.ssh_command


# --- Images and instance types ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_type", "parameter"),
    [
        ("m5.large", "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"),
        ("c7g.large", "/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id"),
        ("p3dn.24xlarge", "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"),
        (
            "p5.48xlarge",
            "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04/latest/ami-id",
        ),
        (
            "g5g.xlarge",
            "/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id",
        ),
    ],
)
def test_default_image_follows_the_family(instance_type, parameter):
    props = {"workers.instance_type": instance_type, "software.environment": JobEnvironment.none()}
    assert plan(props).image.parameter == parameter


def test_p3_gets_the_proprietary_driver_and_a_warning_that_it_was_not_tried(synthesize):
    synthesis = synthesize()
    packages = synthesis.settings(NodeRole.WORKER).packages["nvidia-smi"]
    assert "nvidia-headless-580-server" in packages
    # The driver is compiled at boot, for the kernel that runs and not for the archive's newest.
    assert "linux-headers-{kernel}" in packages
    assert [text for text in synthesis.warnings if "not tried on AWS" in text]


@pytest.mark.parametrize("name", ["p3.2xlarge", "p3.8xlarge", "p3.16xlarge", "p2.xlarge", "g3.4xlarge"])
def test_retired_type_is_taken_with_a_warning_that_names_its_successor(make_stack, name):
    props = {"workers.instance_type": name, "software.environment": JobEnvironment.none()}
    assert plan(props).workers.name == name
    assert [text for text in warn(make_stack(), props) if f"AWS has retired {name}" in text and "; take " in text]


@pytest.mark.parametrize(("region", "is_warned"), [("eu-north-1", True), ("us-east-1", False), (None, False)])
def test_type_that_a_region_did_not_offer_is_warned_about(make_stack, region, *, is_warned):
    warnings = warn(make_stack(region=region), {})
    assert bool([text for text in warnings if f"p3dn.24xlarge was not offered in {region}" in text]) is is_warned


def test_cpu_cluster_warns_of_nothing_and_expects_no_gpu(synthesize, make_stack):
    assert warn(make_stack(region="us-east-1"), CPU) == synthesize(**CPU).warnings == []
    for props, gpus in ((CPU, [0, 0]), (EVERYTHING, [0, 8])):
        assert [synthesize(**props).settings(role).expected_gpu_count for role in ROLES] == gpus


def test_master_has_the_workers_type_by_default_which_may_be_newer_than_the_catalogue(synthesize):
    assert synthesize(**CPU).launch_data(NodeRole.MASTER)["InstanceType"] == "m5.large"
    mixed = plan({"workers.instance_type": "p5.48xlarge", "master.instance_type": "m5.large"})
    assert mixed.master.name == "m5.large"
    assert "pytorch" in mixed.image.parameter
    newer = InstanceTypeFacts(name="p9.48xlarge", gpu_count=16, network_cards=2, efa_cards=(0, 1))
    found = plan({"workers.instance_type": newer, "software.image": NodeImage.deep_learning_ubuntu()})
    assert (found.master, found.workers) == (newer, newer)


@pytest.mark.parametrize(
    ("props", "placed"),
    [
        ({"workers.instance_type": "p5.48xlarge"}, ROLES),
        ({"workers.instance_type": "t3.xlarge"}, ()),
        ({"workers.instance_type": "m5.large"}, ()),
        # Near each other, without a master that does not train.
        ({"workers.instance_type": "g5.12xlarge", "master.instance_type": "m5.large"}, (NodeRole.WORKER,)),
        ({"workers.instance_type": "m5.large", "master.instance_type": "g5.12xlarge"}, ()),
        (VARIANTS["capacity-block"], ()),
    ],
)
@pytest.mark.defect("D60")
def test_only_types_that_gain_by_it_are_placed_together(props, placed):
    assert plan(props).placed_roles == placed


@pytest.mark.parametrize(("props", "placed"), [({}, ROLES), (CPU, ()), (EVERYTHING, (NodeRole.WORKER,))])
def test_the_nodes_that_are_placed_together_are_in_a_placement_group(synthesize, props, placed):
    synthesis = synthesize(**props)
    assert bool(synthesis.of_type("AWS::EC2::PlacementGroup")) is bool(placed)
    assert tuple(role for role in ROLES if "PlacementGroup" in synthesis.group(role)["Properties"]) == placed


def test_amazon_linux_mounts_with_iam_and_tls_through_an_access_point(synthesize):
    synthesis = synthesize(**VARIANTS["amazon-linux"])
    settings = synthesis.settings(NodeRole.WORKER)
    (access_point,) = synthesis.of_type("AWS::EFS::AccessPoint")
    assert settings.file_system.kind == "efs"
    assert settings.file_system.options == f"tls,iam,accesspoint=<{access_point}>"
    # Without CreationInfo EFS makes no root directory, and every mount fails (EFS API, RootDirectory).
    owner = {"OwnerUid": "1000", "OwnerGid": "1000", "Permissions": "0755"}
    assert synthesis.only("AWS::EFS::AccessPoint")["RootDirectory"] == {"Path": "/deeplearning", "CreationInfo": owner}
    assert synthesis.only("AWS::EFS::AccessPoint")["PosixUser"] == {"Uid": "1000", "Gid": "1000"}
    assert settings.login_user == "ec2-user"
    assert '"/opt/pytorch/bin/python" ' in synthesis.user_data(NodeRole.WORKER)
    [statement] = synthesis.only("AWS::EFS::FileSystem")["FileSystemPolicy"]["Statement"]
    assert statement["Effect"] == "Deny"
    assert "Resource" not in statement


@pytest.mark.defect("D54")
def test_ubuntu_mounts_plain_nfs_at_the_regions_own_domain(synthesize):
    synthesis = synthesize()
    (file_system,) = synthesis.of_type("AWS::EFS::FileSystem")
    settings = synthesis.settings(NodeRole.MASTER).file_system
    assert (settings.kind, settings.mount_point) == ("nfs4", "/efs")
    assert settings.source == f"<{file_system}>.efs.<AWS::Region>.<AWS::URLSuffix>:/"
    assert not synthesis.of_type("AWS::EFS::AccessPoint")


# --- User data, file system and names -----------------------------------------------------------------


def test_only_the_master_has_the_signal_url_and_the_trusted_role(synthesize):
    master, worker = (synthesize().settings(role) for role in ROLES)
    assert master.signal_url.startswith("<ClusterCoordinationFormationHandle")
    assert re.fullmatch(r"<ClusterNodesWorkerRole[0-9A-F]{8}\.RoleId>", master.report_sender)
    assert (worker.signal_url, worker.report_sender) == ("", "")


@pytest.mark.defect("D52")
def test_existing_file_system_is_taken_by_its_id(synthesize):
    synthesis = synthesize(**CPU, **{"storage.file_system": "fs-0123abcd"})
    assert not synthesis.of_type("AWS::EFS::FileSystem")
    assert synthesis.only("AWS::EFS::MountTarget")["FileSystemId"] == "fs-0123abcd"
    assert synthesis.settings(NodeRole.MASTER).file_system.source.startswith("fs-0123abcd.efs.")


@pytest.mark.defect("D64")
def test_nothing_has_a_fixed_name(synthesize):
    synthesis = synthesize()
    kinds = "Queue|Topic|Role|Table|Function|LogGroup|AutoScalingGroup|LaunchTemplate|Dashboard"
    named = re.compile(rf'"({kinds})Name": "')
    assert not named.search(json.dumps(synthesis.template["Resources"]).replace('"LogGroupName": {', ""))


@pytest.mark.fault(30)
@pytest.mark.defect("D28")
def test_rings_of_workers_are_never_hidden_and_expire(synthesize):
    queue = synthesize().part("AWS::SQS::Queue", "WorkerQueue")["Properties"]
    assert (queue["VisibilityTimeout"], queue["MessageRetentionPeriod"]) == (0, 300)


@pytest.mark.defect("D19")
def test_adjuster_runs_on_a_current_python_from_our_own_asset(synthesize):
    function = synthesize().part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]
    assert function["Runtime"] == "python3.14"
    assert "ReservedConcurrentExecutions" not in function


@pytest.mark.defect("D63")
def test_nodes_fetch_nothing_but_our_own_assets(synthesize):
    text = synthesize().user_data(NodeRole.WORKER)
    assert not re.search(r"curl|wget|pip install|git clone|apt-get|http://(?!169\.254)", text)


NEURON = NodeImage.from_ssm_parameter("/team/neuron", login_user="ubuntu")


@pytest.mark.parametrize(
    ("types", "leads"),
    [
        ({"workers.instance_type": "g5.12xlarge", "master.instance_type": "m5.large"}, True),
        (
            {"workers.instance_type": "trn1.32xlarge", "master.instance_type": "m5.large", "software.image": NEURON},
            True,
        ),
        ({"workers.instance_type": "g5.12xlarge"}, False),
        ({"workers.instance_type": "g5.12xlarge", "master.instance_type": "g5.xlarge"}, False),
        ({"workers.instance_type": "m5.large", "master.instance_type": "g5.xlarge"}, False),
        ({"workers.instance_type": "m5.large"}, False),
    ],
)
def test_a_master_without_the_workers_accelerators_leads_and_does_not_train(types, *, leads):
    assert plan(types).has_head_node is leads


@pytest.mark.parametrize(("props", "leads"), [(EVERYTHING, True), ({}, False)])
def test_settings_contain_whether_the_master_trains_and_only_nodes_with_gpus_install_a_driver(
    synthesize, props, *, leads
):
    master, worker = (synthesize(**props).settings(role) for role in ROLES)
    assert (master.needs.has_head_node, worker.needs.has_head_node) == (leads, leads)
    assert ("nvidia-smi" in master.packages, "nvidia-smi" in worker.packages) == (not leads, True)
