"""
The rights that CloudFormation's calls need to create and delete resources.

From the Service Authorization Reference. A call that is not here is known by its action alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cdk_rehearsal.errors import UnknownOperationError
from cdk_rehearsal.iam.account import Account, Parameters, Target
from cdk_rehearsal.iam.operations import PREFIXES, RequiredAction, find_needs

ANY = "*"
_READS = ("Describe", "Get", "List", "Head")
_BOUNDARY, _POLICY = "iam:PermissionsBoundary", "iam:PolicyARN"
_PASSED = "iam:PassedToService"


_OF_OTHERS = frozenset({"ec2:roledelivery", "ec2:sourceinstancearn", "lambda:sourcefunctionarn"})
"""Condition keys of the credentials of instances and functions, in lower case, which CloudFormation never has."""


@dataclass(frozen=True)
class DeploymentNeed:
    """
    One action that a call needs on a resource.

    Attributes:
        is_resource_known: Whether `need` names the resource. Else a policy that names resources cannot decide.
        absent: Condition keys, in lower case, that the request is known not to have.
    """

    need: RequiredAction
    is_resource_known: bool = True
    absent: frozenset[str] = _OF_OTHERS


def is_read(operation: str) -> bool:
    """Return whether a call, `service.Operation`, only reads; which of them CloudFormation makes is not documented."""
    return operation.partition(".")[2].startswith(_READS)


def find_deployment_needs(operation: str, parameters: Parameters, account: Account) -> tuple[DeploymentNeed, ...]:
    """Return the needs of a call of CloudFormation, `service.Operation`, with its parameters as boto3 takes them."""
    service, _, name = operation.partition(".")
    service = PREFIXES.get(service, service)
    if (row := _ROWS.get(f"{service}.{name}")) is None:
        return _find_other_needs(f"{service}.{name}", parameters, account)
    try:
        return _find_own_needs(f"{service}:{name}", row, parameters, account)
    except KeyError:  # a resource whose name the service makes up
        return _find_other_needs(f"{service}.{name}", parameters, account)


def _find_own_needs(action: str, row: "_Row", parameters: Parameters, account: Account) -> tuple[DeploymentNeed, ...]:
    tags = _describe_tags(parameters)
    own = tuple(
        DeploymentNeed(
            RequiredAction(row.action or action, arn, {**tags, **context}),
            absent=_OF_OTHERS | frozenset(key.lower() for key in row.keys - context.keys()),
        )
        for arn, context in row.targets(parameters, account)
    )
    passed = (DeploymentNeed(RequiredAction("iam:PassRole", *each)) for each in row.passes(parameters, account))
    return (*own, *passed)


def _find_other_needs(operation: str, parameters: Parameters, account: Account) -> tuple[DeploymentNeed, ...]:
    try:
        return tuple(DeploymentNeed(need) for need in find_needs(operation, parameters, account) if not need.is_implied)
    except UnknownOperationError:
        action = operation.replace(".", ":", 1)
        return (DeploymentNeed(RequiredAction(action, ANY, _describe_tags(parameters)), is_resource_known=False),)


def _describe_tags(parameters: Parameters) -> Mapping[str, str | tuple[str, ...]]:
    """Return the tags of a request, in whatever form its service takes them; those of AWS itself are no part of it."""
    found = parameters.get("Tags") or parameters.get("tags") or ()
    listed = [found, *(each.get("Tags", ()) for each in parameters.get("TagSpecifications", ()))]
    pairs: dict[str, str] = {}
    for entry in listed:
        entries = entry.items() if isinstance(entry, Mapping) else map(_read_tag, entry)
        pairs |= {key: value for key, value in entries if not key.startswith("aws:")}
    keys = {f"aws:RequestTag/{key}": value for key, value in pairs.items()}
    return {**keys, **({"aws:TagKeys": tuple(pairs)} if pairs else {})}


def _read_tag(tag: Mapping[str, str]) -> tuple[str, str]:
    return str(tag.get("Key", tag.get("TagKey"))), str(tag.get("Value", tag.get("TagValue", "")))


_Find = Callable[[Parameters, Account], Iterator[Target]]


def _no_roles(_parameters: Parameters, _account: Account) -> Iterator[Target]:
    yield from ()


@dataclass(frozen=True)
class _Row:
    """
    Needs of a call.

    Attributes:
        targets: Resources that it names.
        keys: Condition keys that are known for it; one that is not given is absent.
        passes: Roles that it hands over. Default: none.
        action: Its action. Default: that of its own name.
    """

    targets: _Find
    keys: frozenset[str] = frozenset()
    passes: _Find = _no_roles
    action: str = ""


def _name(service: str, resource: str) -> _Find:
    """Return what names a resource of a service by a format over the parameters."""

    def find(parameters: Parameters, account: Account) -> Iterator[Target]:
        yield account.arn(service, resource.format_map(parameters)), {}

    return find


def _everything(_parameters: Parameters, _account: Account) -> Iterator[Target]:
    yield ANY, {}


def _global_arn(account: Account, service: str, resource: str, *, has_account: bool = True) -> str:
    return f"arn:{account.arn('', '').split(':')[1]}:{service}::{account.account_id if has_account else ''}:{resource}"


def _new_entity(kind: str, name: str) -> _Find:
    """Return what names a role, a policy or a profile that is created below a path."""

    def find(parameters: Parameters, account: Account) -> Iterator[Target]:
        boundary = parameters.get("PermissionsBoundary")
        path = parameters.get("Path", "/")
        yield _global_arn(account, "iam", f"{kind}{path}{parameters[name]}"), {_BOUNDARY: boundary} if boundary else {}

    return find


def _role(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a role, with its boundary and the policy that it gets."""
    arn = account.find_role(str(parameters["RoleName"]))
    if not arn:
        return  # the service itself says so
    boundary, policy = account.find_boundary(arn), parameters.get("PolicyArn")
    yield arn, {**({_BOUNDARY: boundary[0]} if boundary else {}), **({_POLICY: str(policy)} if policy else {})}


