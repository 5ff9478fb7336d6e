"""A cluster of EKS takes AWS's way through its states, with a control plane that records what it is told."""

import pytest
from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.eks.request import VERSIONS
from tests.embedded_aws.eks_sample import HASTE, Sample
from tests.embedded_aws.eks_template import (
    NAME,
    SUBMITTER,
    make_addon,
    make_association,
    make_entry,
    make_role,
    make_template,
    open_api,
)


@pytest.fixture
def deploy(deploy_template):
    """Return the function that deploys a template whose creation succeeds."""

    def deploy(template=None, **options):
        cloud = deploy_template(template or make_template(), **options)
        assert isinstance(cloud.answer, dict), cloud.answer
        outcome = cloud.end()
        assert outcome["status"] == "CREATE_COMPLETE", outcome["reason"]
        sample = Sample(cloud)
        sample.outputs = outcome["outputs"]
        return sample

    return deploy


@pytest.fixture
def refuse(deploy_template):
    """Return the function that deploys a template whose creation fails, and returns why."""

    def refuse(template, **options):
        cloud = deploy_template(template, **options)
        if isinstance(cloud.answer, str):
            return cloud.answer
        outcome = cloud.end()
        assert outcome["status"] == "ROLLBACK_COMPLETE", outcome["reason"]
        return outcome["reason"]

    return refuse


def test_a_stack_with_a_cluster_is_complete_when_its_nodes_take_pods(deploy):
    sample = deploy()
    cluster = sample.eks.describe_cluster(name=NAME)["cluster"]
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", "1.35")
    assert sample.outputs == {
        "Arn": cluster["arn"],
        "Authority": cluster["certificateAuthority"]["data"],
        "Endpoint": cluster["endpoint"],
        "Group": cluster["resourcesVpcConfig"]["clusterSecurityGroupId"],
    }
    assert cluster["endpoint"] == "https://10.0.0.4"
    assert (sample.group["status"], sample.group["health"]) == ("ACTIVE", {"issues": []})
    addons = sample.eks.list_addons(clusterName=NAME)["addons"]
    shown = [sample.eks.describe_addon(clusterName=NAME, addonName=name)["addon"]["status"] for name in addons]
    assert (sorted(addons), shown) == (["coredns", "eks-pod-identity-agent", "vpc-cni"], ["ACTIVE"] * 3)


def test_a_node_is_an_instance_of_an_auto_scaling_group_that_boots_nothing(deploy):
    sample = deploy()
    nodes = [sample.take_node() for _ in range(2)]
    assert [line for line in sample.cloud._backlog if line["kind"] == "boot"] == []
    name = sample.group["resources"]["autoScalingGroups"][0]["name"]
    scaling = sample.cloud.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    known = {each["InstanceId"] for each in scaling["AutoScalingGroups"][0]["Instances"]}
    assert {node["machine"]["instance_id"] for node in nodes} == known
    node = nodes[0]
    assert (node["gpu_count"], node["efa_count"], node["taints"]) == (0, 0, [])
    assert node["labels"]["team"] == "learning"
    assert node["labels"]["eks.amazonaws.com/nodegroup"] == node["group"] == sample.group["nodegroupName"]
    assert node["labels"]["node.kubernetes.io/instance-type"] == node["machine"]["instance_type"] == "c5.2xlarge"
    assert node["machine"]["address"].startswith("10.0.0.")
    assert node["machine"]["role_name"] == sample.cloud.physical_id("NodeRole")
    assert f'cluster-name = "{NAME}"' in node["machine"]["user_data"]
    (instance,) = sample.cloud.client("ec2").describe_instances(InstanceIds=[node["machine"]["instance_id"]])[
        "Reservations"
    ][0]["Instances"]
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags["eks:cluster-name"] == NAME


def make_second_cluster():
    return make_template()["Resources"]["Cluster"] | {"DependsOn": ["Cluster", "Nodes"]}


