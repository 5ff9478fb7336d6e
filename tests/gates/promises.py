"""
Promises of this project about its templates: rows over the resources of a type, and functions for the rest.

In a path, `*` is each item of a list, or the one item that stands without a list. A name with a `?` may be missing;
any other name that is missing breaks the promise, and so does an empty list.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.gates.assembly import Assembly
from tests.gates.finding import Finding

PROMISES = "promises"

Check = Callable[[Any], bool]
Row = tuple[str, str, str, Check, str]
"""The promise's name, a type, the path in each resource, the check of the value there, and the message."""
Break = tuple[Sequence[str], str]
"""The path in the template, and the message."""

_MISSING = object()


@dataclass(frozen=True)
class Part:
    """
    A resource, or a value in one.

    Attributes:
        path: Where it is in the template.
        value: What is there.
    """

    path: Sequence[str]
    value: Any

    def find(self, path: str) -> "Iterator[Part]":
        """Yield the parts at a path; where it ends early, a part without a value."""
        step, _, rest = path.partition(".")
        name = step.removesuffix("?")
        if not path:
            yield self
        elif step == "*" and self.value == []:
            yield from Part(self.path, _MISSING).find(rest)
        elif step == "*" and isinstance(self.value, list):
            for index, item in enumerate(self.value):
                yield from Part([*self.path, str(index)], item).find(rest)
        elif step == "*":
            yield from self.find(rest)
        elif isinstance(self.value, dict) and name in self.value:
            yield from Part([*self.path, name], self.value[name]).find(rest)
        elif name == step:
            yield Part(self.path, _MISSING)

    def has(self, path: str, value: Any) -> bool:
        """Return whether a value is at a path."""
        return any(part.value == value for part in self.find(path))

    def must(self, path: str, check: Check, message: str) -> Iterator[Break]:
        """Yield the places where the value at a path fails a check."""
        return ((part.path, message) for part in self.find(path) if not check(part.value))


def check_promises(assembly: Assembly) -> list[Finding]:
    """Return where a template breaks a promise."""
    breaks = [
        (promise, found)
        for promise, kind, path, check, message in _choose_rows(assembly)
        for resource in _find(assembly, kind)
        for found in resource.must(path, check, message)
    ]
    breaks += [(promise.__name__, found) for promise in FUNCTIONS for found in promise(assembly)]
    return [
        Finding(
            gate=PROMISES,
            preset=assembly.preset,
            rule=promise,
            place=assembly.locate(path),
            what=message,
            more="tests/gates/promises.py",
        )
        for promise, (path, message) in breaks
    ]


def _choose_rows(assembly: Assembly) -> Iterator[Row]:
    yield from ROWS
    if "encryption_key" in assembly.context:
        yield from ROWS_WITH_A_CUSTOMER_KEY
    holders = _find(assembly, "AWS::EFS::FileSystem", "AWS::FSx::FileSystem", "AWS::Backup::BackupVault")
    if any(_is_retained(holder.value.get("DeletionPolicy")) for holder in holders):
        yield from ROWS_WITH_RETAINED_DATA
    if not any(_find(assembly, "AWS::EC2::VPC")):
        yield from ROWS_WITHOUT_A_VPC


def _find(assembly: Assembly, *kinds: str) -> Iterator[Part]:
    for logical_id, resource in assembly.template["Resources"].items():
        if resource["Type"] in kinds:
            yield Part(["Resources", logical_id], resource)


def _find_statements(assembly: Assembly, *kinds: str) -> Iterator[Part]:
    for policy in _find(assembly, *kinds):
        yield from policy.find("Properties.PolicyDocument.Statement.*")


def _exists(value: Any) -> bool:
    return value is not _MISSING


def _never(_: Any) -> bool:
    return False


def _is_true(value: Any) -> bool:
    return value is True


def _is_false(value: Any) -> bool:
    return value is False


