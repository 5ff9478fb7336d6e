"""Plants holes: edits of templates, and alterations of stacks before they are synthesized."""

from collections.abc import Callable
from typing import Any

from aws_cdk import CfnResource
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs

from stacks.cluster_stack import EksStack, HorovodStack

Edit = Callable[[dict[str, Any]], None]
Alteration = Callable[[Any], None]

QUEUE_ARN = "arn:aws:sqs:us-east-1:111122223333:mine"


def find(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the resources of a type, of which there must be one."""
    found = [entry for entry in template["Resources"].values() if entry["Type"] == kind]
    assert found, f"the template has no {kind}"
    return found


def change(kind: str, path: str, value: Any) -> Edit:
    """Return an edit that gives the last resource of a type that has another value this one; None takes it away."""

    *parents, last = path.split(".")

    def edit(template: dict[str, Any]) -> None:
        for place in reversed(find(template, kind)):
            for name in parents:
                place = place[int(name) if name.isdigit() else name]  # noqa: PLW2901 - it goes down
            if place.get(last) != value:
                place.pop(last, None)
                place.update({} if value is None else {last: value})
                return
        raise AssertionError(f"no {kind} has another {path}")

    return edit


def remove(kind: str) -> Edit:
    """Return an edit that takes all resources of a type away."""

    def edit(template: dict[str, Any]) -> None:
        find(template, kind)
        template["Resources"] = {name: entry for name, entry in template["Resources"].items() if entry["Type"] != kind}

    return edit


def add(kind: str, properties: dict[str, Any]) -> Edit:
    """Return an edit that adds a resource."""
    return lambda template: template["Resources"].update({"Planted": {"Type": kind, "Properties": properties}})


def add_policy(action: str, resource: str) -> Edit:
    """Return an edit that adds a managed policy, in whose lists an action and a resource hide."""
    statement = {"Effect": "Allow", "Action": ["sqs:SendMessage", action], "Resource": [QUEUE_ARN, resource]}
    return add("AWS::IAM::ManagedPolicy", {"PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}})


def add_submitter(job: str, *keys: str) -> Edit:
    """Return an edit that lets a person start the training jobs of a name, with limits by these condition keys."""
    statement = {
        "Effect": "Allow",
        "Action": "sagemaker:CreateTrainingJob",
        "Resource": f"arn:aws:sagemaker:us-east-1:111122223333:training-job/{job}",
        "Condition": {
            "ForAllValues:StringEquals": {f"sagemaker:{key}": ["mine"] for key in keys},
            "Null": {f"sagemaker:{key}": "false" for key in keys},
        },
    }
    return add("AWS::IAM::ManagedPolicy", {"PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}})


def admit_to_role(principal: dict[str, str]) -> Edit:
    """Return an edit that lets another principal take a role."""
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal}
    return change("AWS::IAM::Role", "Properties.AssumeRolePolicyDocument.Statement", [statement])


def allow_plain_http(kind: str) -> Edit:
    """Return an edit that takes the denial of plain HTTP out of the last policy of a type."""

    def edit(template: dict[str, Any]) -> None:
        document = find(template, kind)[-1]["Properties"]["PolicyDocument"]
        kept = [entry for entry in document["Statement"] if "aws:SecureTransport" not in str(entry.get("Condition"))]
        assert len(kept) < len(document["Statement"])
        document["Statement"] = kept

    return edit


def give_workers_addresses(template: dict[str, Any]) -> None:
    """Give workers public addresses."""
    group = next(
        entry
        for entry in find(template, "AWS::AutoScaling::AutoScalingGroup")
        if any(tag["Value"] == "worker" for tag in entry["Properties"]["Tags"])
    )
    launch = template["Resources"][group["Properties"]["LaunchTemplate"]["LaunchTemplateId"]["Ref"]]
    launch["Properties"]["LaunchTemplateData"]["NetworkInterfaces"][0]["AssociatePublicIpAddress"] = True


def let_everyone_send(template: dict[str, Any]) -> None:
    """Let everyone send to a queue."""
    document = find(template, "AWS::SQS::QueuePolicy")[-1]["Properties"]["PolicyDocument"]
    document["Statement"].append({"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"})


def let_nodes_read(template: dict[str, Any]) -> None:
    """Let the nodes of a cluster on EKS read a bucket, in the policy that they have."""
    role, _ = find(template, "AWS::EKS::Nodegroup")[-1]["Properties"]["NodeRole"]["Fn::GetAtt"]
    (policy,) = (
        entry["Properties"]["PolicyDocument"]
        for entry in find(template, "AWS::IAM::ManagedPolicy")
        if {"Ref": role} in entry["Properties"]["Roles"]
    )
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::team-data/*"}
    policy["Statement"].append(statement)


def silence(template: dict[str, Any]) -> None:
    """Acknowledge a rule that is not in the table."""
    metadata = find(template, "AWS::SQS::Queue")[0].setdefault("Metadata", {})
    metadata["checkov"] = {"skip": [{"id": "CKV_AWS_27", "comment": "we know"}]}


def open_ssh(stack: HorovodStack) -> None:
    """Let everyone open SSH to all nodes."""
    stack.cluster.network.security_group.add_ingress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(22))


def open_api(stack: EksStack) -> None:
    """Open the API server of a cluster on EKS to everyone."""
    cluster = stack.cluster.control_plane.cluster
    cluster.resources_vpc_config = eks.CfnCluster.ResourcesVpcConfigProperty(
        subnet_ids=["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"], endpoint_public_access=True
    )


def allow(action: str, resource: str) -> Alteration:
    """Return an alteration that adds a managed policy."""

    def alter(stack: HorovodStack) -> None:
        statement = iam.PolicyStatement(actions=[action], resources=[resource])
        iam.ManagedPolicy(stack, "Planted", statements=[statement])

    return alter


def make_inline_policy(stack: HorovodStack) -> None:
    """Give a role a policy inside."""
    role = iam.Role(stack, "Planted", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[QUEUE_ARN]))


def forget(kind: str) -> Alteration:
    """Return an alteration that takes all resources of a type away."""

    def alter(stack: HorovodStack) -> None:
        found = [
            construct
            for construct in stack.node.find_all()
            if isinstance(construct, CfnResource) and construct.cfn_resource_type == kind
        ]
        assert found, f"the stack has no {kind}"
        for resource in found:
            parent = resource.node.scope
            assert parent is not None
            assert parent.node.try_remove_child(resource.node.id)

    return alter


def make_endless_log(stack: HorovodStack) -> None:
    """Make a log group that never forgets."""
    logs.LogGroup(stack, "Planted", retention=logs.RetentionDays.INFINITE)


def misspell(stack: HorovodStack) -> None:
    """Give a queue a property that queues do not have."""
    queue = stack.cluster.coordination.master_queue.node.default_child
    assert isinstance(queue, CfnResource)
    queue.add_property_override("Colour", "blue")
