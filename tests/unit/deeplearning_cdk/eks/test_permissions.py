"""Permissions of the control plane, the nodes, the pods and the people of a cluster on EKS."""

import re
from typing import Any

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import DataSource, EksTraining, Storage
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.eks.conftest import ADMIN, IMAGE, read_kubernetes

DESCRIBES = {
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeVpcs",
}


def _list(value):
    return value if isinstance(value, list) else [value]


def _rights(synthesis, part):
    """Return each action of a role with its resources."""
    found: dict[str, list[Any]] = {}
    for each in synthesis.statements(part):
        for action in _list(each["Action"]):
            found[action] = [*found.get(action, []), *map(render, _list(each["Resource"]))]
    return found


def _trust(synthesis, part):
    (statement,) = synthesis.part("AWS::IAM::Role", part)["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    return statement


def test_control_plane_has_the_least_that_eks_documents_for_this_cluster_alone(make):
    """EKS user guide, "Amazon EKS cluster IAM role" and "Cross-service confused deputy prevention in Amazon EKS"."""
    synthesis = make()
    rights = _rights(synthesis, "ControlPlaneRole")
    assert set(rights) == {"ec2:CreateTags", "kms:DescribeKey", *DESCRIBES}
    assert {action for action, resources in rights.items() if resources == ["*"]} == DESCRIBES
    statement = _trust(synthesis, "ControlPlaneRole")
    assert statement["Principal"] == {"Service": "eks.amazonaws.com"}
    source = render(statement["Condition"]["ArnLike"]["aws:SourceArn"])
    assert source.endswith(f":cluster/{render(synthesis.only('AWS::EKS::Cluster')['Name'])}")


def test_no_role_has_a_policy_of_aws(make):
    for role in make().of_type("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role["Properties"]


def test_nodes_pull_images_mount_the_file_system_and_read_no_bucket(make):
    rights = _rights(make(storage=Storage(data=[DataSource("train", "images", "train/")])), "NodesRole")
    assert {action.partition(":")[0] for action in rights} == {"ec2", "ecr", "eks", "eks-auth", "elasticfilesystem"}
    assert rights["elasticfilesystem:ClientMount"] == rights["elasticfilesystem:ClientWrite"]
    on_ec2 = {action for action in rights if action.startswith("ec2:")}
    assert on_ec2 == {"ec2:DescribeInstances", "ec2:DescribeInstanceTypes"}
    for statement in make().statements("NodesRole"):
        if "elasticfilesystem:ClientMount" in _list(statement["Action"]):
            assert "elasticfilesystem:AccessPointArn" in statement["Condition"]["StringEquals"]


def test_pods_of_jobs_have_their_programs_their_sources_and_their_data_alone(make):
    synthesis = make(storage=Storage(data=[DataSource("train", "images", "train/")]))
    rights = _rights(synthesis, "JobRole")
    assert set(rights) == {"events:PutEvents", "s3:GetObject", "s3:ListBucket"}
    assert [resource.rpartition(":::")[2] for resource in rights["s3:ListBucket"]] == ["images"]
    keys = [resource.partition("/")[2] for resource in rights["s3:GetObject"]]
    assert "train/*" in keys
    assert any(key.startswith("deeplearning-jobs/Stack-") for key in keys)
    assert len(keys) == 2
    # They send the event of a failed job of their cluster alone.
    (statement,) = (each for each in synthesis.statements("JobRole") if each["Action"] == "events:PutEvents")
    kinds = statement["Condition"]["ForAllValues:StringEquals"]
    assert kinds["events:detail-type"] in ("Deep Learning Job Failed", ["Deep Learning Job Failed"])
    assert re.fullmatch(r"deeplearning-cdk\.Stack-[0-9a-f]{8}", kinds["events:source"])
    assert statement["Condition"]["Null"] == {"events:source": "false", "events:detail-type": "false"}


def test_role_of_jobs_is_for_one_service_account_of_this_cluster(make):
    """EKS user guide, "Create IAM role with trust policy required by EKS Pod Identity"."""
    synthesis = make(namespace="team")
    (cluster,) = synthesis.of_type("AWS::EKS::Cluster")
    statement = _trust(synthesis, "JobRole")
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert sorted(_list(statement["Action"])) == ["sts:AssumeRole", "sts:TagSession"]
    assert statement["Condition"] == {
        "ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": [cluster, "Arn"]}},
        "StringEquals": {
            "aws:RequestTag/kubernetes-namespace": "team",
            "aws:RequestTag/kubernetes-service-account": "deeplearning-job",
            "aws:SourceAccount": {"Ref": "AWS::AccountId"},
        },
    }
    association = synthesis.only("AWS::EKS::PodIdentityAssociation")
    assert (association["Namespace"], association["ServiceAccount"]) == ("team", "deeplearning-job")


