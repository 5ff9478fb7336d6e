"""Resources that calls of EC2 and Auto Scaling name, from the pages of the Service Authorization Reference."""

from collections.abc import Iterable, Iterator, Mapping

from cdk_rehearsal.iam.account import Account, Parameters, Target, Values

_CREATED = {"RunInstances": ("instance", "volume"), "CreateNetworkInterface": ("network-interface",)}
"""Call -> what it creates with the tags of its request."""
_KINDS = {"i": "instance", "vol": "volume", "eni": "network-interface"}
"""Begin of an id -> kind of resource."""

_PLACES = {"ec2:Subnet": ("SubnetId", "subnet"), "ec2:Vpc": ("VpcId", "vpc")}
"""Condition key -> parameter with its value, kind of resource."""
_PARTS = {
    "GroupId": ("security-group", ("ec2:Vpc",)),
    "InstanceId": ("instance", ()),
    "NetworkInterfaceId": ("network-interface", ("ec2:Subnet", "ec2:Vpc")),
}
"""Parameter with an id -> kind of resource, condition keys of its place."""


def targets_of_vpc(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a VPC."""
    yield account.arn("ec2", f"vpc/{parameters['VpcId']}"), {}


def targets_of_ec2_resource(parameters: Parameters, account: Account) -> Iterator[Target]:
    """
    Name a security group, an instance and an interface, each with its tags and the keys that its kind has.

    The Service Authorization Reference, "Amazon EC2", gives interfaces `ec2:Subnet` and `ec2:Vpc`, security groups
    `ec2:Vpc`, and instances neither.
    """
    places = {
        key: account.arn("ec2", f"{kind}/{parameters[name]}")
        for key, (name, kind) in _PLACES.items()
        if name in parameters
    }
    for name, (kind, keys) in _PARTS.items():
        if name in parameters:
            arn, tags = _tag_target(account, kind, str(parameters[name]))
            yield arn, {**tags, **{key: places[key] for key in keys if key in places}}


def targets_of_launch(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name what exists, with its tags, and what the launch creates, with those that it gets."""
    yield from _targets_of_site(parameters, account)
    image = account.arn("ec2", f"image/{parameters['ImageId']}")
    yield image.replace(f":{account.account_id}:", "::"), {}
    if key := parameters.get("KeyName"):
        yield account.arn("ec2", f"key-pair/{key}"), {}
    yield from _targets_of_created(_CREATED["RunInstances"], _describe_tags(parameters), account)
    yield account.arn("ec2", "network-interface/*"), {}


def targets_of_new_interface(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name subnet and groups of a network interface, with their tags, and the interface, with those that it gets."""
    yield from _targets_of_site(parameters, account)
    yield from _targets_of_created(_CREATED["CreateNetworkInterface"], _describe_tags(parameters), account)


def targets_of_new_volume(_parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a volume of a launch."""
    yield account.arn("ec2", "volume/*"), {}


def targets_of_tagged_resources(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name what gets or loses tags: `Kinds` of what the call `CreateAction` creates, by default all, or `Resources`."""
    context = _describe_tags(parameters)
    if action := parameters.get("CreateAction"):
        kinds = parameters.get("Kinds", _CREATED[action])
        yield from _targets_of_created(kinds, {**context, "ec2:CreateAction": str(action)}, account)
    for name in parameters.get("Resources", ()):
        kind = _KINDS[name.partition("-")[0]]
        arn, own = _tag_target(account, kind, name)
        is_placed = kind == "network-interface" and "SubnetId" in parameters
        place = {"ec2:Subnet": account.arn("ec2", f"subnet/{parameters['SubnetId']}")} if is_placed else {}
        yield arn, {**own, **place, **context}


def _targets_of_site(parameters: Parameters, account: Account) -> Iterator[Target]:
    if subnet := parameters.get("SubnetId"):  # without one, EC2 takes a default subnet
        yield _tag_target(account, "subnet", str(subnet))
    yield from (_tag_target(account, "security-group", str(name)) for name in parameters.get("SecurityGroupIds", ()))


def _targets_of_created(kinds: Iterable[str], context: Values, account: Account) -> Iterator[Target]:
    """Name what a call creates, which has no id yet."""
    yield from ((account.arn("ec2", f"{kind}/*"), context) for kind in kinds)


def _describe_tags(parameters: Parameters) -> Values:
    tags: Mapping[str, str] = parameters.get("Tags", {})
    return {**{f"aws:RequestTag/{key}": value for key, value in tags.items()}, "aws:TagKeys": tuple(tags)}


def _tag_target(account: Account, kind: str, name: str) -> Target:
    arn = account.arn("ec2", f"{kind}/{name}")
    return arn, {f"aws:ResourceTag/{key}": value for key, value in account.find_tags(arn).items()}


def targets_of_group(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name an Auto Scaling group, with its tags."""
    yield from _targets_of_tagged(account.find_group(str(parameters["AutoScalingGroupName"])))


def targets_of_group_of_instance(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name the Auto Scaling group of an instance, with its tags."""
    yield from _targets_of_tagged(account.find_group_of(str(parameters["InstanceId"])))


def _targets_of_tagged(group: tuple[str, Mapping[str, str]] | None) -> Iterator[Target]:
    if group is not None:  # of one that is not there the service itself says so, whoever calls
        arn, tags = group
        yield arn, {f"{name}:ResourceTag/{key}": tags[key] for key in tags for name in ("autoscaling", "aws")}


def targets_of_managed_instance(parameters: Parameters, account: Account) -> Iterator[Target]:
    """
    Name an instance as Systems Manager does.

    No key names the instance that the call is about; `ssm:SourceInstanceARN` is absent where an instance profile calls
    (Service Authorization Reference, "Condition keys for AWS Systems Manager").
    """
    yield account.arn("ec2", f"instance/{parameters['InstanceId']}"), {}