REFUSALS = {
    # The words are those of the issues that the code names beside each refusal.
    "two different AZs": make_template(
        Cluster={"ResourcesVpcConfig": {"SubnetIds": [{"Ref": "Subnet"}], "EndpointPrivateAccess": True}}
    ),
    "Private and public endpoint access cannot be false": make_template(
        Cluster={
            "ResourcesVpcConfig": {
                "SubnetIds": [{"Ref": "Subnet"}, {"Ref": "OtherSubnet"}],
                "EndpointPrivateAccess": False,
                "EndpointPublicAccess": False,
            }
        }
    ),
    "unsupported Kubernetes version 1.24": make_template(Cluster={"Version": "1.24"}),
    "could not be assumed because it does not exist or the trusted entity is not correct": make_template(
        {"ClusterRole": make_role("ec2.amazonaws.com", [])}
    ),
    f"Cluster already exists with name: {NAME}": make_template({"Second": make_second_cluster()}),
    "the control plane did not start: no port is free": make_template(Cluster={"Name": "broken"}),
    "The following CIDRs are not allowed in publicAccessCidrs: [203.0.113.0/24, 10.0.0.0/8]": make_template(
        Cluster=open_api("3.5.140.0/22", "203.0.113.0/24", "10.0.0.0/8")
    ),
    "The following CIDRs are invalid in publicAccessCidrs: [2001:db8::/32]": make_template(
        Cluster=open_api("2001:db8::/32")
    ),
    "Cluster: AWS::EKS::Cluster property BootstrapSelfManagedAddons = True": make_template(
        Cluster={"BootstrapSelfManagedAddons": True}
    ),
    "Cluster: AWS::EKS::Cluster property AccessConfig.BootstrapClusterCreatorAdminPermissions = True": make_template(
        Cluster={"AccessConfig": {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": True}}
    ),
    "The specified access entry resource is already in use on this cluster.": make_template(
        {"Second": make_entry(SUBMITTER)}
    ),
    "Association already exists: a-": make_template({"Second": make_association()}),
    "scalingConfig.minSize": make_template(Nodes={"ScalingConfig": {"MinSize": -1, "DesiredSize": 1, "MaxSize": 1}}),
    "AWS::EKS::Cluster property DeletionProtection": make_template(Cluster={"DeletionProtection": True}),
}


@pytest.mark.parametrize("words", REFUSALS)
def test_eks_refuses(refuse, words):
    assert words in refuse(REFUSALS[words], **HASTE)


def test_a_stack_with_a_cluster_is_refused_where_nothing_runs_control_planes(refuse):
    assert "Cluster: no control plane" in refuse(make_template(), has_clusters=False)


def test_a_cluster_without_a_version_has_the_default_version(deploy_template):
    """EKS API reference, CreateCluster: "If you don't specify a value here, the default version" is used."""
    template = make_template(Cluster={"Name": "plain"})
    del template["Resources"]["Cluster"]["Properties"]["Version"]
    cloud = deploy_template(template)
    cloud.observation("Cluster CREATE_COMPLETE")
    assert cloud.client("eks").describe_cluster(name="plain")["cluster"]["version"] == VERSIONS[-1]


def test_coredns_is_degraded_without_a_node(deploy_template):
    """terraform-aws-modules/terraform-aws-eks#3001."""
    cloud = deploy_template(make_template({"Dns": make_addon("coredns"), "Nodes": None}))
    cloud.observation("Dns CREATE_IN_PROGRESS: Resource creation Initiated")
    addon = cloud.client("eks").describe_addon(clusterName=NAME, addonName="coredns")["addon"]
    assert (addon["status"], addon["health"]["issues"][0]["code"]) == ("DEGRADED", "InsufficientNumberOfReplicas")


@pytest.mark.parametrize(
    "template",
    [
        make_template({"Dns": make_addon("coredns"), "Nodes": None}),
        make_template(Nodes={"Taints": [{"Key": "nvidia.com/gpu", "Value": "present", "Effect": "NO_SCHEDULE"}]}),
    ],
    ids=["without a node", "without a node that takes its pods"],
)
def test_coredns_fails_in_the_end(refuse, template):
    said = "Addon coredns failed to stabilize: [{Code: InsufficientNumberOfReplicas,Message: The add-on is unhealthy "
    assert said in refuse(template, **HASTE)


def test_nodes_are_not_ready_without_the_network_plugin(refuse):
    reason = refuse(make_template({"Network": None, "Nodes": make_nodes("Agent")}), **HASTE)
    said = "{Code: NodeCreationFailure,Message: Unhealthy nodes in the kubernetes cluster,ResourceIds: [i-"
    assert said in reason


def make_nodes(*needs, **more):
    nodes = make_template(Nodes=more)["Resources"]["Nodes"]
    return nodes | {"DependsOn": list(needs)}


def test_a_node_group_fails_with_the_words_of_ec2(refuse):
    reason = refuse(make_template(), faults=[{"code": "InsufficientInstanceCapacity"}])
    assert "{Code: AsgInstanceLaunchFailures,Message: Could not launch On-Demand Instances. " in reason
    assert "InsufficientInstanceCapacity - We currently do not have sufficient c5.2xlarge capacity" in reason
    assert "Launching EC2 instance failed.,ResourceIds: [eks-Nodes-" in reason


def test_a_stack_is_deleted_with_all_that_eks_made_but_the_log_group(deploy):
    """EKS user guide, "Send control plane logs to CloudWatch Logs"."""
    enabled = {"ClusterLogging": {"EnabledTypes": [{"Type": "api"}]}}
    sample = deploy(make_template(Cluster={"Logging": enabled}))
    instances = {sample.take_node()["machine"]["instance_id"] for _ in range(2)}
    stack = sample.cloud.client("cloudformation")
    stack.delete_stack(StackName="sample")
    assert sample.cloud.end()["status"] == "DELETE_COMPLETE"
    gone = {sample.cloud.next(lambda line: line["kind"] == "node_gone")["instance_id"] for _ in range(2)}
    assert gone == instances
    assert sample.cloud.next(lambda line: line["kind"] == "stopped")["name"] == NAME
    assert sample.eks.list_clusters()["clusters"] == []
    assert sample.cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    groups = sample.cloud.client("logs").describe_log_groups(logGroupNamePrefix="/aws/eks/")["logGroups"]
    assert [group["logGroupName"] for group in groups] == [f"/aws/eks/{NAME}/cluster"]


def test_a_control_plane_that_starts_while_its_cluster_is_deleted_is_stopped(deploy_template):
    second = make_template(Cluster={"Name": "second", "Version": "1.24"})["Resources"]["Cluster"]
    cloud = deploy_template(make_template({"Second": second}, Cluster={"Name": "slow"}))
    outcome = cloud.end()
    assert (outcome["status"], "1.24" in outcome["reason"]) == ("ROLLBACK_COMPLETE", True)
    cloud.command("let_start")
    assert cloud.next(lambda line: line["kind"] == "stopped")["name"] == "slow"


def test_members_are_scaled_down_and_up(deploy):
    sample = deploy()
    first = {sample.take_node()["machine"]["instance_id"] for _ in range(2)}
    path = {"clusterName": NAME, "nodegroupName": sample.group["nodegroupName"]}
    sample.eks.update_nodegroup_config(**path, scalingConfig={"minSize": 0, "desiredSize": 0})
    gone = {sample.cloud.next(lambda line: line["kind"] == "node_gone")["instance_id"] for _ in range(2)}
    assert gone == first
    sample.eks.update_nodegroup_config(**path, scalingConfig={"desiredSize": 1})
    assert sample.take_node()["machine"]["instance_id"] not in first
    assert sample.group["scalingConfig"] == {"minSize": 0, "maxSize": 2, "desiredSize": 1}
    with pytest.raises(ClientError, match="desiredSize must be from minSize to maxSize"):
        sample.eks.update_nodegroup_config(**path, scalingConfig={"desiredSize": 3})


def test_a_node_that_fails_is_replaced(deploy):
    sample = deploy()
    lost = sample.take_node()["machine"]["instance_id"]
    other = sample.take_node()["machine"]["instance_id"]
    assert sample.cloud.command("fail_instance", instance_id=lost)
    assert sample.cloud.next(lambda line: line["kind"] == "node_gone")["instance_id"] == lost
    assert sample.take_node()["machine"]["instance_id"] not in (lost, other)


GROUP = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "own", "VpcId": {"Ref": "Vpc"}}}


def make_launch_template(group):
    data = {"SecurityGroupIds": [{"Fn::GetAtt": [group, "GroupId"]}]}
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}}


@pytest.mark.parametrize(
    "resources",
    [
        {"Route": None, "Cluster": make_template()["Resources"]["Cluster"] | {"DependsOn": "Association"}},
        {"Group": GROUP, "Template": make_launch_template("Group")},
    ],
    ids=["no way to AWS", "no way to the API server"],
)
def test_a_node_does_not_join_without_a_way(refuse, resources):
    """EKS user guide, "View Amazon EKS security group requirements for clusters"."""
    reason = refuse(make_template(resources), **HASTE)
    assert "Instances failed to join the kubernetes cluster,ResourceIds: [i-" in reason