def _is(*allowed: Any) -> Check:
    return lambda value: value in allowed


_is_retained = _is("Retain", "RetainExceptOnCreate")


def _is_narrow(cidr: Any) -> bool:
    return isinstance(cidr, str) and not cidr.endswith("/0")


def _is_named_in_full(action: Any) -> bool:
    return isinstance(action, str) and "*" not in action


def _names_somebody(principal: Any) -> bool:
    return isinstance(principal, dict) and not Part([], principal).has("AWS.*", "*")


def _has_key_for_environment(function: Any) -> bool:
    return "Environment" not in function or "KmsKeyArn" in function


def _keeps_logs(bucket: Any) -> bool:
    """Return whether a bucket whose objects expire, which are logs, outlives a creation that fails."""
    return "'ExpirationInDays'" not in str(bucket) or bucket.get("DeletionPolicy") == "Retain"


def _names_training_jobs(resource: Any) -> bool:
    """Return whether a resource is the training jobs whose names begin with the digest of a stack."""
    return re.search(r":training-job/[0-9a-f]{8}-\*['\"]", repr(resource)) is not None


def _is_not_of_s3(action: Any) -> bool:
    return isinstance(action, str) and not action.startswith("s3:")


def _names_who_reaches_it(network: Any) -> bool:
    """Return whether an API server has no public endpoint, or one for networks that are not everyone."""
    networks = network.get("PublicAccessCidrs", [])
    is_private = network.get("EndpointPublicAccess") is False
    return is_private or (bool(networks) and all(_is_narrow(each) for each in networks))


def _is_of_a_namespace(policy: Any) -> bool:
    """Return whether an access policy is for administrators, or limited to namespaces."""
    is_administrator = "/AmazonEKSClusterAdminPolicy'" in repr(policy["PolicyArn"])
    return is_administrator or bool(policy["AccessScope"].get("Namespaces"))


def _is_about_plain_traffic(statement: Part) -> bool:
    return statement.has("Condition.Bool.aws:SecureTransport", "false")


def _refuses_plain_nfs(policy: Any) -> bool:
    return any(_is_about_plain_traffic(statement) for statement in Part([], policy).find("Statement.*"))


_LAUNCH = "AWS::EC2::LaunchTemplate"
_METADATA = "Properties.LaunchTemplateData.MetadataOptions"
_VOLUME = "Properties.LaunchTemplateData.BlockDeviceMappings.*.Ebs"
_TRUSTED = "Properties.AssumeRolePolicyDocument.Statement.*.Principal"
_EMR_SECURITY = "AWS::EMR::SecurityConfiguration"
_EMR_METADATA = "Properties.SecurityConfiguration.InstanceMetadataServiceConfiguration"
_EMR_DISKS = (
    "Properties.SecurityConfiguration.EncryptionConfiguration.AtRestEncryptionConfiguration"
    ".LocalDiskEncryptionConfiguration"
)
_NOTEBOOK = "AWS::SageMaker::NotebookInstance"
_EKS, _NODE_GROUP = "AWS::EKS::Cluster", "AWS::EKS::Nodegroup"
_ADMITS_EVERYONE = "no security group may admit everyone; name a network or a security group"
_IS_INSIDE = "a role must have managed policies of its own, none inside; make a ManagedPolicy"
_LOSES_DATA = "what holds data must not be lost with the stack; retain it"
_REPLACES_DATA = "what holds data must not be lost when it is replaced; retain it"
_LOSES_KEY = "data that is kept must keep its key; retain it"

