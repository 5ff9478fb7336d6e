"""
Provisions training jobs as SageMaker does: as the execution role, whose deployed policies decide each call.

The calls are those of the developer guide, "CreateTrainingJob API: Execution role permissions": interfaces in the
user's VPC, the image in ECR, grants for encrypted volumes, and a key for the output. What a refusal does to a job is
documented nowhere; the reasons are those that users have reported, each with its source. The same page does not say how
SageMaker picks one of several subnets: all must be in order, and the first one is used.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.ec2.launcher import InstanceLauncher
from cdk_rehearsal.embedded_aws.ec2.reachability import lets_out, lets_through, reaches_s3
from cdk_rehearsal.embedded_aws.sagemaker.containers import Mount
from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob
from cdk_rehearsal.embedded_aws.sagemaker.request import RequestError, list_channels
from cdk_rehearsal.place import Place

SAGEMAKER = "sagemaker.amazonaws.com"
KIND = "training"
"""Kind of the principal of SageMaker and of containers, which both act as the execution role."""
INPUT = "/opt/ml/input/data"
_NFS, _HTTPS = 2049, 443
_READS = (
    "DescribeSubnets",
    "DescribeSecurityGroups",
    "DescribeVpcs",
    "DescribeDhcpOptions",
    "DescribeNetworkInterfaces",
)
_IMAGE_CALLS = ("BatchCheckLayerAvailability", "GetDownloadUrlForLayer", "BatchGetImage")
Call = tuple[str, Mapping[str, Any]]


class JobError(Exception):
    """A failure of a job, with its FailureReason."""


class Provisioner:
    """Judges the requests of training jobs, and makes what they need in the user's account."""

    def __init__(self, place: Place, authorizer: Authorizer, launcher: InstanceLauncher) -> None:
        self._place = place
        self._authorizer = authorizer
        self._launcher = launcher
        self._ec2 = place.client("ec2")

    def check_account(self, job: TrainingJob) -> None:
        """Raise RequestError for a request whose role, type, network or file systems are not in order."""
        if not self._authorizer.trusts(job.role, SAGEMAKER, job.arn):  # predictive-maintenance-using-machine-learning#3
            raise RequestError(
                f"Could not assume role {job.role}. Please ensure that the role exists and allows principal "
                f"'{SAGEMAKER}' to assume the role."
            )
        self._check_volume(job)
        self._check_network(job)
        for _, source in list_channels(job.request, "FileSystemDataSource"):
            self._check_file_system(job, source)

    def find_denial(self, job: TrainingJob, calls: Iterable[Call]) -> str:
        """Return why the execution role may not make one of SageMaker's calls; empty where it may make all."""
        caller = Principal(KIND, "", "SageMaker", job.role)
        for operation, parameters in calls:
            if denial := self._authorizer.check_call(caller, operation, parameters):
                return denial.message
        return ""

    def check_rights(self, job: TrainingJob) -> None:
        """Raise JobError unless the role may make interfaces and use the keys of volumes and output."""
        if denial := self.find_denial(job, [*self._list_network_calls(job), *_list_key_calls(job)]):
            # aws/sagemaker-python-sdk#3026: without the rights for interfaces, nothing says which one is missing.
            raise JobError(
                f"InternalServerError: We encountered an internal error.  Please try again. (The rehearsal: {denial})"
            )

    def check_image(self, job: TrainingJob) -> None:
        """Raise JobError unless the role may read the image, where that is in ECR."""
        image = str(job.request["AlgorithmSpecification"]["TrainingImage"])
        calls: list[Call] = [(f"ecr.{name}", {"Image": image}) for name in _IMAGE_CALLS]
        if ".dkr.ecr." in image and self.find_denial(job, [("ecr.GetAuthorizationToken", {}), *calls]):
            raise JobError(  # aws/sagemaker-python-sdk#57
                "ClientError: Cannot pull algorithm container. Either the image does not exist or its permissions are "
                "incorrect."
            )

    def check_s3_route(self, job: TrainingJob, act: str) -> None:
        """Raise JobError unless S3 can be reached from the subnets, for an act such as `Artifact upload`."""
        is_open = lets_out(self._ec2, job.vpc["SecurityGroupIds"], _HTTPS)
        if not is_open or not all(
            reaches_s3(self._ec2, each["SubnetId"], each["VpcId"]) for each in self._subnets(job)
        ):
            raise JobError(  # aws/amazon-sagemaker-operator-for-k8s#22
                f"ClientError: {act} failed:Please ensure that the subnet's route table has a route to an S3 VPC "
                "endpoint or a NAT device, and both the security groups and the subnet's network ACL allow outbound "
                "traffic to S3"
            )

    def admits_members(self, job: TrainingJob) -> bool:
        """
        Return whether the members' security groups let them reach each other on all ports.

        Developer guide, "Give SageMaker AI Training Jobs Access to Resources in Your Amazon VPC": distributed training
        needs a rule for inbound connections between members of the same security group.
        """
        groups, blocks = job.vpc["SecurityGroupIds"], [each["CidrBlock"] for each in self._subnets(job)]
        return job.count == 1 or lets_through(self._ec2, groups, groups, blocks, 0)

    def list_mounts(self, job: TrainingJob) -> list[Mount]:
        """Return the mounts of the file systems; JobError where a security group is in the way."""
        mounts = []
        for channel, source in list_channels(job.request, "FileSystemDataSource"):
            path, folder = f"{INPUT}/{channel['ChannelName']}", str(source["DirectoryPath"])
            is_writable, system = source["FileSystemAccessMode"] == "rw", str(source["FileSystemId"])
            if source["FileSystemType"] == "EFS":
                target = self._find_targets(system)[self._subnets(job)[0]["AvailabilityZone"]]
                groups = self._place.client("efs").describe_mount_target_security_groups(
                    MountTargetId=target["MountTargetId"]
                )["SecurityGroups"]
                self._check_port(job, source, groups, _NFS)
                # A channel has neither an access point nor IAM nor TLS (SageMaker API reference, FileSystemDataSource).
                if not self._authorizer.admits_anonymous_mount(system):
                    raise JobError(word_mount_failure(source, "the policy of the file system denies access"))
                mounts.append(Mount(path, system, folder, is_writable, str(target["IpAddress"])))
            else:
                lustre = self._launcher.lustre.describe()[system]
                below = folder.removeprefix(f"/{lustre.mount_name}")
                mounts.append(Mount(path, system, below or "/", is_writable, lustre=lustre))
        return mounts

    def make_interfaces(self, job: TrainingJob, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Make an interface for each container in the user's subnet; return name -> its id and address."""
        made: dict[str, tuple[str, str]] = {}
        for name in names:
            try:
                address = self._launcher.free_address(job.vpc["Subnets"][0])
            except LaunchError as error:
                self.remove_interfaces(job, made)
                raise JobError(f"ClientError: {error.message}") from error
            interface = self._ec2.create_network_interface(
                SubnetId=job.vpc["Subnets"][0], Groups=list(job.vpc["SecurityGroupIds"]), PrivateIpAddress=address
            )["NetworkInterface"]
            made[name] = (interface["NetworkInterfaceId"], address)
        return made

    def remove_interfaces(self, job: TrainingJob, interfaces: Mapping[str, tuple[str, str]]) -> None:
        """Remove interfaces; what the role may not remove stays, and the refusal is reported."""
        subnet = self._subnets(job)[0]
        for interface_id, _ in interfaces.values():
            interface = {"NetworkInterfaceId": interface_id, "SubnetId": subnet["SubnetId"], "VpcId": subnet["VpcId"]}
            calls: list[Call] = [
                ("ec2.DeleteNetworkInterfacePermission", interface),
                ("ec2.DeleteNetworkInterface", interface),
            ]
            if not self.find_denial(job, calls):
                self._ec2.delete_network_interface(NetworkInterfaceId=interface_id)

    def _check_volume(self, job: TrainingJob) -> None:
        kind = job.instance_type.removeprefix("ml.")
        if job.request["ResourceConfig"].get("VolumeKmsKeyId"):
            answer = self._ec2.describe_instance_types(Filters=[{"Name": "instance-type", "Values": [kind]}])
            if any(facts["InstanceStorageSupported"] for facts in answer["InstanceTypes"]):
                raise RequestError(
                    f"VolumeKmsKeyId must be left out for {job.instance_type}, which has local storage "
                    "(SageMaker API reference, ResourceConfig)"
                )

    def _check_network(self, job: TrainingJob) -> None:
        try:
            subnets = self._ec2.describe_subnets(SubnetIds=list(job.vpc["Subnets"]))["Subnets"]
            groups = self._ec2.describe_security_groups(GroupIds=list(job.vpc["SecurityGroupIds"]))["SecurityGroups"]
        except ClientError as error:
            raise RequestError(f"VpcConfig is not valid: {error.response['Error']['Message']}") from error
        if len({each["VpcId"] for each in (*subnets, *groups)}) > 1:
            raise RequestError("VpcConfig must have Subnets and SecurityGroupIds of one VPC")

    def _check_file_system(self, job: TrainingJob, source: Mapping[str, Any]) -> None:
        """Check a file system at the call; when SageMaker itself looks is documented nowhere."""
        system, folder = str(source["FileSystemId"]), str(source["DirectoryPath"])
        if source["FileSystemType"] == "FSxLustre":
            lustre = self._launcher.lustre.describe().get(system)
            if lustre is None:
                raise RequestError(f"FileSystemId must name an FSx for Lustre file system, got {system}")
            if not f"{folder}/".startswith(f"/{lustre.mount_name}/"):  # aws/sagemaker-python-sdk#4257
                raise RequestError(f"DirectoryPath of {system} must begin with /{lustre.mount_name}, got {folder}")
            return
        try:
            (found,) = self._place.client("efs").describe_file_systems(FileSystemId=system)["FileSystems"]
        except (ClientError, ValueError) as error:
            raise RequestError(f"FileSystemId must name an EFS file system, got {system}") from error
        if found["LifeCycleState"] != "available":
            raise RequestError(
                f"FileSystemId must name a file system that is available, {system} is {found['LifeCycleState']}"
            )
        targets = self._find_targets(system)
        for subnet in self._subnets(job):
            if subnet["AvailabilityZone"] not in targets:
                raise RequestError(
                    f"FileSystemId must have a mount target in each zone of VpcConfig, {system} has none in "
                    f"{subnet['AvailabilityZone']}, the zone of {subnet['SubnetId']}"
                )

    def _check_port(self, job: TrainingJob, source: Mapping[str, Any], groups: list[str], port: int) -> None:
        blocks = [each["CidrBlock"] for each in self._subnets(job)]
        if not lets_through(self._ec2, job.vpc["SecurityGroupIds"], groups, blocks, port):
            raise JobError(word_mount_failure(source, f"a security group does not let port {port} through"))

    def _list_network_calls(self, job: TrainingJob) -> Iterator[Call]:
        site = {"SubnetId": job.vpc["Subnets"][0], "SecurityGroupIds": job.vpc["SecurityGroupIds"], "Tags": {}}
        yield from ((f"ec2.{name}", {}) for name in _READS)
        yield "ec2.CreateNetworkInterface", site
        yield "ec2.CreateNetworkInterfacePermission", {"NetworkInterfaceId": "*", "SubnetId": job.vpc["Subnets"][0]}

    def _find_targets(self, system: str) -> dict[str, Any]:
        """Return the mount targets of an EFS file system by their zones."""
        targets = self._place.client("efs").describe_mount_targets(FileSystemId=system)["MountTargets"]
        return {each["AvailabilityZoneName"]: each for each in targets if each["LifeCycleState"] == "available"}

    def _subnets(self, job: TrainingJob) -> list[Any]:
        found = self._ec2.describe_subnets(SubnetIds=list(job.vpc["Subnets"]))["Subnets"]
        return sorted(found, key=lambda each: job.vpc["Subnets"].index(each["SubnetId"]))


def word_mount_failure(source: Mapping[str, Any], why: str) -> str:
    """Return the reason of a job whose file system cannot be mounted, which fails (aws/sagemaker-python-sdk#2204)."""
    return (
        f"ClientError: Unable to mount file system: {source['FileSystemId']}, directory path: "
        f"{source['DirectoryPath']}. {why}"
    )


def _list_key_calls(job: TrainingJob) -> Iterator[Call]:
    """Yield the uses of keys; an upload in parts decrypts what it has written (aws/aws-cdk#12810)."""
    if key := job.request["ResourceConfig"].get("VolumeKmsKeyId"):
        yield "sagemaker.EncryptVolume", {"SSEKMSKeyId": key}
    if key := job.request["OutputDataConfig"].get("KmsKeyId"):
        yield "kms.Encrypt", {"KeyId": key}
