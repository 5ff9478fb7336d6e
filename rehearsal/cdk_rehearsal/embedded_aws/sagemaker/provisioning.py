"""
What SageMaker does for a training job as its execution role, decided by the deployed policies.

SageMaker developer guide, "How to use SageMaker AI execution roles", section "CreateTrainingJob API: Execution Role
Permissions", and "Give SageMaker AI Training Jobs Access to Resources in Your Amazon VPC".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.access.gatekeeper import Gatekeeper
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault, find_fault
from cdk_rehearsal.embedded_aws.base.principals import Principal, PrincipalRegistry
from cdk_rehearsal.embedded_aws.ec2.launcher import InstanceLauncher
from cdk_rehearsal.embedded_aws.ec2.reachability import ANY, find_ways_out, opens
from cdk_rehearsal.embedded_aws.file_systems import find_mount_targets
from cdk_rehearsal.embedded_aws.sagemaker.host import FileSystemMount
from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob
from cdk_rehearsal.place import Place

SERVICE = "sagemaker.amazonaws.com"
KIND = "training"
"""Kind of the containers and of SageMaker itself in counts of calls."""
INPUT = "/opt/ml/input"
_NFS_PORT = 2049
_ECR = re.compile(r"[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.[a-z.]+/(?P<name>[^:@]+)")
_QUOTA = "ResourceLimitExceeded"
_NO_CAPACITY = "InsufficientInstanceCapacity"


class ResourceLimitError(Exception):
    """A quota refuses the job."""


class TrainingError(Exception):
    """The job fails, with a reason in the words of SageMaker."""


@dataclass(frozen=True)
class Interface:
    """Network interface of a container in the user's subnet."""

    interface_id: str
    address: str
    prefix_length: int


