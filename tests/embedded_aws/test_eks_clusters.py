"""A cluster of EKS takes AWS's way through its states, with a control plane that records what it is told."""

import base64
from urllib.parse import urlsplit, urlunsplit

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from cdk_rehearsal.kubernetes.api_client import ApiClient, ApiError, locate
from cdk_rehearsal.place import OPERATOR_KEY, OPERATOR_SECRET
from tests.embedded_aws.eks_template import (
    ACCOUNT,
    CONTROL_PLANE_ACTIONS,
    NAME,
    NAMESPACE,
    NETWORK_ACTIONS,
    NODE_ACTIONS,
    SUBMITTER,
    make_addon,
    make_association,
    make_entry,
    make_role,
    make_template,
    open_api,
    trust_pods,
)
from tests.embedded_aws.emr_template import allow

HASTE = {"minute_seconds": 0.01}
"""EKS waits for nodes for twenty minutes."""


class Sample:
    """A deployed cluster."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.eks = cloud.client("eks")

    @property
    def group(self):
        (name,) = self.eks.list_nodegroups(clusterName=NAME)["nodegroups"]
        return self.eks.describe_nodegroup(clusterName=NAME, nodegroupName=name)["nodegroup"]

    def take_node(self):
        """Return the next node that joined and that was not taken, with its machine."""
        line = self.cloud.next(lambda line: line["kind"] == "node")
        return line["node"] | {"machine": line["machine"]}

    def role(self, logical_id):
        return self.cloud.client("iam").get_role(RoleName=self.cloud.physical_id(logical_id))["Role"]["Arn"]

    def request_group(self, **changes):
        """Return a request for a node group like that of the template; None removes a parameter."""
        request = {
            "clusterName": NAME,
            "nodegroupName": "more",
            "nodeRole": self.role("NodeRole"),
            "subnets": [self.cloud.physical_id("Subnet")],
            "amiType": "BOTTLEROCKET_x86_64",
            "instanceTypes": ["c5.2xlarge"],
            "launchTemplate": {"id": self.cloud.physical_id("Template")},
            "scalingConfig": {"minSize": 0, "desiredSize": 1, "maxSize": 1},
        }
        return {name: value for name, value in (request | changes).items() if value is not None}

    def refuse_group(self, **changes):
        """Return why EKS refuses a node group."""
        with pytest.raises(ClientError) as caught:
            self.eks.create_nodegroup(**self.request_group(**changes))
        error = caught.value.response["Error"]
        return f"{error['Code']}: {error['Message']}"


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


def test_a_node_of_amazon_linux_has_the_document_of_nodeadm_and_the_gpus_that_its_driver_shows(deploy):
    changes = {"AmiType": "AL2023_x86_64_NVIDIA", "InstanceTypes": ["p3dn.24xlarge"]}
    taints = [{"Key": "nvidia.com/gpu", "Value": "present", "Effect": "NO_SCHEDULE"}]
    node = deploy(make_template({"Dns": None}, Nodes=changes | {"Taints": taints})).take_node()
    assert node["gpu_count"] == 8
    assert node["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert "kind: NodeConfig" in node["machine"]["user_data"]


def test_gpus_are_not_there_without_the_driver_of_the_image(deploy):
    assert deploy(make_template(Nodes={"InstanceTypes": ["p3dn.24xlarge"]})).take_node()["gpu_count"] == 0


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
    "set bootstrapSelfManagedAddons to false": make_template(Cluster={"BootstrapSelfManagedAddons": True}),
    "the rehearsal knows no creator of a cluster": make_template(
        Cluster={"AccessConfig": {"AuthenticationMode": "API", "BootstrapClusterCreatorAdminPermissions": True}}
    ),
    "[m7g.large] is not a valid instance type for requested amiType BOTTLEROCKET_x86_64": make_template(
        Nodes={"InstanceTypes": ["m7g.large"]}
    ),
    "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships": (
        make_template({"NodeRole": make_role("eks.amazonaws.com", NODE_ACTIONS)})
    ),
    "Addon kubecost_kubecost specified is not supported in 1.35 kubernetes version": make_template(
        {"Other": make_addon("kubecost_kubecost")}
    ),
    "not allowed to modify access entries with a principalArn value of a Service Linked Role": make_template(
        Entry={"PrincipalArn": "arn:aws:iam::123456789012:role/aws-service-role/emr-containers.amazonaws.com/Any"}
    ),
    "arn:aws:sts::123456789012:assumed-role/Admin/me is neither a role nor a user": make_template(
        Entry={"PrincipalArn": "arn:aws:sts::123456789012:assumed-role/Admin/me"}
    ),
    "The specified access entry resource is already in use on this cluster.": make_template(
        {"Second": make_entry(SUBMITTER)}
    ),
    "the rehearsal knows the access policies": make_template({"Entry": make_entry(SUBMITTER, "AmazonEKSViewPolicy")}),
    "Association already exists: a-": make_template({"Second": make_association()}),
    "roleArn must be of the account of the cluster": make_template(
        {"Jobs": make_association(RoleArn="arn:aws:iam::111122223333:role/Theirs")}
    ),
    "scalingConfig.minSize": make_template(Nodes={"ScalingConfig": {"MinSize": -1, "DesiredSize": 1, "MaxSize": 1}}),
    "amiType": make_template(Nodes={"AmiType": "WINDOWS_CORE_2022_x86_64"}),
    "desiredSize must be from minSize to maxSize": make_template(
        Nodes={"ScalingConfig": {"MinSize": 0, "DesiredSize": 3, "MaxSize": 2}}
    ),
    "AWS::EKS::Cluster property DeletionProtection": make_template(Cluster={"DeletionProtection": True}),
}


@pytest.mark.parametrize("words", REFUSALS)
def test_eks_refuses(refuse, words):
    assert words in refuse(REFUSALS[words], **HASTE)


def test_a_stack_with_a_cluster_is_refused_where_nothing_runs_control_planes(refuse):
    assert "Cluster: no control plane" in refuse(make_template(), has_clusters=False)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": "subnet-1"}]},
            "must not have NetworkInterfaces.SubnetId",
        ),
        ({"IamInstanceProfile": {"Name": "own"}}, "must not have IamInstanceProfile"),
        ({"InstanceMarketOptions": {"MarketType": "spot"}}, "must not have InstanceMarketOptions"),
        ({"InstanceType": "c5.2xlarge"}, "Cannot specify instance types in launch template and API Request"),
        ({"UserData": "aGVsbG8="}, "got UserData"),
        ({"KeyName": "gone"}, "InvalidRequestException: The key pair 'gone' does not exist"),
    ],
)
def test_a_launch_template_of_a_node_group_lacks_what_the_group_says(deploy, data, words):
    """EKS user guide, "Customize managed nodes with launch templates"."""
    sample = deploy()
    template = sample.cloud.client("ec2").create_launch_template(LaunchTemplateName="own", LaunchTemplateData=data)
    reference = {"id": template["LaunchTemplate"]["LaunchTemplateId"]}
    assert words in sample.refuse_group(launchTemplate=reference)


def test_a_parameter_that_the_rehearsal_does_not_act_upon_is_refused_by_name(deploy):
    sample = deploy()
    assert "does not act upon diskSize of CreateNodegroup" in sample.refuse_group(diskSize=20)
    assert "No cluster found for name: other." in sample.refuse_group(clusterName="other")
    assert "give launchTemplate" in sample.refuse_group(launchTemplate=None)


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


def test_a_stack_is_deleted_with_all_that_eks_made(deploy):
    sample = deploy()
    instances = {sample.take_node()["machine"]["instance_id"] for _ in range(2)}
    stack = sample.cloud.client("cloudformation")
    stack.delete_stack(StackName="sample")
    assert sample.cloud.end()["status"] == "DELETE_COMPLETE"
    gone = {sample.cloud.next(lambda line: line["kind"] == "node_gone")["instance_id"] for _ in range(2)}
    assert gone == instances
    assert sample.cloud.next(lambda line: line["kind"] == "stopped")["name"] == NAME
    assert sample.eks.list_clusters()["clusters"] == []
    assert sample.cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_a_cluster_with_node_groups_is_not_deleted(deploy):
    with pytest.raises(ClientError, match="Cluster has nodegroups attached"):
        deploy().eks.delete_cluster(name=NAME)


def test_a_control_plane_that_starts_while_its_cluster_is_deleted_is_stopped(deploy_template):
    second = make_template(Cluster={"Name": "second", "Version": "1.24"})["Resources"]["Cluster"]
    cloud = deploy_template(make_template({"Second": second}, Cluster={"Name": "slow"}))
    outcome = cloud.end()
    assert (outcome["status"], "1.24" in outcome["reason"]) == ("ROLLBACK_COMPLETE", True)
    cloud.command("let_start")
    assert cloud.next(lambda line: line["kind"] == "stopped")["name"] == "slow"


def test_a_log_group_that_eks_made_outlives_the_cluster(deploy):
    """EKS user guide, "Send control plane logs to CloudWatch Logs"."""
    enabled = {"ClusterLogging": {"EnabledTypes": [{"Type": "api"}]}}
    sample = deploy(make_template(Cluster={"Logging": enabled}))
    sample.cloud.client("cloudformation").delete_stack(StackName="sample")
    assert sample.cloud.end()["status"] == "DELETE_COMPLETE"
    groups = sample.cloud.client("logs").describe_log_groups(logGroupNamePrefix="/aws/eks/")["logGroups"]
    assert [group["logGroupName"] for group in groups] == [f"/aws/eks/{NAME}/cluster"]


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


def make_token(sample, keys, cluster=NAME, *, expires=60, tamper=lambda url: url, host="sts.us-east-1.amazonaws.com"):
    """Return the token of `aws eks get-token` with credentials, for a cluster."""
    sts = boto3.client(
        "sts",
        region_name="us-east-1",
        aws_access_key_id=keys["access_key_id"],
        aws_secret_access_key=keys["secret_access_key"],
        aws_session_token=keys["session_token"],
    )

    def add_cluster(request, **_):
        if cluster:
            request.headers["x-k8s-aws-id"] = cluster
        request.url = urlunsplit(("https", host, "/", urlsplit(request.url).query, ""))

    sts.meta.events.register("before-sign.sts.GetCallerIdentity", add_cluster)
    url = sts.generate_presigned_url("get_caller_identity", ExpiresIn=expires, HttpMethod="GET")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(tamper(url).encode()).decode().rstrip("=")


def test_a_token_stands_for_the_principal_of_an_access_entry(deploy):
    """User names and sessions: EKS user guide, "Create access entries"."""
    sample = deploy()
    keys = sample.cloud.command("mint", role=sample.role("Submitter"))
    account, name = sample.role("Submitter").split(":")[4], sample.cloud.physical_id("Submitter")
    assert sample.cloud.command("review", cluster=NAME, token=make_token(sample, keys)) == {
        "name": f"arn:aws:sts::{account}:assumed-role/{name}/someone",
        "groups": [],
        "principal": sample.role("Submitter"),
        "policies": [{"name": "AmazonEKSEditPolicy", "namespaces": [NAMESPACE]}],
    }
    grant = sample.cloud.next(lambda line: line["kind"] == "grant")
    assert grant["principal"] == sample.role("Submitter")
    assert (grant["policy"], grant["namespaces"]) == ("AmazonEKSEditPolicy", [NAMESPACE])


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": "other"},
        {"cluster": ""},
        {"host": "sts.eu-west-1.amazonaws.com"},
        {"host": "example.com"},
        {"expires": 901},
        {"tamper": lambda url: url.replace("Version=2011-06-15", "Version=2011-06-16")},
        {"tamper": lambda url: url + "&More=1"},
        {"tamper": lambda url: url.replace("GetCallerIdentity", "GetSessionToken")},
        {"tamper": lambda url: url.partition("?")[0]},
    ],
    ids=["cluster", "no cluster", "region", "host", "life", "signature", "parameter", "operation", "query"],
)
def test_a_token_that_eks_would_not_take_is_not_reviewed(deploy, change):
    """aws-iam-authenticator, pkg/token/token.go."""
    sample = deploy()
    keys = sample.cloud.command("mint", role=sample.role("Submitter"))
    assert sample.cloud.command("review", cluster=NAME, token=make_token(sample, keys)) is not None
    assert sample.cloud.command("review", cluster=NAME, token=make_token(sample, keys, **change)) is None


def test_a_token_needs_a_known_key_its_secret_and_an_access_entry(deploy):
    sample = deploy()
    keys = sample.cloud.command("mint", role=sample.role("Submitter"))
    for wrong in (
        {"access_key_id": "ASIAUNKNOWN000000000"},
        {"secret_access_key": "other"},
        {"session_token": "other"},
    ):
        assert sample.cloud.command("review", cluster=NAME, token=make_token(sample, keys | wrong)) is None
    for role in ("JobRole", "NodeRole"):  # the entry of nodes is for the certificates of kubelets
        other = sample.cloud.command("mint", role=sample.role(role))
        assert sample.cloud.command("review", cluster=NAME, token=make_token(sample, other)) is None
    for text in ("", "k8s-aws-v1.", "k8s-aws-v1.####", "k8s-aws-v1.aGVsbG8", "aGVsbG8"):
        assert sample.cloud.command("review", cluster=NAME, token=text) is None
    token = make_token(sample, keys)
    sample.eks.delete_access_entry(clusterName=NAME, principalArn=sample.role("Submitter"))
    assert sample.cloud.command("review", cluster=NAME, token=token) is None


class ServerAccess:
    """The API server of a deployed cluster, for whoever sends a token."""

    def __init__(self, sample, folder):
        self.sample = sample
        self._cluster = sample.eks.describe_cluster(name="answering")["cluster"]
        self._authority = folder / "authority.crt"
        self._authority.write_bytes(base64.b64decode(self._cluster["certificateAuthority"]["data"]))

    def sign_in(self, keys, cluster="answering", **more):
        """Return a client with the token of credentials."""
        token = make_token(self.sample, keys, cluster, **more)
        return ApiClient(self._cluster["endpoint"], self._authority, token)


def refuse_call(api, path, body=None):
    """Return the status and the words with which a server refuses to list objects, or to create one."""
    with pytest.raises(ApiError) as caught:
        api.call("GET" if body is None else "POST", path, body)
    return caught.value.code, str(caught.value)


OPERATOR = {"access_key_id": OPERATOR_KEY, "secret_access_key": OPERATOR_SECRET, "session_token": None}
ADMINISTRATORS = [f"arn:aws:iam::123456789012:role/{name}" for name in ("Zoe", "Ann")]


@pytest.fixture
def access(deploy, tmp_path):
    """Deploy a cluster whose API server answers, and whose administrator has made two namespaces."""
    entries = {arn[-3:]: make_entry(arn, "AmazonEKSClusterAdminPolicy") for arn in ADMINISTRATORS}
    entries["Aaron"] = make_entry("arn:aws:iam::123456789012:role/Aaron", "AmazonEKSEditPolicy", NAMESPACE)
    deployed = ServerAccess(deploy(make_template(entries, Cluster={"Name": "answering"})), tmp_path)
    for name in (NAMESPACE, "theirs"):
        deployed.sign_in(OPERATOR).call("POST", locate("namespaces"), {"metadata": {"name": name}})
    return deployed


def test_the_operator_is_the_first_administrator_of_the_stack_or_nobody(access):
    access.sign_in(OPERATOR).call("GET", locate("nodes"))
    sent = make_token(access.sample, OPERATOR, "answering")
    user = access.sample.cloud.command("review", cluster="answering", token=sent)
    assert user["name"] == "arn:aws:sts::123456789012:assumed-role/Ann/operator"
    for arn in ADMINISTRATORS:
        access.sample.eks.delete_access_entry(clusterName="answering", principalArn=arn)
    assert refuse_call(access.sign_in(OPERATOR), locate("nodes")) == (401, "Unauthorized")


def test_a_submitter_has_the_objects_of_its_namespace_and_no_others(access):
    """EKS user guide, "Review access policy permissions": what AmazonEKSEditPolicy has."""
    api = access.sign_in(mint(access.sample, "Submitter"))
    assert api.list("jobs", NAMESPACE) == api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"] == []
    role = access.sample.cloud.physical_id("Submitter")
    user = f'User "arn:aws:sts::123456789012:assumed-role/{role}/someone" cannot'
    system = "/api/v1/namespaces/kube-system/secrets"
    for path, words in {
        system: 'list resource "secrets" in API group "" in the namespace "kube-system"',
        locate("persistentvolumes"): 'list resource "persistentvolumes" in API group "" at the cluster scope',
        locate("jobs", "theirs"): 'list resource "jobs" in API group "batch" in the namespace "theirs"',
        locate("jobs"): 'list resource "jobs" in API group "batch" at the cluster scope',
    }.items():
        code, said = refuse_call(api, path)
        assert (code, f"{user} {words}" in said) == (403, True), said
    volume = {"metadata": {"name": "mine"}, "spec": {}}
    assert refuse_call(api, locate("persistentvolumes"), volume)[0] == 403
    assert refuse_call(api, locate("jobs", "theirs"), {"metadata": {"name": "mine"}})[0] == 403
    assert refuse_call(api, locate("rolebindings", NAMESPACE), {"metadata": {"name": "mine"}})[0] == 403


def test_a_server_knows_nobody_by_a_token_that_eks_does_not_take(access):
    keys = mint(access.sample, "Submitter")
    assert access.sign_in(keys).list("jobs", NAMESPACE) == []
    for stranger in (
        access.sign_in(keys | {"secret_access_key": "other"}),
        access.sign_in(keys, "other"),
        access.sign_in(mint(access.sample, "JobRole")),
        access.sign_in(mint(access.sample, "NodeRole")),
    ):
        assert refuse_call(stranger, locate("jobs", NAMESPACE)) == (401, "Unauthorized")


def find_credentials(sample, node=None, namespace=NAMESPACE, account=ACCOUNT):
    pod = {"cluster": NAME, "namespace": namespace, "service_account": account}
    return sample.cloud.command(
        "find_pod_credentials", **pod, instance_id=node["machine"]["instance_id"] if node else ""
    )


def test_a_pod_has_the_role_of_its_service_account(deploy):
    sample = deploy()
    node = sample.take_node()
    keys = find_credentials(sample, node)
    sts = sample.cloud.client("sts", keys)
    assert f"assumed-role/{sample.cloud.physical_id('JobRole')}/eks-{NAME}-" in sts.get_caller_identity()["Arn"]
    assert find_credentials(sample) is not None
    assert find_credentials(sample, node, namespace="other") is None
    assert find_credentials(sample, node, account="default") is None
    other = {"machine": {"instance_id": "i-0123456789abcdef0"}}
    assert find_credentials(sample, other) is None


@pytest.mark.parametrize(
    "resources",
    [
        {"Agent": None, "Nodes": make_nodes("Network"), "Network": make_addon("vpc-cni")},
        {"JobRole": make_role("pods.eks.amazonaws.com", [])},
        {"JobRole": make_role("ec2.amazonaws.com", [])},
        {"JobRole": make_role(trust_pods(StringEquals={"aws:RequestTag/kubernetes-namespace": "other"}), [])},
        {"JobRole": make_role(trust_pods(ArnEquals={"aws:SourceArn": "arn:aws:eks:us-east-1:1:cluster/x"}), [])},
    ],
    ids=["no agent", "no session tags", "another service", "another namespace", "another cluster"],
)
def test_a_pod_has_no_credentials(deploy, resources):
    """EKS user guide, "Create IAM role with trust policy required by EKS Pod Identity"."""
    node_role = make_role("ec2.amazonaws.com", ["ec2:*", "ecr:*", "eks:*", "eks-auth:*"])
    sample = deploy(make_template({"NodeRole": node_role, **resources}))
    assert find_credentials(sample, sample.take_node()) is None


@pytest.mark.parametrize("action", [action for action in NODE_ACTIONS if not action.startswith("eks-auth")])
def test_a_node_does_not_join_without_a_right_of_its_role(refuse, action):
    """EKS user guide, "Amazon EKS node IAM role"."""
    actions = [each for each in NODE_ACTIONS if each != action]
    reason = refuse(make_template({"NodeRole": make_role("ec2.amazonaws.com", actions)}), **HASTE)
    assert (
        "{Code: NodeCreationFailure,Message: Instances failed to join the kubernetes cluster,ResourceIds: [i-" in reason
    )


@pytest.mark.parametrize("action", NETWORK_ACTIONS)
def test_a_node_is_not_ready_without_a_right_of_the_network_plugin(refuse, action):
    """The policy AmazonEKS_CNI_Policy."""
    actions = [each for each in NETWORK_ACTIONS if each != action]
    reason = refuse(make_template({"NetworkRole": make_role(trust_pods(), actions)}), **HASTE)
    assert "Unhealthy nodes in the kubernetes cluster,ResourceIds: [i-" in reason


def test_a_node_is_not_ready_where_its_role_lets_the_agent_take_no_credentials(refuse):
    actions = [each for each in NODE_ACTIONS if not each.startswith("eks-auth")]
    reason = refuse(make_template({"NodeRole": make_role("ec2.amazonaws.com", actions)}), **HASTE)
    assert "Unhealthy nodes in the kubernetes cluster,ResourceIds: [i-" in reason


GROUP = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "own", "VpcId": {"Ref": "Vpc"}}}


def make_launch_template(group):
    data = {"SecurityGroupIds": [{"Fn::GetAtt": [group, "GroupId"]}]}
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}}


@pytest.mark.parametrize("action", CONTROL_PLANE_ACTIONS)
def test_nodes_take_no_pods_without_a_right_of_the_control_plane(refuse, action):
    """EKS user guide, "Amazon EKS cluster IAM role"; Kubernetes, "Cloud Controller Manager"."""
    actions = [each for each in CONTROL_PLANE_ACTIONS if each != action]
    reason = refuse(make_template({"ClusterRole": make_role("eks.amazonaws.com", actions)}), **HASTE)
    assert "Addon coredns failed to stabilize" in reason


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


def make_files(group):
    """Return a file system with a mount target of a security group, an access point, and the driver."""
    system = {"FileSystemId": {"Ref": "Storage"}}
    target = {**system, "SubnetId": {"Ref": "Subnet"}, "SecurityGroups": [group]}
    return {
        "Group": GROUP,
        "NodeRole": make_role("ec2.amazonaws.com", [*NODE_ACTIONS, "elasticfilesystem:ClientMount"]),
        "Storage": {"Type": "AWS::EFS::FileSystem", "Properties": {"Encrypted": True}},
        "Target": {"Type": "AWS::EFS::MountTarget", "DependsOn": "Nodes", "Properties": target},
        "Point": {"Type": "AWS::EFS::AccessPoint", "Properties": system},
        "Driver": make_addon("aws-efs-csi-driver", "Nodes"),
    }


OPEN, CLOSED = {"Fn::GetAtt": ["Cluster", "ClusterSecurityGroupId"]}, {"Fn::GetAtt": ["Group", "GroupId"]}


def ask_about_volume(sample, *commands):
    volume = [sample.cloud.physical_id("Storage"), sample.cloud.physical_id("Point")]
    node = sample.take_node()["machine"]["instance_id"]
    return [sample.cloud.command(each, cluster=NAME, instance_id=node, volume=volume) for each in commands]


def find_obstacle(sample):
    (found,) = ask_about_volume(sample, "find_mount_obstacle")
    return found


@pytest.mark.parametrize("may_write", [False, True])
def test_a_node_mounts_a_volume_and_writes_to_it_with_the_right(deploy, may_write):
    """EFS user guide, "Using IAM to control access to file systems": ClientMount is read-only access."""
    files = [f"elasticfilesystem:{name}" for name in ("ClientMount", "ClientWrite")[: 1 + may_write]]
    role = make_role("ec2.amazonaws.com", [*NODE_ACTIONS, *files])
    sample = deploy(make_template({**make_files(OPEN), "NodeRole": role}))
    assert ask_about_volume(sample, "find_mount_obstacle", "may_write_volume") == [["", ""], may_write]


@pytest.mark.parametrize(
    ("group", "resources", "step", "words"),
    [
        (OPEN, {"Driver": None}, "MountDevice", "driver name efs.csi.aws.com not found in the list of registered"),
        (OPEN, {"Target": None}, "SetUp", "ensure that the VPC has an EFS mount target for this file system ID"),
        (CLOSED, {}, "SetUp", "rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        (
            OPEN,
            {"NodeRole": make_role("ec2.amazonaws.com", NODE_ACTIONS)},
            "SetUp",
            "mount.nfs4: access denied by server while mounting 127.0.0.1:/",
        ),
    ],
    ids=["no driver", "no mount target", "no way", "no right"],
)
def test_a_node_does_not_mount_a_volume(deploy, group, resources, step, words):
    """
    The EFS driver, the mount target and its group, and the right of the node's role.

    kubernetes-sigs/aws-efs-csi-driver#180 and aws-ia/terraform-aws-eks-blueprints#1171 have the words.
    """
    found = find_obstacle(deploy(make_template({**make_files(group), **resources})))
    assert found[0] == step
    assert words in found[1]


CALLS = {
    "ListClusters": {},
    "DescribeCluster": {"name": NAME},
    "ListNodegroups": {"clusterName": NAME},
    "ListAddons": {"clusterName": NAME},
    "ListAccessEntries": {"clusterName": NAME},
    "ListPodIdentityAssociations": {"clusterName": NAME},
    "DescribeNodegroup": {"clusterName": NAME, "nodegroupName": "group"},
    "UpdateNodegroupConfig": {"clusterName": NAME, "nodegroupName": "group", "scalingConfig": {"desiredSize": 0}},
    "DescribeAddon": {"clusterName": NAME, "addonName": "coredns"},
    "DescribeAccessEntry": {"clusterName": NAME, "principalArn": "submitter"},
    "ListAssociatedAccessPolicies": {"clusterName": NAME, "principalArn": "submitter"},
    "DescribePodIdentityAssociation": {"clusterName": NAME, "associationId": "association"},
}


def test_each_call_is_decided_by_the_policies_of_the_caller(deploy):
    """Service Authorization Reference, "Amazon Elastic Kubernetes Service"."""
    mine = make_role("ec2.amazonaws.com", [f"eks:{name}" for name in CALLS])
    sample = deploy(make_template({"Submitter": mine, "Stranger": make_role("ec2.amazonaws.com", ["s3:GetObject"])}))
    names = {
        "group": sample.group["nodegroupName"],
        "submitter": sample.role("Submitter"),
        "association": sample.cloud.physical_id("Jobs").rpartition("/")[2],
    }
    clients = {name: sample.cloud.client("eks", mint(sample, name)) for name in ("Submitter", "Stranger")}
    for operation, parameters in CALLS.items():
        request = {
            key: names.get(value, value) if isinstance(value, str) else value for key, value in parameters.items()
        }
        call = xform_name(operation)
        getattr(clients["Submitter"], call)(**request)
        with pytest.raises(ClientError, match=f"is not authorized to perform: eks:{operation}") as caught:
            getattr(clients["Stranger"], call)(**request)
        assert caught.value.response["Error"]["Code"] == "AccessDeniedException"


def mint(sample, role):
    return sample.cloud.command("mint", role=sample.role(role))


def test_policies_see_the_tags_of_a_cluster(deploy):
    statement = allow(["eks:DescribeCluster"], Condition={"StringEquals": {"aws:ResourceTag/team": "learning"}})
    role = make_role("ec2.amazonaws.com", [])
    role["Properties"]["Policies"] = [statement]
    sample = deploy(make_template({"Submitter": role}))
    api = sample.cloud.client("eks", mint(sample, "Submitter"))
    assert api.describe_cluster(name=NAME)["cluster"]["tags"]["team"] == "learning"
    with pytest.raises(ClientError, match="is not authorized"):
        api.describe_cluster(name="other")


def test_a_call_whose_rights_nobody_has_looked_up_is_refused(deploy):
    sample = deploy()
    api = sample.cloud.client("eks", mint(sample, "Submitter"))
    with pytest.raises(ClientError, match=r"the rights that eks\.DeleteCluster needs must be known"):
        api.delete_cluster(name=NAME)