ROWS: Sequence[Row] = [
    # Who may reach the nodes
    ("no_address_range_of_everyone_is_admitted", "AWS::EC2::SecurityGroupIngress", "Properties.CidrIp?",
     _is_narrow, _ADMITS_EVERYONE),
    ("no_address_range_of_everyone_is_admitted", "AWS::EC2::SecurityGroupIngress", "Properties.CidrIpv6?",
     _is_narrow, _ADMITS_EVERYONE),
    ("no_address_range_of_everyone_is_admitted", "AWS::EC2::SecurityGroup",
     "Properties?.SecurityGroupIngress?.*.CidrIp?", _is_narrow, _ADMITS_EVERYONE),
    ("no_address_range_of_everyone_is_admitted", "AWS::EC2::SecurityGroup",
     "Properties?.SecurityGroupIngress?.*.CidrIpv6?", _is_narrow, _ADMITS_EVERYONE),
    ("no_subnet_gives_public_addresses", "AWS::EC2::Subnet", "Properties.MapPublicIpOnLaunch?", _is_false,
     "no subnet may give public addresses by itself; ask for one where it is needed"),
    ("metadata_asks_for_a_session_token", _LAUNCH, f"{_METADATA}.HttpTokens", _is("required"),
     "instance metadata must ask for a token (IMDSv2); set HttpTokens to required"),
    ("metadata_goes_no_further_than_the_instance", _LAUNCH, f"{_METADATA}.HttpPutResponseHopLimit", _is(1),
     "metadata must not reach what stands behind the instance; set the hop limit to 1"),
    ("metadata_asks_for_a_session_token", _EMR_SECURITY, f"{_EMR_METADATA}.MinimumInstanceMetadataServiceVersion",
     _is(2), "instance metadata must ask for a token (IMDSv2); set the version to 2"),
    ("metadata_goes_no_further_than_the_instance", _EMR_SECURITY, f"{_EMR_METADATA}.HttpPutResponseHopLimit", _is(1),
     "metadata must not reach what stands behind the instance; set the hop limit to 1"),
    ("metadata_asks_for_a_session_token", _NOTEBOOK,
     "Properties.InstanceMetadataServiceConfiguration.MinimumInstanceMetadataServiceVersion", _is("2"),
     "instance metadata must ask for a token (IMDSv2); set the version to 2"),
    ("notebooks_are_in_the_subnet_and_their_users_are_not_root", _NOTEBOOK, "Properties.DirectInternetAccess",
     _is("Disabled"), "a notebook must use the network of the stack alone; disable DirectInternetAccess"),
    ("notebooks_are_in_the_subnet_and_their_users_are_not_root", _NOTEBOOK, "Properties.RootAccess",
     _is("Disabled"), "the user of a notebook must not be root; disable RootAccess"),
    ("no_api_server_is_open_to_everyone", _EKS, "Properties.ResourcesVpcConfig", _names_who_reaches_it,
     "an API server must be reached from the VPC, or from named networks alone; set PublicAccessCidrs"),
    ("nobody_administers_a_cluster_by_its_creation", _EKS,
     "Properties.AccessConfig.BootstrapClusterCreatorAdminPermissions", _is_false,
     "whoever creates a cluster must not administer it by that; name administrators"),
    ("only_administrators_have_access_to_a_whole_cluster", "AWS::EKS::AccessEntry", "Properties.AccessPolicies.*",
     _is_of_a_namespace, "only an administrator may have access to a whole cluster; name the namespace"),
    # What roles may do
    ("no_policy_stands_inside_a_role", "AWS::IAM::Role", "Properties?.Policies?", _never, _IS_INSIDE),
    ("no_policy_stands_inside_a_role", "AWS::IAM::Policy", "Type", _never, _IS_INSIDE),
    ("no_role_has_a_policy_of_aws", "AWS::IAM::Role", "Properties?.ManagedPolicyArns?.*.Ref", _exists,
     "a role must have policies of the stack alone, whose actions can be read here; write the statements"),
    ("roles_are_taken_by_services_alone", "AWS::IAM::Role", f"{_TRUSTED}.Service", _exists,
     "a role of the cluster must be for one AWS service; name it"),
    ("roles_are_taken_by_services_alone", "AWS::IAM::Role", f"{_TRUSTED}.AWS?", _never,
     "a role of the cluster must not be for other accounts"),
    # What is encrypted
    ("queues_are_encrypted_with_a_key", "AWS::SQS::Queue", "Properties.KmsMasterKeyId", _exists,
     "every queue must be encrypted with the cluster's key; set KmsMasterKeyId"),
    ("topics_are_encrypted_with_a_key", "AWS::SNS::Topic", "Properties.KmsMasterKeyId", _exists,
     "every topic must be encrypted with the cluster's key; set KmsMasterKeyId"),
    ("tables_are_encrypted_with_a_key", "AWS::DynamoDB::Table", "Properties.SSESpecification.SSEEnabled", _is_true,
     "every table must be encrypted; set SSESpecification"),
    ("tables_are_encrypted_with_a_key", "AWS::DynamoDB::Table", "Properties.SSESpecification.KMSMasterKeyId", _exists,
     "every table must be encrypted with the cluster's key; set KMSMasterKeyId"),
    ("file_systems_are_encrypted_with_a_key", "AWS::EFS::FileSystem", "Properties.Encrypted", _is_true,
     "every file system must be encrypted; set Encrypted"),
    ("file_systems_are_encrypted_with_a_key", "AWS::EFS::FileSystem", "Properties.KmsKeyId", _exists,
     "every file system must be encrypted with the cluster's key; set KmsKeyId"),
    ("file_systems_are_encrypted_with_a_key", "AWS::FSx::FileSystem", "Properties.KmsKeyId", _exists,
     "every file system must be encrypted with the cluster's key; set KmsKeyId"),
    ("file_systems_are_encrypted_with_a_key", "AWS::Backup::BackupVault", "Properties.EncryptionKeyArn", _exists,
     "every backup vault must be encrypted with the cluster's key; set EncryptionKeyArn"),
    ("volumes_are_encrypted_with_a_key", _LAUNCH, f"{_VOLUME}.Encrypted", _is_true,
     "every volume must be encrypted; set Encrypted"),
    ("volumes_are_encrypted_with_a_key", _LAUNCH, f"{_VOLUME}.KmsKeyId", _exists,
     "every volume must be encrypted with the cluster's key; set KmsKeyId"),
    ("volumes_are_encrypted_with_a_key", _NOTEBOOK, "Properties.KmsKeyId", _exists,
     "every volume must be encrypted with the cluster's key; set KmsKeyId"),
    ("volumes_are_encrypted_with_a_key", _EMR_SECURITY, f"{_EMR_DISKS}.EnableEbsEncryption", _is_true,
     "every volume must be encrypted; set EnableEbsEncryption"),
    ("volumes_are_encrypted_with_a_key", _EMR_SECURITY, f"{_EMR_DISKS}.AwsKmsKey", _exists,
     "every volume must be encrypted with the cluster's key; set AwsKmsKey"),
    ("buckets_are_encrypted_with_a_key", "AWS::S3::Bucket",
     "Properties?.BucketEncryption.ServerSideEncryptionConfiguration.*.ServerSideEncryptionByDefault.KMSMasterKeyID",
     _exists, "every bucket must be encrypted with the cluster's key; set KMSMasterKeyID"),
    ("function_environments_are_encrypted_with_a_key", "AWS::Lambda::Function", "Properties?", _has_key_for_environment,
     "a function's environment must be encrypted with the cluster's key; set KmsKeyArn"),
    ("secrets_are_encrypted_with_a_key", _EKS, "Properties.EncryptionConfig.*.Provider.KeyArn", _exists,
     "the secrets of a cluster must be encrypted with its key; set EncryptionConfig"),
    ("keys_rotate", "AWS::KMS::Key", "Properties.EnableKeyRotation", _is_true,
     "a key of the stack's own must rotate; set EnableKeyRotation"),
    ("file_system_policies_refuse_plain_nfs", "AWS::EFS::FileSystem", "Properties?.FileSystemPolicy?",
     _refuses_plain_nfs, "a file system's policy must deny clients without TLS"),
    # What stays
    ("log_groups_forget_and_outlive_the_stack", "AWS::Logs::LogGroup", "Properties.RetentionInDays", _exists,
     "a log group must forget; set its retention"),
    ("log_groups_forget_and_outlive_the_stack", "AWS::Logs::LogGroup", "DeletionPolicy", _is("Retain"),
     "a log group must outlive a creation that failed, since it says why; retain it"),
    ("log_groups_forget_and_outlive_the_stack", "AWS::Logs::LogGroup", "UpdateReplacePolicy", _is("Retain"),
     "a log group must outlive its replacement; retain it"),
    ("stateful_resources_outlive_the_stack", "AWS::EFS::FileSystem", "DeletionPolicy", _is_retained, _LOSES_DATA),
    ("stateful_resources_outlive_the_stack", "AWS::EFS::FileSystem", "UpdateReplacePolicy", _is("Retain"),
     _REPLACES_DATA),
    ("stateful_resources_outlive_the_stack", "AWS::Backup::BackupVault", "DeletionPolicy", _is_retained, _LOSES_DATA),
    ("stateful_resources_outlive_the_stack", "AWS::Backup::BackupVault", "UpdateReplacePolicy", _is("Retain"),
     _REPLACES_DATA),
    ("stateful_resources_outlive_the_stack", "AWS::S3::Bucket", "DeletionPolicy", _is_retained, _LOSES_DATA),
    ("stateful_resources_outlive_the_stack", "AWS::S3::Bucket", "UpdateReplacePolicy", _is("Retain"), _REPLACES_DATA),
    ("log_buckets_outlive_the_stack", "AWS::S3::Bucket", "", _keeps_logs,
     "a log bucket must outlive a creation that failed, since it says why; retain it"),
    # What is kept when it cannot be delivered. The pack ServerlessChecks of cdk-nag is not run: it asks for a redrive
    # of the dead-letter queue itself, too, and for traces of functions that a timer wakes once a minute.
    ("what_a_topic_cannot_deliver_is_kept", "AWS::SNS::Subscription", "Properties.RedrivePolicy.deadLetterTargetArn",
     _exists, "a message that cannot be delivered must be kept; give the subscription a dead-letter queue"),
    ("what_a_rule_cannot_deliver_is_kept", "AWS::Events::Rule", "Properties.Targets.*.DeadLetterConfig.Arn", _exists,
     "an event that cannot be delivered must be kept; give the target a dead-letter queue"),
]  # fmt: skip
ROWS_WITH_A_CUSTOMER_KEY: Sequence[Row] = [
    ("log_groups_are_encrypted_with_the_key", "AWS::Logs::LogGroup", "Properties.KmsKeyId", _exists,
     "every log group must be encrypted with the customer's key; set KmsKeyId"),
    ("no_key_is_made", "AWS::KMS::Key", "Type", _never, "a customer's key must be used for everything; make none"),
]  # fmt: skip
ROWS_WITH_RETAINED_DATA: Sequence[Row] = [
    ("the_key_of_what_is_kept_is_kept", "AWS::KMS::Key", "DeletionPolicy", _is_retained, _LOSES_KEY),
    ("the_key_of_what_is_kept_is_kept", "AWS::KMS::Key", "UpdateReplacePolicy", _is("Retain"), _LOSES_KEY),
]
# FSx for Lustre stands in a subnet: in a VPC of the stack's own it would keep the VPC from being deleted.
ROWS_WITHOUT_A_VPC: Sequence[Row] = [
    ("lustre_outlives_the_stack_where_its_subnet_does", "AWS::FSx::FileSystem", "DeletionPolicy", _is_retained,
     _LOSES_DATA),
    ("lustre_outlives_the_stack_where_its_subnet_does", "AWS::FSx::FileSystem", "UpdateReplacePolicy", _is("Retain"),
     _REPLACES_DATA),
]  # fmt: skip
# The actions that take no resource in AWS's own reference of actions, resources and condition keys.
_ACTIONS_WITHOUT_RESOURCES = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeInstanceRefreshes",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeWarmPool",
    "cloudwatch:PutMetricData",
    "ec2:DescribeAccountAttributes",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTopology",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeNetworkAcls",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeTags",
    "ec2:DescribeVolumeStatus",
    "ec2:DescribeVolumes",
    "ec2:DescribeVpcEndpoints",
    "ec2:DescribeVpcs",
    "ecr:GetAuthorizationToken",
    "sagemaker:ListTrainingJobs",
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
    "tag:GetResources",
)


