"""Typical holes, each planted into a template or a stack, and the gates that must find it there."""

from dataclasses import dataclass

from tests.gates import planting
from tests.gates.acknowledgements import ACKNOWLEDGED
from tests.gates.planting import QUEUE_ARN, Alteration, Edit, add, add_policy, change
from tests.gates.process_gates import CHECKOV
from tests.gates.promises import PROMISES
from tests.gates.template_gates import LINT, NAG, REFEREES, VALIDATOR


@dataclass(frozen=True, kw_only=True)
class Hole:
    """
    Something that must not pass.

    Attributes:
        found_by: The rule by which each gate finds it, by gate.
        edit: Plants it into a template. Default: into the stack alone.
        alter: Plants it into a stack. Default: into the template alone.
        preset: Where it is planted. Default: the default preset.
    """

    found_by: dict[str, str]
    edit: Edit | None = None
    alter: Alteration | None = None
    preset: str = "default"


_NOTEBOOK = "AWS::SageMaker::NotebookInstance"
_LAUNCH = "AWS::EC2::LaunchTemplate"
_DATA = "Properties.LaunchTemplateData"
_EMR, _EMR_CONFIGURATION = "AWS::EMR::SecurityConfiguration", "Properties.SecurityConfiguration"
_EKS = "AWS::EKS::Cluster"
_EDIT_EVERYWHERE = {
    "PolicyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy",
    "AccessScope": {"Type": "cluster"},
}
_SSH = {"GroupId": "sg-1", "IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"}
_ADMINISTRATOR = ["arn:aws:iam::aws:policy/AdministratorAccess"]
_ANY_CLIENT = {"Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "elasticfilesystem:ClientMount"}]}

HOLES: dict[str, Hole] = {
    # What AWS refuses
    "a hop limit of 65": Hole(
        edit=change(_LAUNCH, f"{_DATA}.MetadataOptions.HttpPutResponseHopLimit", 65),
        found_by={REFEREES: "must be 1 to 64"},
    ),
    # Who gets in
    "ssh from everywhere": Hole(
        edit=add("AWS::EC2::SecurityGroupIngress", _SSH),
        alter=planting.open_ssh,
        found_by={
            PROMISES: "no_address_range_of_everyone_is_admitted",
            CHECKOV: "CKV_AWS_24",
            NAG: "AwsSolutions-EC23",
        },
    ),
    "subnet with public addresses": Hole(
        edit=change("AWS::EC2::Subnet", "Properties.MapPublicIpOnLaunch", value=True),
        found_by={PROMISES: "no_subnet_gives_public_addresses"},
    ),
    "public address on workers": Hole(
        edit=planting.give_workers_addresses,
        found_by={PROMISES: "workers_have_no_public_address", CHECKOV: "CKV_AWS_88"},
    ),
    "network without a flow log": Hole(
        edit=planting.remove("AWS::EC2::FlowLog"),
        alter=planting.forget("AWS::EC2::FlowLog"),
        found_by={PROMISES: "a_new_vpc_has_a_flow_log", NAG: "AwsSolutions-VPC7"},
    ),
    "metadata without a session token": Hole(
        edit=change(_LAUNCH, f"{_DATA}.MetadataOptions.HttpTokens", "optional"),
        found_by={PROMISES: "metadata_asks_for_a_session_token", CHECKOV: "CKV_AWS_79"},
    ),
    "metadata for what stands behind the instance": Hole(
        edit=change(_LAUNCH, f"{_DATA}.MetadataOptions.HttpPutResponseHopLimit", 2),
        found_by={PROMISES: "metadata_goes_no_further_than_the_instance"},
    ),
    "metadata of EMR without a session token": Hole(
        edit=change(_EMR, f"{_EMR_CONFIGURATION}.InstanceMetadataServiceConfiguration", {"HttpPutResponseHopLimit": 1}),
        preset="emr",
        found_by={PROMISES: "metadata_asks_for_a_session_token"},
    ),
    "metadata for pods": Hole(
        edit=change(_LAUNCH, f"{_DATA}.MetadataOptions.HttpPutResponseHopLimit", 2),
        preset="eks",
        found_by={PROMISES: "metadata_goes_no_further_than_the_instance"},
    ),
    "api server for everyone": Hole(
        edit=change(_EKS, "Properties.ResourcesVpcConfig.EndpointPublicAccess", value=True),
        alter=planting.open_api,
        preset="eks",
        found_by={PROMISES: "no_api_server_is_open_to_everyone", NAG: "AwsSolutions-EKS1"},
    ),
    "cluster for its creator": Hole(
        edit=change(_EKS, "Properties.AccessConfig.BootstrapClusterCreatorAdminPermissions", value=True),
        preset="eks",
        found_by={PROMISES: "nobody_administers_a_cluster_by_its_creation"},
    ),
    "whole cluster for a submitter": Hole(
        edit=add("AWS::EKS::AccessEntry", {"AccessPolicies": [_EDIT_EVERYWHERE]}),
        preset="eks",
        found_by={PROMISES: "only_administrators_have_access_to_a_whole_cluster"},
    ),
    "queue for everyone": Hole(
        edit=planting.let_everyone_send,
        found_by={PROMISES: "nobody_is_let_in_by_a_resource_policy"},
    ),
    "metadata of a notebook without a session token": Hole(
        edit=change(_NOTEBOOK, "Properties.InstanceMetadataServiceConfiguration", None),
        preset="sagemaker",
        found_by={PROMISES: "metadata_asks_for_a_session_token", CHECKOV: "CKV_AWS_371"},
    ),
    "notebook with a way of its own to the Internet": Hole(
        edit=change(_NOTEBOOK, "Properties.DirectInternetAccess", "Enabled"),
        preset="sagemaker",
        found_by={PROMISES: "notebooks_are_in_the_subnet_and_their_users_are_not_root"},
    ),
    "notebook whose user is root": Hole(
        edit=change(_NOTEBOOK, "Properties.RootAccess", "Enabled"),
        preset="sagemaker",
        found_by={PROMISES: "notebooks_are_in_the_subnet_and_their_users_are_not_root"},
    ),
    # What roles may do
    "wildcard action": Hole(
        edit=add_policy("sqs:*", QUEUE_ARN),
        alter=planting.allow("sqs:*", QUEUE_ARN),
        found_by={PROMISES: "no_action_has_a_wildcard", NAG: "AwsSolutions-IAM5[Action::sqs:*]"},
    ),
    "every resource for an action that has resources": Hole(
        edit=add_policy("sqs:ReceiveMessage", "*"),
        alter=planting.allow("sqs:ReceiveMessage", "*"),
        found_by={
            PROMISES: "only_actions_without_resources_name_all_resources",
            NAG: "AwsSolutions-IAM5[Resource::*]",
        },
    ),
    "every call to S3 on SageMaker": Hole(
        edit=add_policy("s3:*", "arn:aws:s3:::team-data/*"),
        preset="sagemaker",
        found_by={PROMISES: "no_action_has_a_wildcard"},
    ),
    "nodes that read a bucket": Hole(
        edit=planting.let_nodes_read,
        preset="eks",
        found_by={PROMISES: "nodes_of_eks_read_no_buckets"},
    ),
    "training jobs of any name": Hole(
        edit=planting.add_submitter("*", "VpcSubnets", "VpcSecurityGroupIds"),
        preset="sagemaker",
        found_by={PROMISES: "training_jobs_have_the_names_and_the_network_of_the_stack"},
    ),
    "training jobs in any network": Hole(
        edit=planting.add_submitter("0123abcd-*"),
        preset="sagemaker",
        found_by={PROMISES: "training_jobs_have_the_names_and_the_network_of_the_stack"},
    ),
    "policy inside a role": Hole(
        edit=add("AWS::IAM::Policy", {"PolicyName": "Planted", "PolicyDocument": {}}),
        alter=planting.make_inline_policy,
        found_by={PROMISES: "no_policy_stands_inside_a_role", NAG: "NIST.800.53.R5-IAMNoInlinePolicy"},
    ),
    "administrator": Hole(
        edit=change("AWS::IAM::Role", "Properties.ManagedPolicyArns", _ADMINISTRATOR),
        found_by={PROMISES: "no_role_has_a_policy_of_aws"},
    ),
    "role for another account": Hole(
        edit=planting.admit_to_role({"AWS": "arn:aws:iam::444455556666:root"}),
        found_by={PROMISES: "roles_are_taken_by_services_alone"},
    ),
    # What is encrypted
    "unencrypted queue": Hole(
        edit=change("AWS::SQS::Queue", "Properties.KmsMasterKeyId", None),
        found_by={PROMISES: "queues_are_encrypted_with_a_key", CHECKOV: "CKV_AWS_27"},
    ),
    "unencrypted topic": Hole(
        edit=change("AWS::SNS::Topic", "Properties.KmsMasterKeyId", None),
        found_by={PROMISES: "topics_are_encrypted_with_a_key", CHECKOV: "CKV_AWS_26"},
    ),
    "table without the key": Hole(
        edit=change("AWS::DynamoDB::Table", "Properties.SSESpecification", None),
        found_by={PROMISES: "tables_are_encrypted_with_a_key", CHECKOV: "CKV_AWS_119"},
    ),
    "unencrypted file system": Hole(
        edit=change("AWS::EFS::FileSystem", "Properties.Encrypted", value=False),
        found_by={PROMISES: "file_systems_are_encrypted_with_a_key", CHECKOV: "CKV_AWS_42"},
    ),
    "unencrypted volume": Hole(
        edit=change(_LAUNCH, f"{_DATA}.BlockDeviceMappings.0.Ebs.Encrypted", value=False),
        found_by={PROMISES: "volumes_are_encrypted_with_a_key"},
    ),
    "unencrypted volume of a notebook": Hole(
        edit=change(_NOTEBOOK, "Properties.KmsKeyId", None),
        preset="sagemaker",
        found_by={PROMISES: "volumes_are_encrypted_with_a_key", CHECKOV: "CKV_AWS_187"},
    ),
    "unencrypted volume of EMR": Hole(
        edit=change(_EMR, f"{_EMR_CONFIGURATION}.EncryptionConfiguration", {"EnableAtRestEncryption": False}),
        preset="emr",
        found_by={PROMISES: "volumes_are_encrypted_with_a_key"},
    ),
    "log bucket that a failed creation deletes": Hole(
        edit=change("AWS::S3::Bucket", "DeletionPolicy", "Delete"),
        preset="emr",
        found_by={PROMISES: "log_buckets_outlive_the_stack"},
    ),
    "unencrypted bucket of models": Hole(
        edit=change("AWS::S3::Bucket", "Properties.BucketEncryption", None),
        preset="sagemaker",
        found_by={PROMISES: "buckets_are_encrypted_with_a_key"},
    ),
    "bucket of models lost with the stack": Hole(
        edit=change("AWS::S3::Bucket", "DeletionPolicy", "Delete"),
        preset="sagemaker",
        found_by={PROMISES: "stateful_resources_outlive_the_stack"},
    ),
    "secrets of kubernetes without a key": Hole(
        edit=change(_EKS, "Properties.EncryptionConfig", None),
        preset="eks",
        found_by={PROMISES: "secrets_are_encrypted_with_a_key", CHECKOV: "CKV_AWS_58"},
    ),
    "unencrypted environment of a function": Hole(
        edit=change("AWS::Lambda::Function", "Properties.KmsKeyArn", None),
        found_by={PROMISES: "function_environments_are_encrypted_with_a_key", CHECKOV: "CKV_AWS_173"},
    ),
    "key that does not rotate": Hole(
        edit=change("AWS::KMS::Key", "Properties.EnableKeyRotation", value=False),
        found_by={PROMISES: "keys_rotate", CHECKOV: "CKV_AWS_7"},
    ),
    "queue that listens to plain http": Hole(
        edit=planting.allow_plain_http("AWS::SQS::QueuePolicy"),
        alter=planting.forget("AWS::SQS::QueuePolicy"),
        found_by={PROMISES: "queues_refuse_plain_http", NAG: "AwsSolutions-SQS4"},
    ),
    "topic that listens to plain http": Hole(
        edit=planting.allow_plain_http("AWS::SNS::TopicPolicy"),
        found_by={PROMISES: "topics_refuse_plain_http"},
    ),
    "bucket that listens to plain http": Hole(
        edit=add("AWS::S3::Bucket", {}), found_by={PROMISES: "buckets_refuse_plain_http", CHECKOV: "CKV_AWS_53"}
    ),
    "file system that listens to plain nfs": Hole(
        edit=change("AWS::EFS::FileSystem", "Properties.FileSystemPolicy", _ANY_CLIENT),
        found_by={PROMISES: "file_system_policies_refuse_plain_nfs"},
    ),
    # What stays
    "log without end": Hole(
        edit=change("AWS::Logs::LogGroup", "Properties.RetentionInDays", None),
        alter=planting.make_endless_log,
        found_by={
            PROMISES: "log_groups_forget_and_outlive_the_stack",
            CHECKOV: "CKV_AWS_66",
            NAG: "NIST.800.53.R5-CloudWatchLogGroupRetentionPeriod",
        },
    ),
    "file system lost with the stack": Hole(
        edit=change("AWS::EFS::FileSystem", "DeletionPolicy", "Delete"),
        found_by={PROMISES: "stateful_resources_outlive_the_stack"},
    ),
    "key lost while its file system is kept": Hole(
        edit=change("AWS::KMS::Key", "DeletionPolicy", "Delete"), found_by={PROMISES: "the_key_of_what_is_kept_is_kept"}
    ),
    "lustre lost with the stack": Hole(
        edit=change("AWS::FSx::FileSystem", "DeletionPolicy", "Delete"),
        preset="lustre-in-existing-vpc",
        found_by={PROMISES: "lustre_outlives_the_stack_where_its_subnet_does"},
    ),
    # What is kept when it cannot be delivered
    "subscription that drops messages": Hole(
        edit=change("AWS::SNS::Subscription", "Properties.RedrivePolicy", None),
        found_by={PROMISES: "what_a_topic_cannot_deliver_is_kept"},
    ),
    "rule that drops events": Hole(
        edit=change("AWS::Events::Rule", "Properties.Targets.0.DeadLetterConfig", None),
        found_by={PROMISES: "what_a_rule_cannot_deliver_is_kept"},
    ),
    # What a customer's key is for
    "log without the customer's key": Hole(
        edit=change("AWS::Logs::LogGroup", "Properties.KmsKeyId", None),
        preset="customer-key",
        found_by={PROMISES: "log_groups_are_encrypted_with_the_key", CHECKOV: "CKV_AWS_158"},
    ),
    "key beside the customer's": Hole(
        edit=add("AWS::KMS::Key", {"KeyPolicy": {}, "EnableKeyRotation": True}),
        preset="customer-key",
        found_by={PROMISES: "no_key_is_made"},
    ),
    # What is no template, and what hides a finding
    "unknown type": Hole(edit=change("AWS::SQS::Queue", "Type", "AWS::SQS::Qu"), found_by={LINT: "E3006"}),
    "unknown property": Hole(edit=add("AWS::SQS::Queue", {"Colour": "blue"}), found_by={LINT: "E3002"}),
    "unknown property in the app": Hole(alter=planting.misspell, found_by={VALIDATOR: "F3002"}),
    "acknowledgement of one's own": Hole(edit=planting.silence, found_by={ACKNOWLEDGED: "CKV_AWS_27"}),
}
