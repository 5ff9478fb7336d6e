"""Surroundings of an EMR cluster: security groups with EMR's rules, and encryption of its disks."""

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_emr as emr
from constructs import Construct

from deeplearning_cdk.network.security_rules import allow_ingress
from deeplearning_cdk.security.acknowledged_rules import acknowledge

LOG_PREFIX = "logs/"
LOG_DAYS = 90
_MANAGER_PORT, _INSTANCE_PORT = 9443, 8443


class EmrSecurityGroups(Construct):
    """
    Security groups that EMR manages, with the rules of a cluster in a private subnet.

    EMR adds the rules that it misses, and CloudFormation then cannot delete the groups, which name each other: so all
    are here, as EMR writes them (EMR management guide, "Working with Amazon EMR-managed security groups"). The groups
    belong to one cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        vpc: VPC of the cluster.

    Attributes:
        primary: Group of the primary instance.
        core: Group of the core instances.
        service: Group of EMR's interface in the private subnet.
    """

    def __init__(self, scope: Construct, construct_id: str, vpc: ec2.IVpc) -> None:
        super().__init__(scope, construct_id)
        self.primary = self._make_group("Primary", vpc, "Primary instance of a cluster on EMR")
        self.core = self._make_group("Core", vpc, "Core instances of a cluster on EMR")
        self.service = self._make_group("Service", vpc, "Service access of EMR to a cluster", is_open=False)
        manage = ec2.Port.tcp(_INSTANCE_PORT)
        for group in (self.primary, self.core):
            for name, members in (("Primary", self.primary), ("Core", self.core)):
                self._admit_members(group, name, members)
            allow_ingress(
                group,
                "FromService",
                group=group,
                members=self.service,
                port=manage,
                description="Cluster manager of EMR",
            )
            ec2.CfnSecurityGroupEgress(
                self.service,
                f"To{group.node.id}",
                group_id=self.service.security_group_id,
                destination_security_group_id=group.security_group_id,
                ip_protocol="tcp",
                from_port=_INSTANCE_PORT,
                to_port=_INSTANCE_PORT,
                description="Cluster manager of EMR",
            )
        allow_ingress(
            self.service,
            "FromPrimary",
            group=self.service,
            members=self.primary,
            port=ec2.Port.tcp(_MANAGER_PORT),
            description="Primary to the cluster manager of EMR",
        )

    def _make_group(self, name: str, vpc: ec2.IVpc, description: str, *, is_open: bool = True) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(self, name, vpc=vpc, description=description, allow_all_outbound=is_open)

    def _admit_members(self, group: ec2.SecurityGroup, name: str, members: ec2.SecurityGroup) -> None:
        # One rule a protocol, as EMR looks for them.
        for kind, port in (
            ("Tcp", ec2.Port.all_tcp()),
            ("Udp", ec2.Port.all_udp()),
            ("Icmp", ec2.Port.all_icmp()),
        ):
            description = f"Any {kind.upper()} from the {name.lower()} group"
            rule = allow_ingress(
                group, f"{kind}From{name}", group=group, members=members, port=port, description=description
            )
            acknowledge(rule, "member-traffic")


def encrypt_disks(scope: Construct, construct_id: str, key_arn: str) -> emr.CfnSecurityConfiguration:
    """
    Create the security configuration: all volumes and instance stores are encrypted, and metadata needs a token.

    Source: EMR management guide, "Create a security configuration".
    """
    disks = {"EncryptionKeyProviderType": "AwsKms", "AwsKmsKey": key_arn, "EnableEbsEncryption": True}
    return emr.CfnSecurityConfiguration(
        scope,
        construct_id,
        security_configuration={
            "EncryptionConfiguration": {
                "EnableInTransitEncryption": False,
                "EnableAtRestEncryption": True,
                "AtRestEncryptionConfiguration": {"LocalDiskEncryptionConfiguration": disks},
            },
            "InstanceMetadataServiceConfiguration": {
                "MinimumInstanceMetadataServiceVersion": 2,
                "HttpPutResponseHopLimit": 1,
            },
        },
    )