def no_action_has_a_wildcard(assembly: Assembly) -> Iterator[Break]:
    """Check the actions that policies allow."""
    for statement in _find_statements(assembly, "AWS::IAM::ManagedPolicy"):
        if not statement.has("Effect", "Deny"):
            message = "an action must be named in full; list the actions"
            yield from statement.must("Action.*", _is_named_in_full, message)
            message = "a statement must say what it allows, not what it leaves out"
            yield from statement.must("NotAction?", _never, message)


def only_actions_without_resources_name_all_resources(assembly: Assembly) -> Iterator[Break]:
    """Check the resources of policies."""
    for statement in _find_statements(assembly, "AWS::IAM::ManagedPolicy"):
        if not statement.has("Effect", "Deny") and statement.has("Resource.*", "*"):
            message = "this action takes a resource; name it instead of *"
            yield from statement.must("Action.*", _is(*_ACTIONS_WITHOUT_RESOURCES), message)
        message = "a statement must name its resources, not those that it leaves out"
        yield from statement.must("NotResource?", _never, message)


def training_jobs_have_the_names_and_the_network_of_the_stack(assembly: Assembly) -> Iterator[Break]:
    """Check who may start training jobs; the condition keys must be present, since `ForAllValues` matches without."""
    for statement in _find_statements(assembly, "AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"):
        if statement.has("Action.*", "sagemaker:CreateTrainingJob"):
            message = "training jobs must have names of the stack; name the prefix"
            yield from statement.must("Resource.*", _names_training_jobs, message)
            for key in ("sagemaker:VpcSubnets", "sagemaker:VpcSecurityGroupIds", "sagemaker:InstanceTypes"):
                message = f"training jobs must have the network and the type of the stack; limit {key}"
                yield from statement.must(f"Condition.ForAllValues:StringEquals.{key}", _exists, message)
                yield from statement.must(f"Condition.Null.{key}", _is("false"), message)