class TrainingProvisioner:
    """Makes what a job needs; `faults` are those of launches."""

    def __init__(
        self,
        place: Place,
        gatekeeper: Gatekeeper,
        principals: PrincipalRegistry,
        launcher: InstanceLauncher,
        faults: Sequence[LaunchFault],
    ) -> None:
        self._place, self._gatekeeper, self._principals = place, gatekeeper, principals
        self._launcher, self._faults = launcher, faults
        self._jobs = 0

    def check_sources(self, request: Mapping[str, Any]) -> None:
        """
        Raise for what SageMaker refuses at the call: ValueError for a source, ResourceLimitError for a quota.

        An empty prefix is refused at once (aws/amazon-sagemaker-examples#2267).
        """
        self._jobs += 1
        resources = request["ResourceConfig"]
        if self._find_fault(_QUOTA) is not None:
            count = int(resources["InstanceCount"])
            raise ResourceLimitError(
                f"The account-level service limit '{resources['InstanceType']} for training job usage' is 0 Instances, "
                f"with current utilization of 0 Instances and a request delta of {count} Instances. Please use AWS "
                "Service Quotas to request an increase for this quota."
            )
        for channel in request.get("InputDataConfig", []):
            source = channel["DataSource"]
            if "S3DataSource" in source:
                self._check_prefix(str(source["S3DataSource"]["S3Uri"]))
            else:
                self._check_file_system(source["FileSystemDataSource"])

    def require_capacity(self, job: TrainingJob) -> None:
        """Raise TrainingError where AWS has no capacity (comic/grand-challenge.org#2631)."""
        if self._find_fault(_NO_CAPACITY) is not None:
            kind = job.request["ResourceConfig"]["InstanceType"]
            raise TrainingError(
                "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML "
                f"instance type than {kind}."
            )

    def check_network(self, job: TrainingJob) -> None:
        """Raise TrainingError where the containers cannot reach S3 or a file system."""
        if not job.request.get("VpcConfig"):
            return
        ec2, subnet_id = self._place.client("ec2"), self._subnet(job)
        subnet = ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]
        if not find_ways_out(ec2, subnet_id, subnet["VpcId"]):
            # aws/amazon-sagemaker-operator-for-k8s#22
            raise TrainingError(
                "ClientError: Artifact upload failed:Please ensure that the subnet's route table has a route to an S3 "
                "VPC endpoint or a NAT device, and both the security groups and the subnet's network ACL allow "
                "outbound traffic to S3."
            )
        targets = find_mount_targets(self._place, subnet["AvailabilityZone"])
        for mount in self.list_mounts(job):
            if mount.file_system_id not in targets and not self._is_lustre(mount.file_system_id):
                raise TrainingError(
                    f"ClientError: Unable to mount file system {mount.file_system_id}: it has no mount target in "
                    f"availability zone {subnet['AvailabilityZone']}."
                )
            if not self._admits_nfs(job, mount.file_system_id):
                raise TrainingError(
                    f"ClientError: Unable to mount file system {mount.file_system_id}: Connection timed out. Please "
                    "ensure that the security groups of the file system and of the job allow NFS traffic on port 2049."
                )

    def are_reachable(self, job: TrainingJob) -> bool:
        """Return whether the security groups let the containers of a job reach each other on every port."""
        groups = self._groups(job)
        return any(
            rule["IpProtocol"] == ANY and any(pair["GroupId"] in groups for pair in rule.get("UserIdGroupPairs", []))
            for rule in self._list_rules(groups)
        )

    def make_interfaces(self, job: TrainingJob, count: int) -> list[Interface]:
        """Make an interface for each container in the first subnet; TrainingError where the role may not."""
        ec2, subnet_id, groups = self._place.client("ec2"), self._subnet(job), self._groups(job)
        site = {"SubnetId": subnet_id, "SecurityGroupIds": groups, "Tags": {}}
        for name in ("DescribeSubnets", "DescribeVpcs", "DescribeSecurityGroups", "DescribeDhcpOptions"):
            self._require(job, f"ec2.{name}", {})
        self._require(job, "ec2.CreateNetworkInterface", site)
        network = ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]["CidrBlock"]
        made = []
        for _ in range(count):
            address = self._launcher.free_address(subnet_id)
            answer = ec2.create_network_interface(SubnetId=subnet_id, Groups=groups, PrivateIpAddress=address)
            name = answer["NetworkInterface"]["NetworkInterfaceId"]
            made.append(Interface(name, address, int(network.partition("/")[2])))
            interface = {"NetworkInterfaceId": name, "SubnetId": subnet_id}
            self._require(job, "ec2.CreateNetworkInterfacePermission", interface)
        self._require(job, "ec2.DescribeNetworkInterfaces", {})
        return made

    def remove_interfaces(self, job: TrainingJob, interfaces: Iterable[Interface]) -> None:
        """Remove the interfaces; those that the role may not remove stay, as on AWS."""
        for each in interfaces:
            interface = {"NetworkInterfaceId": each.interface_id, "SubnetId": self._subnet(job)}
            for name in ("DeleteNetworkInterfacePermission", "DeleteNetworkInterface"):
                if self._find_denial(job, f"ec2.{name}", interface):
                    return
            self._place.client("ec2").delete_network_interface(NetworkInterfaceId=each.interface_id)

    def require_image(self, job: TrainingJob) -> None:
        """Raise TrainingError where the role may not pull an image in ECR."""
        if found := _ECR.match(str(job.request["AlgorithmSpecification"]["TrainingImage"])):
            self._require(job, "ecr.GetAuthorizationToken", {})
            for name in ("BatchCheckLayerAvailability", "GetDownloadUrlForLayer", "BatchGetImage"):
                self._require(job, f"ecr.{name}", {"repositoryName": found["name"]})

    def require_volume(self, job: TrainingJob) -> None:
        """Raise TrainingError where the role may not encrypt the volumes with the job's key."""
        if key := job.request["ResourceConfig"].get("VolumeKmsKeyId"):
            self._require(job, "kms.CreateGrant", {"KeyId": key, "GrantIsForAWSResource": "true"})

    def client(self, job: TrainingJob, service: str) -> Any:
        """Return a client of a service as the role of a job."""
        credentials = self._principals.mint(self._place, role_arn=job.role, session="SageMaker", kind=KIND)
        return self._place.client_as(service, credentials)

    def mint(self, job: TrainingJob) -> Mapping[str, str]:
        """Return the answer of the credentials service of a job's containers."""
        made = self._principals.mint(self._place, role_arn=job.role, session="SageMaker", kind=KIND)
        return {
            "RoleArn": job.role,
            "AccessKeyId": made.access_key_id,
            "SecretAccessKey": made.secret_access_key,
            "Token": made.session_token,
            "Expiration": "2099-01-01T00:00:00Z",
        }

    def download(self, job: TrainingJob) -> dict[str, bytes]:
        """Return the files of the S3 channels, path -> content; TrainingError where the role may not read one."""
        files: dict[str, bytes] = {}
        s3 = self.client(job, "s3")
        for channel in job.request.get("InputDataConfig", []):
            if (source := channel["DataSource"].get("S3DataSource")) is None:
                continue
            bucket, _, prefix = str(source["S3Uri"]).removeprefix("s3://").partition("/")
            try:
                pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
                keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
                for key in (key for key in keys if not key.endswith("/")):
                    relative = key.removeprefix(prefix.rpartition("/")[0]).lstrip("/")
                    content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                    files[f"{INPUT}/data/{channel['ChannelName']}/{relative}"] = content
            except ClientError as error:
                raise TrainingError(
                    f"ClientError: Data download failed: {error.response['Error']['Message']} (s3://{bucket}/{prefix})"
                ) from error
        return files

    def list_mounts(self, job: TrainingJob) -> list[FileSystemMount]:
        """Return the file systems of a job's channels; the path on FSx for Lustre begins with its mount name."""
        mounts = []
        for channel in job.request.get("InputDataConfig", []):
            if source := channel["DataSource"].get("FileSystemDataSource"):
                is_lustre = source["FileSystemType"] == "FSxLustre"
                path = str(source["DirectoryPath"])
                mounts.append(
                    FileSystemMount(
                        str(source["FileSystemId"]),
                        f"/{path.lstrip('/').partition('/')[2]}" if is_lustre else path,
                        f"{INPUT}/data/{channel['ChannelName']}",
                        is_writable=source["FileSystemAccessMode"] == "rw",
                    )
                )
        return mounts

    def _find_fault(self, code: str) -> LaunchFault | None:
        fault = find_fault(self._faults, tags={}, group="", ordinal=self._jobs)
        return fault if fault is not None and fault.code == code else None

    def _check_prefix(self, uri: str) -> None:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        s3 = self._place.client("s3")
        try:
            region = s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] or "us-east-1"
            found = s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1).get("KeyCount", 0)
        except ClientError as error:
            raise ValueError(f"{error.response['Error']['Message']} (S3 URL {uri})") from error
        if region != self._place.region:
            raise ValueError(f"The S3 bucket {bucket} must be in the region {self._place.region}, it is in {region}")
        if not found:
            raise ValueError(
                f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the bucket '
                "exists in the selected region, that objects exist under that S3 prefix, and that the role has "
                '"s3:ListBucket" permissions on the bucket.'
            )

    def _check_file_system(self, source: Mapping[str, Any]) -> None:
        name = str(source["FileSystemId"])
        if source["FileSystemType"] == "FSxLustre":
            if not self._is_lustre(name):
                raise ValueError(f"File system {name} does not exist.")
            return
        found = self._place.client("efs").describe_file_systems()["FileSystems"]
        state = next((each["LifeCycleState"] for each in found if each["FileSystemId"] == name), "")
        if state != "available":
            raise ValueError(f"File system {name} must be available, it is {state or 'absent'}.")

    def _is_lustre(self, name: str) -> bool:
        found = self._place.client("fsx").describe_file_systems()["FileSystems"]
        return any(each["FileSystemId"] == name for each in found)

    def _admits_nfs(self, job: TrainingJob, file_system_id: str) -> bool:
        if self._is_lustre(file_system_id):
            return True
        efs = self._place.client("efs")
        targets = efs.describe_mount_targets(FileSystemId=file_system_id)["MountTargets"]
        names = {
            name
            for target in targets
            for name in efs.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])[
                "SecurityGroups"
            ]
        }
        rules = self._list_rules(sorted(names))
        return any(opens(rule, _NFS_PORT, group) for rule in rules for group in self._groups(job))

    def _list_rules(self, groups: Sequence[str]) -> list[Mapping[str, Any]]:
        if not groups:
            return []
        found = self._place.client("ec2").describe_security_groups(GroupIds=list(groups))["SecurityGroups"]
        return [rule for group in found for rule in group["IpPermissions"]]

    def _subnet(self, job: TrainingJob) -> str:
        return str(job.request["VpcConfig"]["Subnets"][0])

    def _groups(self, job: TrainingJob) -> list[str]:
        return [str(name) for name in job.request["VpcConfig"]["SecurityGroupIds"]]

    def _require(self, job: TrainingJob, operation: str, parameters: Mapping[str, object]) -> None:
        if denial := self._find_denial(job, operation, parameters):
            raise TrainingError(f"ClientError: {denial}")

    def _find_denial(self, job: TrainingJob, operation: str, parameters: Mapping[str, object]) -> str:
        denial = self._gatekeeper.check_call(Principal(KIND, "", "SageMaker", job.role), operation, parameters)
        return denial.message if denial else ""
