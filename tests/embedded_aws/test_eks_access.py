"""
A cluster of EKS refuses requests, tokens, nodes and calls of pods as EKS's rules and the deployed policies say.

It is deployed once, with an API server that answers. A test that changes it puts it back.
"""

import contextlib
import json

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from cdk_rehearsal.kubernetes.api_client import ApiError, locate
from cdk_rehearsal.place import OPERATOR_KEY, OPERATOR_SECRET
from tests.embedded_aws.eks_sample import HASTE, Sample, ServerAccess
from tests.embedded_aws.eks_template import (
    ACCOUNT,
    CONTROL_PLANE_ACTIONS,
    NAMESPACE,
    NETWORK_ACTIONS,
    NODE_ACTIONS,
    make_addon,
    make_entry,
    make_role,
    make_template,
    trust_pods,
)
from tests.embedded_aws.emr_template import allow, trust

ANSWERING = "answering"
POLICY = "arn:aws:eks::aws:cluster-access-policy/"
OPERATOR = {"access_key_id": OPERATOR_KEY, "secret_access_key": OPERATOR_SECRET, "session_token": None}
ADMINISTRATORS = [f"arn:aws:iam::123456789012:role/{name}" for name in ("Zoe", "Ann")]
MOUNT = "elasticfilesystem:ClientMount"


def make_files():
    """Return a file system with a mount target of the group of nodes, an access point, the driver, another group."""
    system = {"FileSystemId": {"Ref": "Storage"}}
    own = {"Fn::GetAtt": ["Cluster", "ClusterSecurityGroupId"]}
    target = {**system, "SubnetId": {"Ref": "Subnet"}, "SecurityGroups": [own]}
    group = {"GroupDescription": "own", "VpcId": {"Ref": "Vpc"}}
    return {
        "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": group},
        "NodeRole": make_role("ec2.amazonaws.com", [*NODE_ACTIONS, MOUNT]),
        "Storage": {"Type": "AWS::EFS::FileSystem", "Properties": {"Encrypted": True}},
        "Target": {"Type": "AWS::EFS::MountTarget", "DependsOn": "Nodes", "Properties": target},
        "Point": {"Type": "AWS::EFS::AccessPoint", "Properties": system},
        "Driver": make_addon("aws-efs-csi-driver", "Nodes"),
    }


@pytest.fixture(scope="module")
def sample(start_cloud, assemble, tmp_path_factory):
    """The cluster."""
    entries = {arn[-3:]: make_entry(arn, "AmazonEKSClusterAdminPolicy") for arn in ADMINISTRATORS}
    entries["Aaron"] = make_entry("arn:aws:iam::123456789012:role/Aaron", "AmazonEKSEditPolicy", NAMESPACE)
    template = make_template({**make_files(), **entries}, Cluster={"Name": ANSWERING})
    cloud = start_cloud(**HASTE)
    answer = cloud.deploy(assemble(tmp_path_factory.mktemp("eks") / "cdk.out", template))
    assert isinstance(answer, dict), answer
    outcome = cloud.end()
    assert outcome["status"] == "CREATE_COMPLETE", outcome["reason"]
    return Sample(cloud, ANSWERING)


@pytest.fixture(scope="module")
def server(sample, tmp_path_factory):
    """The API server of the cluster, whose administrator has made two namespaces."""
    access = ServerAccess(sample, tmp_path_factory.mktemp("server"))
    for name in (NAMESPACE, "theirs"):
        access.sign_in(OPERATOR).call("POST", locate("namespaces"), {"metadata": {"name": name}})
    return access


@pytest.fixture(scope="module")
def keys(sample):
    """Credentials of the submitter."""
    return sample.mint(sample.role("Submitter"))