def nobody_is_let_in_by_a_resource_policy(assembly: Assembly) -> Iterator[Break]:
    """Check whom the policies of queues, topics and buckets let in."""
    kinds = ("AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy")
    for statement in _find_statements(assembly, *kinds):
        if not statement.has("Effect", "Deny"):
            yield from statement.must("Principal", _names_somebody, "a policy must name whom it lets in")


def nodes_of_eks_read_no_buckets(assembly: Assembly) -> Iterator[Break]:
    """Check the policies of the role of node groups, which every pod that reaches the metadata would have."""
    roles = {
        part.value for group in _find(assembly, _NODE_GROUP) for part in group.find("Properties.NodeRole.Fn::GetAtt.*")
    }
    for policy in _find(assembly, "AWS::IAM::ManagedPolicy"):
        if any(part.value in roles for part in policy.find("Properties.Roles?.*.Ref")):
            message = "nodes must not call S3, since the role of jobs does; take it from their policy"
            yield from policy.must("Properties.PolicyDocument.Statement.*.Action.*", _is_not_of_s3, message)


def workers_have_no_public_address(assembly: Assembly) -> Iterator[Break]:
    """Check the launch templates of the groups that are tagged as workers."""
    launches = {launch.path[1]: launch for launch in _find(assembly, _LAUNCH)}
    path = "Properties.LaunchTemplateData.NetworkInterfaces.*.AssociatePublicIpAddress?"
    for group in _find(assembly, "AWS::AutoScaling::AutoScalingGroup"):
        for used in group.find("Properties.LaunchTemplate.LaunchTemplateId.Ref"):
            if group.has("Properties.Tags.*.Value", "worker"):
                launch = launches.get(used.value, Part(used.path, _MISSING))
                yield from launch.must(path, _is_false, "workers must have no public address; leave it out")