def _instance_profile(parameters: Parameters, account: Account) -> Iterator[Target]:
    yield account.find_profile(str(parameters["InstanceProfileName"])), {}


def _pass_role(name: str, service: str) -> _Find:
    def find(parameters: Parameters, account: Account) -> Iterator[Target]:
        if role := account.find_role(str(parameters.get(name, ""))):
            yield role, {_PASSED: service}

    return find


def _bucket(parameters: Parameters, account: Account) -> Iterator[Target]:
    yield _global_arn(account, "s3", str(parameters["Bucket"]), has_account=False), {}


def _topic(parameters: Parameters, account: Account) -> Iterator[Target]:
    yield str(parameters.get("TopicArn") or account.arn("sns", str(parameters.get("Name")))), {}


def _queue(parameters: Parameters, account: Account) -> Iterator[Target]:
    name = parameters.get("QueueName") or str(parameters["QueueUrl"]).rpartition("/")[2]
    yield account.arn("sqs", str(name)), {}


def _in_ec2(*created: str) -> _Find:
    """Return what names resources of EC2: those that a call creates, and those that it names."""

    def find(parameters: Parameters, account: Account) -> Iterator[Target]:
        yield from ((account.arn("ec2", f"{kind}/*"), {}) for kind in created)
        for name, kind in _EC2_KINDS.items():
            if name in parameters:
                yield account.arn("ec2", f"{kind}/{parameters[name]}"), {}

    return find


_EC2_KINDS = {
    "VpcId": "vpc",
    "SubnetId": "subnet",
    "RouteTableId": "route-table",
    "InternetGatewayId": "internet-gateway",
    "NatGatewayId": "natgateway",
    "AllocationId": "elastic-ip",
    "LaunchTemplateId": "launch-template",
    "GroupId": "security-group",
}


def _launch(parameters: Parameters, account: Account) -> Iterator[Target]:
    """
    Name what an instance is made of, with its type.

    A launch that does not ask for tokens has no such key (EC2 user guide, "Control access with IAM", example "Require
    the use of IMDSv2"); of a volume that only the image names, nothing is known. Who creates a group with a launch
    template needs `ec2:RunInstances` too (EC2 Auto Scaling user guide, "Control Amazon EC2 launch template usage in
    Auto Scaling groups").
    """
    tokens = parameters.get("MetadataOptions", {}).get("HttpTokens")
    known = {"ec2:InstanceType": parameters.get("InstanceType"), "ec2:MetadataHttpTokens": tokens}
    yield account.arn("ec2", "instance/*"), {key: str(value) for key, value in known.items() if value}
    yield account.arn("ec2", "network-interface/*"), {}
    volumes = [each["Ebs"] for each in parameters.get("BlockDeviceMappings", ()) if "Ebs" in each]
    for volume in volumes or [{}]:
        kind = {"ec2:VolumeType": str(volume["VolumeType"])} if "VolumeType" in volume else {}
        encrypted = {"ec2:Encrypted": str(volume.get("Encrypted", False)).lower()} if volume else {}
        yield account.arn("ec2", "volume/*"), {**kind, **encrypted}
    cards = [parameters, *parameters.get("NetworkInterfaces", ())]
    for card in cards:
        if subnet := card.get("SubnetId"):
            yield account.arn("ec2", f"subnet/{subnet}"), {}
        for group in (*card.get("SecurityGroupIds", ()), *card.get("Groups", ())):
            yield account.arn("ec2", f"security-group/{group}"), {}
    if image := parameters.get("ImageId"):
        yield account.arn("ec2", f"image/{image}").replace(f":{account.account_id}:", "::"), {}


