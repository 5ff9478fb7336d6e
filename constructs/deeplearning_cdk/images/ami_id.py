"""Reads the id of an image in the stack where it is used."""

from collections.abc import Mapping

from aws_cdk import Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm
from constructs import Construct


def read_ami_id(
    scope: Construct, parameter: str, ami_ids: Mapping[str, str], machine_image: ec2.IMachineImage | None
) -> str:
    """
    Return an AMI id, as a token where a parameter holds it.

    Args:
        scope: A construct of the stack.
        parameter: SSM parameter that holds the id; empty with another source.
        ami_ids: Id by region, or under `*`; empty with another source.
        machine_image: An image of the CDK; None with another source.

    Raises:
        ValueError: No id was given for the stack's region, or the image is not of Linux.
    """
    if machine_image is not None:
        return _read_machine_image(scope, machine_image)
    if parameter:
        return ssm.StringParameter.value_for_typed_string_parameter_v2(
            scope, parameter, ssm.ParameterValueType.AWS_EC2_IMAGE_ID
        )
    if "*" in ami_ids:
        return ami_ids["*"]
    region = Stack.of(scope).region
    if Token.is_unresolved(region):
        raise ValueError("image must have one AMI id in a stack without a region, got one a region; set env.region")
    if region not in ami_ids:
        raise ValueError(f"image must have an AMI id for {region}, got {sorted(ami_ids)}; add it")
    return ami_ids[region]


def _read_machine_image(scope: Construct, image: ec2.IMachineImage) -> str:
    found = image.get_image(scope)
    if found.os_type == ec2.OperatingSystemType.WINDOWS:
        raise ValueError("image must be of Linux, got one of Windows; take Ubuntu or Amazon Linux")
    return found.image_id