def a_new_vpc_has_a_flow_log(assembly: Assembly) -> Iterator[Break]:
    """Check that what each VPC refuses is recorded."""
    recorded = [
        part.value
        for log in _find(assembly, "AWS::EC2::FlowLog")
        if log.has("Properties.ResourceType", "VPC")
        and (log.has("Properties.TrafficType", "ALL") or log.has("Properties.TrafficType", "REJECT"))
        for part in log.find("Properties.ResourceId.Ref")
    ]
    for vpc in _find(assembly, "AWS::EC2::VPC"):
        if vpc.path[1] not in recorded:
            yield vpc.path, "a VPC of the stack's own must have a flow log; add one"


def queues_refuse_plain_http(assembly: Assembly) -> Iterator[Break]:
    """Check that each queue has a policy against plain HTTP."""
    message = "every queue must have a policy that denies sqs:* without TLS; enforce SSL"
    return _refuse_plain_http(assembly, "AWS::SQS::Queue", "Queues.*", message, "sqs:*")


def topics_refuse_plain_http(assembly: Assembly) -> Iterator[Break]:
    """Check that each topic has a policy against plain HTTP."""
    message = "every topic must have a policy that denies publishing without TLS; enforce SSL"
    return _refuse_plain_http(assembly, "AWS::SNS::Topic", "Topics.*", message)