def test_network_plugin_makes_interfaces_in_the_subnet_of_the_nodes_alone(make):
    synthesis = make()
    rights = _rights(synthesis, "NetworkRole")
    (subnet,) = (name for name in synthesis.of_type("AWS::EC2::Subnet") if "PrivateSubnet" in name)
    assert any(resource.endswith(f":subnet/<{subnet}>") for resource in rights["ec2:CreateNetworkInterface"])
    assert all("Describe" in action for action, resources in rights.items() if "*" in resources)
    association = synthesis.part("AWS::EKS::Addon", "VpcCni")["Properties"]["PodIdentityAssociations"]
    assert [each["ServiceAccount"] for each in association] == ["aws-node"]


def test_network_plugin_changes_interfaces_of_the_subnet_on_instances_of_the_cluster_alone(make):
    """Service Authorization Reference, "Amazon EC2": interfaces have `ec2:Subnet`, instances have their tags alone."""
    synthesis = make()
    limits = {
        (kind, action): statement.get("Condition")
        for statement in synthesis.statements("NetworkRole")
        for action in _list(statement["Action"])
        for resource in _list(statement["Resource"])
        if (kind := render(resource).rpartition(":")[2].partition("/")[0]) in ("instance", "network-interface")
        and action != "ec2:CreateNetworkInterface"
    }
    template = synthesis.part("AWS::EC2::LaunchTemplate", "MembersTemplate")["Properties"]["LaunchTemplateData"]
    tags = {each["ResourceType"]: each["Tags"] for each in template["TagSpecifications"]}["instance"]
    (subnet,) = (name for name in synthesis.of_type("AWS::EC2::Subnet") if "PrivateSubnet" in name)
    assert len(limits) > 6
    for (kind, _), condition in limits.items():
        if kind == "instance":
            assert condition == {"StringEquals": {f"aws:ResourceTag/{tags[0]['Key']}": tags[0]["Value"]}}
        else:
            assert render(condition["ArnEquals"]["ec2:Subnet"]).endswith(f":subnet/<{subnet}>")


def test_administrators_have_the_whole_cluster_and_submitters_their_namespace(make_stack, read_stack):
    stack = make_stack()
    training = EksTraining(stack, "Training", image=IMAGE, administrators=[ADMIN])
    made = iam.Role(stack, "Engineer", assumed_by=iam.AccountRootPrincipal())
    imported = iam.Role.from_role_arn(stack, "Team", "arn:aws:iam::111122223333:role/Team")
    for grantee in (made, made, imported, iam.User(stack, "Person")):
        training.grant_submit(grantee)
    entries = [entry["Properties"] for entry in read_stack(stack).of_type("AWS::EKS::AccessEntry").values()]
    found = {
        str(each["PrincipalArn"]): (render(policy["PolicyArn"]).rpartition("/")[2], policy["AccessScope"])
        for each in entries
        for policy in each["AccessPolicies"]
    }
    assert found.pop(ADMIN) == ("AmazonEKSClusterAdminPolicy", {"Type": "cluster"})
    assert len(found) == len(entries) - 1 == 3
    for policy, scope in found.values():
        assert (policy, scope) == ("AmazonEKSEditPolicy", {"Type": "namespace", "Namespaces": ["kubeflow-dist-train"]})


def test_submitters_find_the_document_upload_sources_copy_the_programs_and_call_nothing_else(make_stack, read_stack):
    stack = make_stack()
    training = EksTraining(stack, "Training", image=IMAGE)
    training.grant_submit(iam.Role(stack, "Engineer", assumed_by=iam.AccountRootPrincipal()))
    synthesis = read_stack(stack)
    rights = _rights(synthesis, "Engineer")
    assert set(rights) == {"s3:GetObject", "s3:PutObject", "ssm:GetParametersByPath"}
    (agent,) = rights["s3:GetObject"]
    assert agent.partition("/")[2] == read_kubernetes(synthesis).agent.key
    assert all("deeplearning-jobs/" in resource for resource in rights["s3:PutObject"])


def test_grants_reach_the_role_of_jobs_and_data_with_a_key_can_be_read(make_stack, read_stack):
    stack = make_stack()
    bucket = s3.Bucket(stack, "Data", encryption_key=kms.Key(stack, "DataKey"))
    training = EksTraining(stack, "Training", image=IMAGE, storage=Storage(data=[DataSource("train", bucket)]))
    bucket.grant_write(training)
    synthesis = read_stack(stack)
    actions = {
        action
        for policy in synthesis.policies("JobRole")
        for statement in policy["PolicyDocument"]["Statement"]
        for action in _list(statement["Action"])
    }
    assert {"kms:Decrypt", "s3:PutObject"} <= actions