# --- Requests -----------------------------------------------------------------------------------------


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
        ({"KeyName": "gone"}, "InvalidRequestException: The key pair 'gone' does not exist"),
    ],
)
def test_a_launch_template_of_a_node_group_lacks_what_the_group_says(sample, data, words):
    """EKS user guide, "Customize managed nodes with launch templates"."""
    ec2 = sample.client("ec2")
    template = ec2.create_launch_template(LaunchTemplateName=f"own-{next(iter(data))}", LaunchTemplateData=data)
    reference = {"id": template["LaunchTemplate"]["LaunchTemplateId"]}
    assert words in sample.refuse_group(launchTemplate=reference)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"diskSize": 20}, "does not act upon diskSize of CreateNodegroup"),
        ({"clusterName": "other"}, "No cluster found for name: other."),
        ({"launchTemplate": None}, "give launchTemplate"),
        ({"amiType": "WINDOWS_CORE_2022_x86_64"}, "amiType"),
        (
            {"instanceTypes": ["m7g.large"]},
            "[m7g.large] is not a valid instance type for requested amiType BOTTLEROCKET_x86_64",
        ),
        (
            {"scalingConfig": {"minSize": 0, "desiredSize": 3, "maxSize": 2}},
            "desiredSize must be from minSize to maxSize",
        ),
    ],
)
def test_eks_refuses_a_node_group(sample, changes, words):
    assert words in sample.refuse_group(**changes)


@pytest.mark.parametrize("label", ["kubernetes.io/role", "node-role.kubernetes.io/member", "eks.amazonaws.com/team"])
def test_eks_refuses_labels_that_it_reserves(sample, label):
    """eksctl-io/eksctl#4007."""
    words = "Label cannot contain reserved prefixes [kubernetes.io/, k8s.io/, eks.amazonaws.com/]"
    assert words in sample.refuse_group(labels={label: "any"})
    group = {"clusterName": sample.name, "nodegroupName": sample.group["nodegroupName"]}
    assert words in sample.refuse("update_nodegroup_config", **group, labels={"addOrUpdateLabels": {label: "any"}})


def test_eks_refuses_a_node_role_that_ec2_may_not_assume(sample):
    words = "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships"
    assert words in sample.refuse_group(nodeRole=sample.role("ClusterRole"))


def test_eks_refuses_an_addon_that_the_version_does_not_have(sample):
    said = sample.refuse("create_addon", clusterName=sample.name, addonName="kubecost_kubecost")
    assert "Addon kubecost_kubecost specified is not supported in 1.35 kubernetes version" in said


@pytest.mark.parametrize(
    ("principal", "words"),
    [
        (
            "arn:aws:iam::123456789012:role/aws-service-role/emr-containers.amazonaws.com/Any",
            "not allowed to modify access entries with a principalArn value of a Service Linked Role",
        ),
        ("arn:aws:sts::123456789012:assumed-role/Admin/me", "is neither a role nor a user"),
        (ADMINISTRATORS[0], "The specified access entry resource is already in use on this cluster."),
    ],
)
def test_eks_refuses_an_access_entry(sample, principal, words):
    assert words in sample.refuse("create_access_entry", clusterName=sample.name, principalArn=principal)


def test_the_rehearsal_refuses_an_access_policy_that_it_does_not_know(sample):
    policy = {"policyArn": f"{POLICY}AmazonEKSViewPolicy", "accessScope": {"type": "cluster"}}
    key = {"clusterName": sample.name, "principalArn": ADMINISTRATORS[0]}
    assert "the rehearsal knows the access policies" in sample.refuse("associate_access_policy", **key, **policy)


@pytest.mark.parametrize(
    ("namespace", "role", "words"),
    [
        (NAMESPACE, "arn:aws:iam::123456789012:role/Mine", "Association already exists: a-"),
        ("more", "arn:aws:iam::111122223333:role/Theirs", "roleArn must be of the account of the cluster"),
    ],
)
def test_eks_refuses_a_pod_identity_association(sample, namespace, role, words):
    request = {"clusterName": sample.name, "namespace": namespace, "serviceAccount": ACCOUNT, "roleArn": role}
    assert words in sample.refuse("create_pod_identity_association", **request)


def test_a_cluster_with_node_groups_is_not_deleted(sample):
    assert "Cluster has nodegroups attached" in sample.refuse("delete_cluster", name=sample.name)


# --- Nodes --------------------------------------------------------------------------------------------