def buckets_refuse_plain_http(assembly: Assembly) -> Iterator[Break]:
    """Check that each bucket has a policy against plain HTTP."""
    message = "every bucket must have a policy that denies s3:* without TLS; enforce SSL"
    return _refuse_plain_http(assembly, "AWS::S3::Bucket", "Bucket", message, "s3:*")


def _refuse_plain_http(assembly: Assembly, kind: str, named: str, message: str, action: str = "") -> Iterator[Break]:
    resources = list(_find(assembly, kind))
    refused = []
    for policy in _find(assembly, f"{kind}Policy") if resources else ():
        statements = policy.find("Properties.PolicyDocument.Statement.*")
        denials = [statement for statement in statements if _is_about_plain_traffic(statement)]
        refused += [part.value for part in policy.find(f"Properties.{named}.Ref") if denials]
        for denial in denials:
            yield from denial.must("Effect", _is("Deny"), "what comes by plain HTTP must be denied")
            if action:
                yield from denial.must("Action", _is(action), "a denial of plain HTTP must deny every action")
    for resource in resources:
        if resource.path[1] not in refused:
            yield resource.path, message


FUNCTIONS: Sequence[Callable[[Assembly], Iterator[Break]]] = [
    no_action_has_a_wildcard,
    only_actions_without_resources_name_all_resources,
    training_jobs_have_the_names_and_the_network_of_the_stack,
    nobody_is_let_in_by_a_resource_policy,
    nodes_of_eks_read_no_buckets,
    workers_have_no_public_address,
    a_new_vpc_has_a_flow_log,
    queues_refuse_plain_http,
    topics_refuse_plain_http,
    buckets_refuse_plain_http,
]
NAMES = frozenset(
    [row[0] for row in (*ROWS, *ROWS_WITH_A_CUSTOMER_KEY, *ROWS_WITH_RETAINED_DATA, *ROWS_WITHOUT_A_VPC)]
    + [function.__name__ for function in FUNCTIONS]
)
