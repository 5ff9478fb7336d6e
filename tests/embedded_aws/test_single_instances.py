"""Single instances as the CDK writes them: launched, booted, signalled, described and terminated."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

UBUNTU = "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id"
SMALL = ec2.InstanceType("t3.micro")


def make_vpc(stack):
    """Add a VPC of one public zone, whose default group the CDK leaves alone."""
    public = ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC)
    return ec2.Vpc(
        stack,
        "Vpc",
        availability_zones=["us-east-1a"],
        nat_gateways=0,
        subnet_configuration=[public],
        restrict_default_security_group=False,
    )


def make_instances(stack):
    """Add an instance of Ubuntu that signals, one of Amazon Linux with much that the CDK can say, and a bastion."""
    vpc = make_vpc(stack)
    ubuntu = ec2.MachineImage.from_ssm_parameter(UBUNTU, os=ec2.OperatingSystemType.LINUX)
    plain = ec2.Instance(stack, "Plain", vpc=vpc, instance_type=SMALL, machine_image=ubuntu)
    plain.add_user_data("echo plain")
    plain.instance.cfn_options.creation_policy = cdk.CfnCreationPolicy(
        resource_signal=cdk.CfnResourceSignal(count=1, timeout="PT5M")
    )
    full = ec2.Instance(
        stack,
        "Full",
        vpc=vpc,
        instance_type=SMALL,
        machine_image=ec2.MachineImage.latest_amazon_linux2023(),
        key_pair=ec2.KeyPair(stack, "Key", type=ec2.KeyPairType.ED25519),
        require_imdsv2=True,
        associate_public_ip_address=True,
        source_dest_check=False,
        detailed_monitoring=True,
        ebs_optimized=True,
        ssm_session_permissions=True,
        propagate_tags_to_volume_on_creation=True,
        credit_specification=ec2.CpuCredits.UNLIMITED,
        disable_api_termination=False,
        block_devices=[ec2.BlockDevice(device_name="/dev/xvda", volume=ec2.BlockDeviceVolume.ebs(20))],
    )
    bastion = ec2.BastionHostLinux(stack, "Bastion", vpc=vpc)
    for name, instance in {"Plain": plain, "Full": full}.items():
        values = (instance.instance_private_ip, instance.instance_private_dns_name, instance.instance_public_ip)
        cdk.CfnOutput(stack, f"{name}Is", value=cdk.Fn.join(" ", [instance.instance_id, *values]))
    cdk.CfnOutput(stack, "BastionIs", value=bastion.instance_id)
    return stack


def find_logical_id(cloud, construct):
    """Wait until the instance of a construct is there, and return its logical id."""
    return cloud.observation(f"launched for {construct}")["text"].rpartition(" ")[2]


def test_the_instances_of_the_cdk_run_and_say_what_they_are_and_end_with_the_stack(deploy_app):
    cloud = deploy_app(make_instances)
    logical_id = find_logical_id(cloud, "Plain")
    plain = cloud.physical_id(logical_id)
    cloud.client("cloudformation").signal_resource(
        StackName="sample", LogicalResourceId=logical_id, UniqueId=plain, Status="SUCCESS"
    )
    outcome = cloud.end()
    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
    machines = {}
    for _ in range(3):
        machine = cloud.next(lambda line: line["kind"] == "boot")["machine"]
        machines[machine["instance_id"]] = machine

    outputs = outcome["outputs"]
    (_, address, dns, _) = outputs["PlainIs"].split(" ")
    assert machines[plain]["address"] == address
    assert dns == f"ip-{address.replace('.', '-')}.ec2.internal"
    assert machines[plain]["user_data"] == "#!/bin/bash\necho plain"
    assert machines[plain]["login_user"] == "ubuntu"
    assert machines[plain]["tags"]["aws:cloudformation:logical-id"] == logical_id

    full = outputs["FullIs"].split(" ")[0]
    assert machines[full]["login_user"] == "ec2-user"
    assert machines[full]["public_key"].startswith("ssh-ed25519 ")
    assert machines[full]["role_name"]
    (described,) = cloud.client("ec2").describe_instances(InstanceIds=[full])["Reservations"][0]["Instances"]
    assert described["SourceDestCheck"] is False
    assert described["MetadataOptions"]["HttpTokens"] == "required"
    assert outputs["FullIs"].split(" ")[3] == described["PublicIpAddress"]
    # CloudFormation template reference, "AWS::EC2::KeyPair": where the private key is stored.
    (pair,) = cloud.client("ec2").describe_key_pairs()["KeyPairs"]
    stored = cloud.client("ssm").get_parameter(Name=f"/ec2/keypair/{pair['KeyPairId']}", WithDecryption=True)
    assert stored["Parameter"]["Value"].startswith("-----BEGIN ")
    assert outputs["BastionIs"] in machines

    cloud.client("cloudformation").delete_stack(StackName="sample")
    gone = {cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] for _ in range(3)}
    assert gone == set(machines)
    assert cloud.end()["status"] == "DELETE_COMPLETE"


def make_one(change):
    """Return the function that adds one instance of Ubuntu and changes its resource."""

    def add(stack):
        image = ec2.MachineImage.from_ssm_parameter(UBUNTU, os=ec2.OperatingSystemType.LINUX)
        instance = ec2.Instance(stack, "One", vpc=make_vpc(stack), instance_type=SMALL, machine_image=image)
        change(stack, instance)

    return add


def wait_for_signal(_stack, instance):
    """Let an instance wait for a signal."""
    signal = cdk.CfnResourceSignal(count=1, timeout="PT5M")
    instance.instance.cfn_options.creation_policy = cdk.CfnCreationPolicy(resource_signal=signal)


def use_foreign_group(stack, instance):
    """Give an instance a group of another VPC."""
    elsewhere = ec2.CfnVPC(stack, "Elsewhere", cidr_block="10.9.0.0/16")
    instance.instance.security_group_ids = [elsewhere.attr_default_security_group]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda _, one: one.instance.add_property_override("KeyName", "nobodys"),
            "The key pair 'nobodys' does not exist",
        ),
        (lambda _, one: one.instance.add_property_override("InstanceType", "t3.huge"), "Invalid value 't3.huge'"),
        (lambda _, one: one.instance.add_property_override("UserData", "A" * 22000), "User data is limited to 16384"),
        (
            lambda _, one: one.instance.add_property_override("AvailabilityZone", "us-east-1b"),
            "is in us-east-1a, not us-east-1b",
        ),
        (use_foreign_group, "belong to different networks."),
    ],
)
def test_a_launch_that_ec2_refuses_fails_the_resource_in_its_words(deploy_app, change, words):
    cloud = deploy_app(make_one(change))
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert words in outcome["reason"]
    assert cloud.seen("launched for") == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("InsufficientInstanceCapacity", "InsufficientInstanceCapacity: We currently do not have sufficient t3.micro"),
        ("Client.InternalError", "failed to stabilize. Current state: shutting-down. Reason: Client.InternalError: "),
    ],
)
def test_a_planted_launch_fault_strikes_a_single_instance(deploy_app, code, reason):
    cloud = deploy_app(make_one(lambda *_: None), faults=[{"code": code}])
    assert reason in cloud.end()["reason"]


def test_a_failure_signal_fails_the_instance_at_once_and_it_is_terminated(deploy_app):
    cloud = deploy_app(make_one(wait_for_signal))
    logical_id = find_logical_id(cloud, "One")
    instance = cloud.physical_id(logical_id)
    cloud.client("cloudformation").signal_resource(
        StackName="sample", LogicalResourceId=logical_id, UniqueId=instance, Status="FAILURE"
    )
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert outcome["reason"] == f"Received FAILURE signal with UniqueId {instance}"
    assert cloud.next(lambda line: line["kind"] == "power_off")["instance_id"] == instance


def test_an_instance_whose_machine_ends_is_stopped_and_not_replaced(deploy_app):
    cloud = deploy_app(make_one(lambda *_: None))
    instance = cloud.physical_id(find_logical_id(cloud, "One"))
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    assert cloud.command("fail_instance", instance_id=instance)
    assert not cloud.command("fail_instance", instance_id=instance)
    (described,) = cloud.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"]
    assert described["State"]["Name"] == "stopped"


def test_a_protected_instance_keeps_its_stack_from_being_deleted(deploy_app):
    cloud = deploy_app(make_one(lambda _, one: one.instance.add_property_override("DisableApiTermination", "true")))
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    cloud.client("cloudformation").delete_stack(StackName="sample")
    outcome = cloud.end()
    assert outcome["status"] == "DELETE_FAILED"
    (kept,) = [row for row in outcome["resources"] if row["resource_type"] == "AWS::EC2::Instance"]
    assert "may not be terminated" in kept["reason"]