def test_a_node_of_amazon_linux_has_the_document_of_nodeadm_and_the_gpus_that_its_driver_shows(sample):
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
    node = sample.join(amiType="AL2023_x86_64_NVIDIA", instanceTypes=["p3dn.24xlarge"], taints=taints)
    assert node["gpu_count"] == 8
    assert node["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert "kind: NodeConfig" in node["machine"]["user_data"]


def test_gpus_are_not_there_without_the_driver_of_the_image(sample):
    assert sample.join(instanceTypes=["p3dn.24xlarge"])["gpu_count"] == 0


@pytest.mark.parametrize("action", [action for action in NODE_ACTIONS if not action.startswith("eks-auth")])
def test_a_node_does_not_join_without_a_right_of_its_role(sample, action):
    """EKS user guide, "Amazon EKS node IAM role"."""
    with sample.permit("NodeRole", [each for each in NODE_ACTIONS if each != action]):
        assert sample.fail_to_join() == "Instances failed to join the kubernetes cluster"


@pytest.mark.parametrize("action", NETWORK_ACTIONS)
def test_a_node_is_not_ready_without_a_right_of_the_network_plugin(sample, action):
    """The policy AmazonEKS_CNI_Policy."""
    with sample.permit("NetworkRole", [each for each in NETWORK_ACTIONS if each != action]):
        assert sample.fail_to_join() == "Unhealthy nodes in the kubernetes cluster"


def permit_attachments(sample, *, subnet="", owner="learning"):
    """Let the network plugin change interfaces of one subnet, and attach them to instances of one owner."""
    place = f"arn:aws:ec2:us-east-1:123456789012:subnet/{subnet or sample.physical_id('Subnet')}"
    interface, instance = (f"arn:aws:ec2:us-east-1:123456789012:{kind}/*" for kind in ("network-interface", "instance"))
    limited = ["ec2:AttachNetworkInterface", "ec2:DetachNetworkInterface", "ec2:ModifyNetworkInterfaceAttribute"]
    is_new = {"StringEquals": {"ec2:CreateAction": "CreateNetworkInterface"}}
    return sample.permit(
        "NetworkRole",
        [each for each in NETWORK_ACTIONS if each not in [*limited, "ec2:CreateTags"]],
        allow(["ec2:CreateTags"], interface, Condition=is_new),
        allow([*limited, "ec2:CreateTags"], interface, Condition={"ArnEquals": {"ec2:Subnet": place}}),
        allow(limited, instance, Condition={"StringEquals": {"aws:ResourceTag/owner": owner}}),
        allow(limited[2:], "arn:aws:ec2:us-east-1:123456789012:security-group/*"),
    )


def test_a_node_is_ready_with_rights_for_interfaces_of_its_subnet_and_instances_of_its_tag(sample):
    """aws/amazon-vpc-cni-k8s, docs/iam-policy.md, "Scope-down IAM policy per EKS cluster"."""
    with permit_attachments(sample):
        assert sample.join()["taints"] == []


@pytest.mark.parametrize("limits", [{"subnet": "subnet-0123456789abcdef0"}, {"owner": "another"}], ids=str)
def test_a_node_is_not_ready_with_rights_for_interfaces_of_another_subnet_or_instances_of_another_tag(sample, limits):
    with permit_attachments(sample, **limits):
        assert sample.fail_to_join() == "Unhealthy nodes in the kubernetes cluster"


def test_a_node_is_not_ready_where_its_role_lets_the_agent_take_no_credentials(sample):
    with sample.permit("NodeRole", [each for each in NODE_ACTIONS if not each.startswith("eks-auth")]):
        assert sample.fail_to_join() == "Unhealthy nodes in the kubernetes cluster"


@pytest.mark.parametrize("action", CONTROL_PLANE_ACTIONS)
def test_a_node_takes_no_pods_without_a_right_of_the_control_plane(sample, action):
    """EKS user guide, "Amazon EKS cluster IAM role"; Kubernetes, "Cloud Controller Manager"."""
    with sample.permit("ClusterRole", [each for each in CONTROL_PLANE_ACTIONS if each != action]):
        taints = sample.join()["taints"]
    key = "node.cloudprovider.kubernetes.io/uninitialized"
    assert taints == [{"key": key, "value": "true", "effect": "NoSchedule"}]


def test_a_node_joins_and_takes_pods_with_the_rights_of_the_template(sample):
    assert sample.join()["taints"] == []


def test_a_node_does_not_join_with_the_access_entry_of_a_person(sample):
    """EKS user guide, "Create access entries": nodes need an entry of type EC2_LINUX."""
    key = {"clusterName": sample.name, "principalArn": sample.role("NodeRole")}
    sample.eks.delete_access_entry(**key)
    sample.eks.create_access_entry(**key)
    try:
        assert sample.fail_to_join() == "Instances failed to join the kubernetes cluster"
    finally:
        sample.eks.delete_access_entry(**key)
    assert sample.join()["group"]


PULLS = ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
WITHOUT_PULLS = [each for each in NODE_ACTIONS if each not in PULLS]
EFA_PLUGIN = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20"


@pytest.mark.parametrize(
    ("image", "resource", "is_denied"),
    [
        (EFA_PLUGIN, "arn:aws:ecr:us-east-1:*:repository/*", True),
        (EFA_PLUGIN, "arn:aws:ecr:us-west-2:602401143452:repository/eks/aws-efa-k8s-device-plugin", False),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/team/train:1", "arn:aws:ecr:us-east-1:123456789012:*", False),
        ("123456789012.dkr-ecr.us-east-1.on.aws/team/train:1", "arn:aws:ecr:us-east-1:123456789012:*", False),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/a@sha256:0", "arn:aws:ecr:*:*:repository/team/*", True),
        ("111122223333.dkr.ecr.us-east-1.amazonaws.com/a:1", "arn:aws:ecr:us-east-1:123456789012:*", True),
        ("nvcr.io/nvidia/k8s-device-plugin:v0.17.4", "arn:aws:ecr:us-east-1:*:repository/*", False),
    ],
)
def test_a_node_pulls_from_the_repositories_that_its_role_allows_alone(sample, image, resource, is_denied):
    """
    Service Authorization Reference, "Amazon Elastic Container Registry": both actions are on a repository.

    The role is the node's, also for images in another region (Amazon ECR user guide, "Using Amazon ECR images with
    Amazon EKS").
    """
    node = sample.find_node()["machine"]["instance_id"]
    with sample.permit("NodeRole", WITHOUT_PULLS, allow(PULLS, resource)):
        why = sample.cloud.command("find_pull_denial", cluster=sample.name, instance_id=node, image=image)
    assert ("ecr:BatchGetImage" in why) == is_denied, why


@pytest.mark.parametrize(
    ("addon", "effect"), [("coredns", "resolve no name of a Service"), ("kube-proxy", "route no packet to a Service")]
)
def test_a_pod_of_a_user_is_reported_where_an_addon_that_it_needs_is_missing(sample, addon, effect):
    """EKS user guide, "Amazon EKS add-ons": a cluster without self-managed add-ons has those alone that are created."""
    node = sample.find_node()["machine"]["instance_id"]
    with remove_addon(sample, "coredns"):
        sample.cloud.command("find_pull_denial", cluster=sample.name, instance_id=node, image="docker.io/team/train:1")
        assert effect in sample.cloud.observation(f"cluster {sample.name} has no add-on {addon}, and ")["text"]


@contextlib.contextmanager
def forbid_pull(sample, repository):
    """Let nodes pull everything but one repository of EKS, for a while."""
    refusal = allow(PULLS, f"arn:aws:ecr:us-east-1:602401143452:repository/{repository}", Effect="Deny")
    with sample.permit("NodeRole", [*NODE_ACTIONS, MOUNT], refusal):
        yield


def test_an_addon_works_on_nodes_that_may_pull_its_image_alone(sample):
    """EKS user guide, "View Amazon container image registries for Amazon EKS add-ons"."""
    with forbid_pull(sample, "eks/eks-pod-identity-agent"):
        assert sample.find_credentials(sample.find_node()) is None
    with forbid_pull(sample, "eks/aws-efs-csi-driver"):
        assert find_obstacle(sample)[0] == "MountDevice"
    with forbid_pull(sample, "eks/coredns"):
        assert install_again(sample, "coredns") != "ACTIVE"
    assert install_again(sample, "coredns") == "ACTIVE"


def install_again(sample, addon):
    """Return the status of an add-on that is removed and created again."""
    with remove_addon(sample, addon):
        pass
    return sample.eks.describe_addon(clusterName=sample.name, addonName=addon)["addon"]["status"]


# --- Tokens -------------------------------------------------------------------------------------------


def test_a_token_stands_for_the_principal_of_an_access_entry(sample, keys):
    """User names and sessions: EKS user guide, "Create access entries"."""
    principal = sample.role("Submitter")
    assert sample.review(sample.make_token(keys)) == {
        "name": f"arn:aws:sts::{principal.split(':')[4]}:assumed-role/{sample.physical_id('Submitter')}/someone",
        "groups": [],
        "principal": principal,
        "policies": [{"name": "AmazonEKSEditPolicy", "namespaces": [NAMESPACE]}],
    }
    grant = sample.cloud.next(lambda line: line["kind"] == "grant" and line["principal"] == principal)
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
def test_a_token_that_eks_would_not_take_is_not_reviewed(sample, keys, change):
    """aws-iam-authenticator, pkg/token/token.go."""
    assert sample.review(sample.make_token(keys)) is not None
    assert sample.review(sample.make_token(keys, **change)) is None


def test_a_token_needs_a_known_key_its_secret_and_an_access_entry(sample, keys):
    for wrong in (
        {"access_key_id": "ASIAUNKNOWN000000000"},
        {"secret_access_key": "other"},
        {"session_token": "other"},
    ):
        assert sample.review(sample.make_token(keys | wrong)) is None
    for role in ("JobRole", "NodeRole"):  # the entry of nodes is for the certificates of kubelets
        assert sample.review(sample.make_token(sample.mint(sample.role(role)))) is None
    for text in ("", "k8s-aws-v1.", "k8s-aws-v1.####", "k8s-aws-v1.aGVsbG8", "aGVsbG8"):
        assert sample.review(text) is None
    role = sample.make_role(["eks:ListClusters"])
    token = sample.make_token(sample.mint(role))
    assert sample.review(token) is None
    sample.eks.create_access_entry(clusterName=sample.name, principalArn=role)
    assert sample.review(token) is not None
    sample.eks.delete_access_entry(clusterName=sample.name, principalArn=role)
    assert sample.review(token) is None


# --- API server ---------------------------------------------------------------------------------------


def refuse_call(api, path, body=None):
    """Return the status and the words with which a server refuses to list objects, or to create one."""
    with pytest.raises(ApiError) as caught:
        api.call("GET" if body is None else "POST", path, body)
    return caught.value.code, str(caught.value)


def test_the_operator_is_the_first_administrator_of_the_stack_or_nobody(sample, server):
    server.sign_in(OPERATOR).call("GET", locate("nodes"))
    user = sample.review(sample.make_token(OPERATOR))
    assert user["name"] == "arn:aws:sts::123456789012:assumed-role/Ann/operator"
    key = {"clusterName": sample.name}
    for arn in ADMINISTRATORS:
        sample.eks.delete_access_entry(**key, principalArn=arn)
    assert refuse_call(server.sign_in(OPERATOR), locate("nodes")) == (401, "Unauthorized")
    policy = {"policyArn": f"{POLICY}AmazonEKSClusterAdminPolicy", "accessScope": {"type": "cluster"}}
    for arn in ADMINISTRATORS:
        sample.eks.create_access_entry(**key, principalArn=arn)
        sample.eks.associate_access_policy(**key, principalArn=arn, **policy)


def test_a_submitter_has_the_objects_of_its_namespace_and_no_others(sample, server, keys):
    """EKS user guide, "Review access policy permissions": what AmazonEKSEditPolicy has."""
    api = server.sign_in(keys)
    assert api.list("jobs", NAMESPACE) == api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"] == []
    user = f'User "arn:aws:sts::123456789012:assumed-role/{sample.physical_id("Submitter")}/someone" cannot'
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


def test_a_server_knows_nobody_by_a_token_that_eks_does_not_take(sample, server, keys):
    assert server.sign_in(keys).list("jobs", NAMESPACE) == []
    for stranger in (
        server.sign_in(keys | {"secret_access_key": "other"}),
        server.sign_in(keys, cluster="other"),
        server.sign_in(sample.mint(sample.role("JobRole"))),
        server.sign_in(sample.mint(sample.role("NodeRole"))),
    ):
        assert refuse_call(stranger, locate("jobs", NAMESPACE)) == (401, "Unauthorized")


# --- Pods ---------------------------------------------------------------------------------------------


def test_a_pod_has_the_role_of_its_service_account(sample):
    node = sample.find_node()
    keys = sample.find_credentials(node)
    sts = sample.cloud.client("sts", keys)
    role = sample.physical_id("JobRole")
    assert f"assumed-role/{role}/eks-{sample.name}-" in sts.get_caller_identity()["Arn"]
    assert sample.find_credentials() is not None
    assert sample.find_credentials(node, namespace="other") is None
    assert sample.find_credentials(node, account="default") is None
    assert sample.find_credentials({"machine": {"instance_id": "i-0123456789abcdef0"}}) is None


TAGGED = trust_pods()
UNTAGGED = trust("pods.eks.amazonaws.com")


@pytest.mark.parametrize(
    "policy",
    [
        UNTAGGED,
        trust("ec2.amazonaws.com"),
        trust_pods(StringEquals={"aws:RequestTag/kubernetes-namespace": "other"}),
        trust_pods(ArnEquals={"aws:SourceArn": "arn:aws:eks:us-east-1:1:cluster/x"}),
    ],
    ids=["no session tags", "another service", "another namespace", "another cluster"],
)
def test_a_pod_has_no_credentials_of_a_role_that_does_not_trust_it(sample, policy):
    """EKS user guide, "Create IAM role with trust policy required by EKS Pod Identity"."""
    iam, key, node = sample.client("iam"), {"RoleName": sample.physical_id("JobRole")}, sample.find_node()
    before = iam.get_role(**key)["Role"]["AssumeRolePolicyDocument"]
    try:
        iam.update_assume_role_policy(**key, PolicyDocument=json.dumps(TAGGED))
        assert sample.find_credentials(node) is not None
        iam.update_assume_role_policy(**key, PolicyDocument=json.dumps(policy))
        assert sample.find_credentials(node) is None
    finally:
        iam.update_assume_role_policy(**key, PolicyDocument=json.dumps(before))


@contextlib.contextmanager
def remove_addon(sample, name):
    """Do without an add-on for a while."""
    key = {"clusterName": sample.name, "addonName": name}
    sample.eks.delete_addon(**key)
    try:
        yield
    finally:
        sample.eks.create_addon(**key)


def test_a_pod_has_no_credentials_without_the_agent_on_its_node(sample):
    with remove_addon(sample, "eks-pod-identity-agent"):
        assert sample.find_credentials(sample.find_node()) is None


def ask_about_volume(sample, command):
    volume = [sample.physical_id("Storage"), sample.physical_id("Point")]
    node = sample.find_node()["machine"]["instance_id"]
    return sample.cloud.command(command, cluster=sample.name, instance_id=node, volume=volume)


def find_obstacle(sample):
    return ask_about_volume(sample, "find_mount_obstacle")


@contextlib.contextmanager
def separate_target(sample):
    """Give the mount target a group that admits nobody, for a while."""
    efs, ec2 = sample.client("efs"), sample.client("ec2")
    (target,) = efs.describe_mount_targets(FileSystemId=sample.physical_id("Storage"))["MountTargets"]
    key = {"MountTargetId": target["MountTargetId"]}
    before = efs.describe_mount_target_security_groups(**key)["SecurityGroups"]
    (closed,) = ec2.describe_security_groups(GroupIds=[sample.physical_id("Group")])["SecurityGroups"]
    efs.modify_mount_target_security_groups(**key, SecurityGroups=[closed["GroupId"]])
    try:
        yield
    finally:
        efs.modify_mount_target_security_groups(**key, SecurityGroups=before)


FAULTS = {
    "no driver": (
        lambda sample: remove_addon(sample, "aws-efs-csi-driver"),
        *("MountDevice", "driver name efs.csi.aws.com not found in the list of registered"),
    ),
    "no way": (separate_target, "SetUp", "rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
    "no right": (
        lambda sample: sample.permit("NodeRole", NODE_ACTIONS),
        *("SetUp", "mount.nfs4: access denied by server while mounting 127.0.0.1:/"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_node_mounts_a_volume_unless_something_is_in_the_way(sample, name):
    """
    The EFS driver, the group of the mount target, and the right of the node's role.

    kubernetes-sigs/aws-efs-csi-driver#180 and aws-ia/terraform-aws-eks-blueprints#1171 have the words.
    """
    plant, step, words = FAULTS[name]
    assert find_obstacle(sample) == ["", ""]
    with plant(sample):
        found = find_obstacle(sample)
    assert (found[0], words in found[1]) == (step, True), found


def test_a_node_writes_to_a_volume_with_the_right_alone(sample):
    """EFS user guide, "Using IAM to control access to file systems": ClientMount is read-only access."""
    assert not ask_about_volume(sample, "may_write_volume")
    with sample.permit("NodeRole", [*NODE_ACTIONS, MOUNT, "elasticfilesystem:ClientWrite"]):
        assert ask_about_volume(sample, "may_write_volume")


def test_a_node_does_not_mount_a_file_system_without_a_mount_target(sample):
    other = sample.client("efs").create_file_system(CreationToken="other")["FileSystemId"]
    node = sample.find_node()["machine"]["instance_id"]
    volume = [other, sample.physical_id("Point")]
    found = sample.cloud.command("find_mount_obstacle", cluster=sample.name, instance_id=node, volume=volume)
    assert (found[0], "ensure that the VPC has an EFS mount target for this file system ID" in found[1]) == (
        "SetUp",
        True,
    )


def test_a_node_does_not_mount_the_access_point_of_another_file_system(sample):
    """EFS user guide, "Working with Amazon EFS access points": an access point is of one file system."""
    efs, node = sample.client("efs"), sample.find_node()["machine"]["instance_id"]
    other = efs.create_file_system(CreationToken="second")["FileSystemId"]
    point = efs.create_access_point(ClientToken="second", FileSystemId=other)["AccessPointId"]
    volume = [sample.physical_id("Storage"), point]
    found = sample.cloud.command("find_mount_obstacle", cluster=sample.name, instance_id=node, volume=volume)
    assert found == ["SetUp", "mount.nfs4: access denied by server while mounting 127.0.0.1:/"]


# --- Calls --------------------------------------------------------------------------------------------

CALLS = {
    "ListClusters": {},
    "DescribeCluster": {"name": ANSWERING},
    "ListNodegroups": {"clusterName": ANSWERING},
    "ListAddons": {"clusterName": ANSWERING},
    "ListAccessEntries": {"clusterName": ANSWERING},
    "ListPodIdentityAssociations": {"clusterName": ANSWERING},
    "DescribeNodegroup": {"clusterName": ANSWERING, "nodegroupName": "group"},
    "UpdateNodegroupConfig": {"clusterName": ANSWERING, "nodegroupName": "group", "scalingConfig": {"desiredSize": 2}},
    "DescribeAddon": {"clusterName": ANSWERING, "addonName": "coredns"},
    "DescribeAccessEntry": {"clusterName": ANSWERING, "principalArn": "submitter"},
    "ListAssociatedAccessPolicies": {"clusterName": ANSWERING, "principalArn": "submitter"},
    "DescribePodIdentityAssociation": {"clusterName": ANSWERING, "associationId": "association"},
}


def test_each_call_is_decided_by_the_policies_of_the_caller(sample):
    """Service Authorization Reference, "Amazon Elastic Kubernetes Service"."""
    names = {
        "group": sample.group["nodegroupName"],
        "submitter": sample.role("Submitter"),
        "association": sample.physical_id("Jobs").rpartition("/")[2],
    }
    roles = {"mine": [f"eks:{name}" for name in CALLS], "stranger's": ["s3:GetObject"]}
    clients = {
        name: sample.cloud.client("eks", sample.mint(sample.make_role(actions))) for name, actions in roles.items()
    }
    for operation, parameters in CALLS.items():
        request = {
            key: names.get(value, value) if isinstance(value, str) else value for key, value in parameters.items()
        }
        call = xform_name(operation)
        getattr(clients["mine"], call)(**request)
        with pytest.raises(ClientError, match=f"is not authorized to perform: eks:{operation}") as caught:
            getattr(clients["stranger's"], call)(**request)
        assert caught.value.response["Error"]["Code"] == "AccessDeniedException"


def test_policies_see_the_tags_of_a_cluster(sample):
    condition = {"StringEquals": {"aws:ResourceTag/team": "learning"}}
    role = sample.make_role(["eks:DescribeCluster"], Condition=condition)
    api = sample.cloud.client("eks", sample.mint(role))
    assert api.describe_cluster(name=sample.name)["cluster"]["tags"]["team"] == "learning"
    with pytest.raises(ClientError, match="is not authorized"):
        api.describe_cluster(name="other")


def test_a_call_whose_rights_nobody_has_looked_up_is_refused(sample, keys):
    api = sample.cloud.client("eks", keys)
    with pytest.raises(ClientError, match=r"the rights that eks\.DeleteCluster needs must be known"):
        api.delete_cluster(name=sample.name)