def _launch_role(parameters: Parameters, account: Account) -> Iterator[Target]:
    profile = parameters.get("IamInstanceProfile", {})
    if role := account.find_profile_role(str(profile.get("Arn") or profile.get("Name", ""))):
        yield role, {_PASSED: "ec2.amazonaws.com"}


def _list_rows() -> Iterator[tuple[str, _Row]]:
    role = _Row(_role, frozenset({_BOUNDARY, _POLICY}))
    yield "iam.CreateRole", _Row(_new_entity("role", "RoleName"), frozenset({_BOUNDARY}))
    yield "iam.CreatePolicy", _Row(_new_entity("policy", "PolicyName"))
    yield "iam.CreateInstanceProfile", _Row(_new_entity("instance-profile", "InstanceProfileName"))
    yield "iam.AddRoleToInstanceProfile", _Row(_instance_profile, passes=_pass_role("RoleName", "ec2.amazonaws.com"))
    yield from ((f"iam.{name}", role) for name in ("PutRolePolicy", "AttachRolePolicy"))
    function = _name("lambda", "function:{FunctionName}")
    yield "lambda.CreateFunction", _Row(function, passes=_pass_role("Role", "lambda.amazonaws.com"))
    yield "lambda.AddPermission", _Row(function)
    yield from ((f"s3.{name}", _Row(_bucket)) for name in ("CreateBucket", "PutBucketPolicy", "PutBucketVersioning"))
    for call, action in _BUCKET_ACTIONS.items():
        yield f"s3.{call}", _Row(_bucket, action=f"s3:{action}")
    yield from ((f"sqs.{name}", _Row(_queue)) for name in ("CreateQueue", "SetQueueAttributes"))
    yield from ((f"sns.{name}", _Row(_topic)) for name in ("CreateTopic", "Subscribe", "SetTopicAttributes"))
    table = _Row(_name("dynamodb", "table/{TableName}"))
    for name in ("CreateTable", "UpdateContinuousBackups", "UpdateTimeToLive"):
        yield f"dynamodb.{name}", table
    log = _Row(_name("logs", "log-group:{logGroupName}"))
    yield from ((f"logs.{name}", log) for name in ("CreateLogGroup", "PutRetentionPolicy", "PutMetricFilter"))
    rule = "rule/{Name}", "rule/{Rule}"
    yield from ((f"events.{name}", _Row(_name("events", rule[0]))) for name in ("PutRule", "DeleteRule"))
    yield from ((f"events.{name}", _Row(_name("events", rule[1]))) for name in ("PutTargets", "RemoveTargets"))
    system = _Row(_name("elasticfilesystem", "file-system/{FileSystemId}"))
    for name in ("CreateMountTarget", "CreateAccessPoint", "PutFileSystemPolicy", "PutLifecycleConfiguration"):
        yield f"elasticfilesystem.{name}", system
    yield from ((name, _Row(_everything)) for name in ("elasticfilesystem.CreateFileSystem", "kms.CreateKey"))
    alarm = _Row(_name("cloudwatch", "alarm:{AlarmName}"))
    yield "cloudwatch.PutMetricAlarm", alarm
    group = _name("autoscaling", "autoScalingGroup:*:autoScalingGroupName/{AutoScalingGroupName}")
    yield "autoscaling.CreateAutoScalingGroup", _Row(group)
    yield "ec2.RunInstances", _Row(_launch, frozenset({"ec2:MetadataHttpTokens"}), _launch_role)
    for name, created in _CREATED.items():
        yield f"ec2.{name}", _Row(_in_ec2(*created.split()))


_BUCKET_ACTIONS = {
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "PutBucketOwnershipControls": "PutBucketOwnershipControls",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "PutBucketTagging": "PutBucketTagging",
    "PutBucketCors": "PutBucketCORS",
}
"""Call of S3 -> its action."""
_CREATED = {
    "CreateVpc": "vpc",
    "CreateSubnet": "subnet",
    "CreateRouteTable": "route-table",
    "CreateRoute": "",
    "CreateInternetGateway": "internet-gateway",
    "AttachInternetGateway": "",
    "CreateNatGateway": "natgateway",
    "AllocateAddress": "elastic-ip",
    "AssociateAddress": "",
    "CreateSecurityGroup": "security-group",
    "CreateLaunchTemplate": "launch-template",
    "CreateVpcEndpoint": "vpc-endpoint",
    "DeleteVpc": "",
    "DeleteSubnet": "",
    "DeleteRouteTable": "",
    "DeleteInternetGateway": "",
    "DeleteSecurityGroup": "",
    "DeleteNatGateway": "",
}
"""Call of EC2 -> kinds of resources that it creates."""
_ROWS = dict(_list_rows())
