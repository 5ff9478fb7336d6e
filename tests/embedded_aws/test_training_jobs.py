"""A training job takes SageMaker's way through its states, with containers that processes of this machine play."""

import copy
import io
import json
import tarfile
from collections import Counter

import pytest
from botocore.exceptions import ClientError

from tests.embedded_aws.emr_template import allow, trust
from tests.embedded_aws.training_template import BUCKET, IMAGE, ROLE_ACTIONS, TEMPLATE
from tests.real_time import wait_until

GROUP = "/aws/sagemaker/TrainingJobs"
ENDED = ("Completed", "Failed", "Stopped")
FOREVER = "trap 'echo stopping > $ROOT/opt/ml/model/$HOST; exit 0' TERM; echo started; while :; do sleep 0.05; done"
PACE = {"minute_seconds": 1.0}


class Sample:
    """A deployed stack for training jobs; jobs are called `name` unless told otherwise."""

    def __init__(self, cloud):
        self.cloud = cloud
        self._count = 0
        self.begin()
        self.api = cloud.client("sagemaker")
        self.key = cloud.physical_id("Key")
        ec2 = cloud.client("ec2")
        vpc = [{"Name": "vpc-id", "Values": [cloud.physical_id("Vpc")]}]
        groups = ec2.describe_security_groups(Filters=vpc)["SecurityGroups"]
        self.groups = {group["Description"]: group["GroupId"] for group in groups}
        iam = cloud.client("iam")
        self.role = iam.get_role(RoleName=cloud.physical_id("Role"))["Role"]["Arn"]
        cloud.client("s3").put_object(Bucket=BUCKET, Key="data/train/deep/one.txt", Body=b"one")

    def begin(self):
        """Take the next name; return the sample."""
        self._count += 1
        self.name = f"digits-{self._count}"
        return self

    def request(self, script="true", *, name=None, **changes):
        """Return a request whose containers run a script; `changes` replace parameters."""
        request = {
            "TrainingJobName": name or self.name,
            "RoleArn": self.role,
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c"],
                "ContainerArguments": [script],
                "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
            },
            "HyperParameters": {"epochs": "3"},
            "Environment": {"TEAM": "learning"},
            "InputDataConfig": [self.s3_channel("train", f"s3://{BUCKET}/data/train/")],
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models/", "KmsKeyId": self.key},
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 2,
                "VolumeSizeInGB": 30,
                "VolumeKmsKeyId": self.key,
            },
            "VpcConfig": self.network(),
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            "Tags": [{"Key": "team", "Value": "learning"}],
        }
        return copy.deepcopy(request | changes)

    def network(self, subnet="Subnet", group="members"):
        return {"SecurityGroupIds": [self.groups[group]], "Subnets": [self.cloud.physical_id(subnet)]}

    def s3_channel(self, name, uri, mode="File"):
        source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
        return {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}}

    def file_channel(self, folder="/", mode="rw", system="Storage", kind="EFS"):
        source = {
            "FileSystemId": system if system.startswith("fs-") else self.cloud.physical_id(system),
            "FileSystemType": kind,
            "FileSystemAccessMode": mode,
            "DirectoryPath": folder,
        }
        return {"ChannelName": "shared", "InputMode": "File", "DataSource": {"FileSystemDataSource": source}}

    def make_role(self, *actions):
        """Make an execution role that may do this alone; return its ARN."""
        iam, name = self.cloud.client("iam"), f"role-{self.name}"
        made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust("sagemaker.amazonaws.com")))
        document = json.dumps(allow(list(actions))["PolicyDocument"])
        iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=document)
        return made["Role"]["Arn"]

    def start(self, script="true", **changes):
        return self.api.create_training_job(**self.request(script, **changes))["TrainingJobArn"]

    def stop(self):
        self.api.stop_training_job(TrainingJobName=self.name)

    def refuse(self, **changes):
        """Return code and message with which a request is refused."""
        with pytest.raises(ClientError) as caught:
            self.start(**changes)
        return caught.value.response["Error"]["Code"], caught.value.response["Error"]["Message"]

    def describe(self, name=None):
        return self.api.describe_training_job(TrainingJobName=name or self.name)

    def list_states(self):
        return [entry["Status"] for entry in self.describe()["SecondaryStatusTransitions"]]

    def end(self, name=None):
        """Wait for the end of a job and return its description."""
        return wait_until(lambda: (job := self.describe(name))["TrainingJobStatus"] in ENDED and job)

    def run(self, script="true", *, name=None, **changes):
        self.start(script, name=name, **changes)
        return self.end(name)

    def read_logs(self):
        """Return the lines of each log stream of the job by the host's name."""
        logs = self.cloud.client("logs")
        groups = logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
        if not groups:
            return {}
        streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{self.name}/")["logStreams"]
        lines = {}
        for stream in streams:
            events = logs.get_log_events(logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True)
            host = stream["logStreamName"].partition("/")[2].rpartition("-")[0]
            lines.setdefault(host, []).extend(event["message"] for event in events["events"])
        return lines

    def await_start(self, count=2):
        """Wait until all containers have said that they started, and take signals from then on."""
        wait_until(lambda: sum("started" in lines for lines in self.read_logs().values()) == count)

    def start_forever(self, script=FOREVER, **changes):
        """Start a job that goes on until it is stopped, and wait until it trains."""
        self.start(script, **changes)
        self.await_start(changes.get("ResourceConfig", {}).get("InstanceCount", 2))

    def take_container(self):
        """Return the next container that was started."""
        return self.cloud.next(lambda line: line["kind"] == "container")

    def read_archive(self, job, file="model.tar.gz"):
        """Return name -> content of an archive of a job's output."""
        bucket, _, key = job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
        body = self.cloud.client("s3").get_object(Bucket=bucket, Key=key.replace("model.tar.gz", file))["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            return {member.name: archive.extractfile(member).read().decode() for member in archive}

    def list_interfaces(self):
        filters = [{"Name": "group-id", "Values": [self.groups["members"]]}]
        interfaces = self.cloud.client("ec2").describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
        return [interface["NetworkInterfaceId"] for interface in interfaces]


@pytest.fixture(scope="module")
def deploy(deploy_template):
    def deploy(**options):
        cloud = deploy_template(TEMPLATE, **PACE, **options)
        outcome = cloud.end()
        assert outcome["status"] == "CREATE_COMPLETE", outcome["reason"]
        return Sample(cloud)

    return deploy


@pytest.fixture
def sample(share, deploy):
    return share("sample", deploy).begin()


@pytest.fixture
def limit(sample):
    """Return the function that limits instances until the test ends."""
    yield lambda **limits: sample.cloud.command("limit_training", **limits)
    sample.cloud.command("limit_training")


WIDE = ("ec2:Describe*", "ecr:*", "logs:*", "kms:*")
NARROW_ACTIONS = [
    *(entry for entry in ROLE_ACTIONS if entry not in WIDE),
    *(f"ec2:Describe{name}" for name in ("Subnets", "SecurityGroups", "Vpcs", "DhcpOptions", "NetworkInterfaces")),
    *(
        "ecr:GetAuthorizationToken",
        "ecr:BatchCheckLayerAvailability",
        "ecr:GetDownloadUrlForLayer",
        "ecr:BatchGetImage",
    ),
    *("kms:CreateGrant", "kms:Encrypt", "kms:GenerateDataKey", "kms:Decrypt"),
    *("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"),
]
"""Actions of the developer guide, "CreateTrainingJob API: Execution role permissions", and of uploads in parts."""


def without(action):
    """Return the execution role's actions without one."""
    assert action in NARROW_ACTIONS
    return [entry for entry in NARROW_ACTIONS if entry != action]


def test_a_job_takes_sagemakers_way_and_leaves_model_logs_and_metrics(sample):
    arn = sample.start("echo loss=0.5; echo loss=0.25; echo $HOST > $ROOT/opt/ml/model/$HOST")
    assert arn == f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{sample.name}"
    job = sample.end()
    assert sample.list_states() == [
        *("Starting", "Pending", "Downloading", "DownloadingTrainingImage", "Training", "Uploading", "Completed")
    ]
    assert all(
        entry["StatusMessage"] and entry["EndTime"] >= entry["StartTime"] for entry in job["SecondaryStatusTransitions"]
    )
    assert job["TrainingJobStatus"] == "Completed"
    assert job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"]
    assert [(entry["MetricName"], entry["Value"]) for entry in job["FinalMetricDataList"]] == [("loss", 0.25)]
    key = f"models/{sample.name}/output/model.tar.gz"
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/{key}"
    assert sample.cloud.client("s3").head_object(Bucket=BUCKET, Key=key)["SSEKMSKeyId"] == sample.key
    assert sample.read_archive(job) == {"algo-1": "algo-1\n", "algo-2": "algo-2\n"}
    assert sample.read_logs() == {host: ["loss=0.5", "loss=0.25"] for host in ("algo-1", "algo-2")}
    metric = sample.cloud.client("cloudwatch").list_metrics(Namespace=GROUP)["Metrics"]
    assert {entry["MetricName"] for entry in metric} == {"loss"}
    assert sample.list_interfaces() == []
    assert sample.api.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "learning"}]
    sample.api.add_tags(ResourceArn=arn, Tags=[{"Key": "cost", "Value": "7"}])
    assert {tag["Key"] for tag in sample.api.list_tags(ResourceArn=arn)["Tags"]} == {"team", "cost"}


def test_output_beside_the_model_has_an_archive_of_its_own(sample):
    job = sample.run("echo $HOST > $ROOT/opt/ml/output/data/$HOST")
    assert sample.read_archive(job) == {}
    assert set(sample.read_archive(job, "output.tar.gz")) == {"algo-1", "algo-2"}


def test_a_clash_of_names_in_the_model_fails_the_job(sample):
    job = sample.run("echo $HOST > $ROOT/opt/ml/model/same")
    assert job["FailureReason"].startswith("ClientError: Artifact upload failed:same is in the output of several")


def test_a_container_finds_what_sagemaker_provides(sample):
    script = (
        "cd $ROOT/opt/ml/input && cat config/resourceconfig.json && echo && cat config/hyperparameters.json && echo && "
        "cat config/inputdataconfig.json && echo && cat data/train/deep/one.txt && echo && "
        "echo $TEAM $TRAINING_JOB_NAME $AWS_REGION"
    )
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 11, "VolumeSizeInGB": 30}
    sample.run(
        script,
        ResourceConfig=resources,
        InputDataConfig=[sample.s3_channel("train", f"s3://{BUCKET}/data/train", "FastFile"), sample.file_channel()],
    )
    resource, parameters, channels, content, variables = sample.read_logs()["algo-11"]
    hosts = json.loads(resource)["hosts"]
    assert json.loads(resource)["current_host"] == "algo-11"
    assert hosts[:4] == ["algo-1", "algo-10", "algo-11", "algo-2"]
    assert json.loads(parameters) == {"epochs": "3"}
    assert json.loads(channels)["train"]["TrainingInputMode"] == "File"
    assert (content, variables) == ("one", f"learning {sample.name} us-east-1")


def test_an_object_and_a_part_of_a_name_give_the_names_below_their_folder(sample):
    channels = [
        sample.s3_channel("agent", f"s3://{BUCKET}/data/train/deep/one.txt"),
        sample.s3_channel("part", f"s3://{BUCKET}/data/tra"),
    ]
    sample.run("cd $ROOT/opt/ml/input/data && find . -type f | sort", InputDataConfig=channels)
    assert sample.read_logs()["algo-1"] == ["./agent/one.txt", "./part/train/deep/one.txt"]


def test_a_file_system_is_mounted_by_its_mount_target(sample):
    sample.run(InputDataConfig=[sample.file_channel("/jobs", "ro")])
    (mount,) = sample.take_container()["mounts"]
    system = sample.cloud.physical_id("Storage")
    targets = sample.cloud.client("efs").describe_mount_targets(FileSystemId=system)["MountTargets"]
    assert (mount["path"], mount["folder"], mount["is_writable"]) == ("/opt/ml/input/data/shared", "/jobs", False)
    assert (mount["file_system_id"], mount["address"]) == (system, targets[0]["IpAddress"])


def test_a_folder_that_is_not_there_fails_the_job(sample):
    job = sample.run(InputDataConfig=[sample.file_channel("/missing")])
    assert job["FailureReason"].startswith("ClientError: Unable to mount file system: ")
    assert sample.list_interfaces() == []


def test_a_job_that_trains_has_addresses_and_a_log_and_keeps_its_model_when_it_is_stopped(sample):
    sample.start_forever()
    addresses = {sample.take_container()["order"]["address"] for _ in range(2)}
    assert len(addresses) == len(sample.list_interfaces()) == 2
    assert all(address.startswith("10.0.0.") for address in addresses)
    assert sample.describe()["SecondaryStatus"] == "Training"
    sample.stop()
    assert sample.describe()["TrainingJobStatus"] == "Stopping"
    job = sample.end()
    assert job["SecondaryStatus"] == "Stopped"
    assert sample.list_states()[-3:] == ["Stopping", "Uploading", "Stopped"]
    assert set(sample.read_archive(job)) == {"algo-1", "algo-2"}


def test_the_first_failure_ends_the_job_with_what_the_container_wrote(sample, tmp_path):
    fails = "echo no data > $ROOT/opt/ml/output/failure; exit 3"
    waits = f"while [ ! -e {tmp_path}/ready ]; do sleep 0.05; done"
    lives = FOREVER.replace("echo started", f"touch {tmp_path}/ready")
    # An argument of a container has at most 256 characters.
    (tmp_path / "job.sh").write_text(f"if [ $HOST = algo-2 ]; then {waits}; {fails}; fi; {lives}")
    job = sample.run(f". {tmp_path}/job.sh")
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Failed"
    assert job["FailureReason"] == "AlgorithmError: no data\n, exit code: 3"
    assert job["SecondaryStatusTransitions"][-2]["Status"] == "Uploading"
    assert sample.read_archive(job) == {"algo-1": "stopping\n"}


def test_a_long_failure_is_cut(sample):
    job = sample.run("head -c 3000 /dev/zero | tr '\\0' x > $ROOT/opt/ml/output/failure; exit 1")
    assert len(job["FailureReason"]) == 1024
    assert job["FailureReason"].endswith("x, exit code: 1")


def test_a_container_that_ignores_the_stop_is_killed(sample):
    sample.start_forever("trap '' TERM; echo started; while :; do sleep 0.05; done")
    sample.stop()
    assert sample.end()["SecondaryStatus"] == "Stopped"


def test_a_job_that_has_ended_cannot_be_stopped_and_keeps_its_name(sample):
    sample.run()
    with pytest.raises(ClientError, match=r"ValidationException.*because the training job is in status Completed"):
        sample.stop()
    code, message = sample.refuse(name=sample.name.upper())
    assert code == "ResourceInUse"
    assert message.endswith(f"already exists (arn:aws:sagemaker:us-east-1:123456789012:training-job/{sample.name})")


def test_the_time_limit_stops_a_job(sample):
    job = sample.run(FOREVER, StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert sample.list_states()[-3:-1] == ["Stopping", "Uploading"]


SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 3600},
}


def test_a_job_on_spot_starts_again_with_new_containers(sample):
    sample.start_forever(**SPOT)
    assert sample.cloud.command("interrupt_training", job=sample.name) is True
    wait_until(lambda: sample.list_states().count("Training") == 2)
    states = sample.list_states()
    assert states[states.index("Interrupted") :][:3] == ["Interrupted", "Starting", "Pending"]
    sample.stop()
    job = sample.end()
    assert job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"]
    assert [sample.take_container()["order"]["name"] for _ in range(4)] == ["algo-1", "algo-2"] * 2


def test_on_demand_capacity_is_not_taken_back_and_a_killed_container_fails_the_job(sample):
    sample.start_forever()
    assert sample.cloud.command("interrupt_training", job=sample.name) is False
    assert sample.cloud.command("kill_container", job=sample.name, number=3) is False
    assert sample.cloud.command("kill_container", job=sample.name, number=2) is True
    assert sample.end()["FailureReason"] == "AlgorithmError: , exit code: 137"


def resources(kind, count=2, **changes):
    """Return what a job runs on; where tests limit instances, each takes a type of its own, as pools outlive jobs."""
    return {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 30, **changes}


def test_a_job_on_spot_waits_for_capacity_until_its_limit(sample, limit):
    limit(capacity=1)
    limits = {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}
    job = sample.run(ResourceConfig=resources("ml.c5.xlarge"), **SPOT | {"StoppingCondition": limits})
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
    sample.begin().start(ResourceConfig=resources("ml.c5.xlarge"), **SPOT)
    wait_until(lambda: sample.describe()["SecondaryStatus"] == "Pending")
    limit(capacity=2)
    assert sample.end()["TrainingJobStatus"] == "Completed"


def test_a_job_without_capacity_fails_in_sagemakers_words(sample, limit):
    limit(capacity=1)
    job = sample.run(ResourceConfig=resources("ml.c5.xlarge"))
    assert job["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert "TrainingStartTime" not in job


POOL = {"count": 1, "KeepAlivePeriodInSeconds": 21_600}


def test_a_matching_job_reuses_the_instances_of_the_one_before(sample, limit):
    limit(capacity=1, quota=1)
    first, pool = sample.name, resources("ml.m5.xlarge", **POOL)
    assert sample.run(ResourceConfig=pool)["WarmPoolStatus"]["Status"] == "Available"
    sample.begin()
    assert sample.refuse(ResourceConfig={**pool, "VolumeSizeInGB": 31})[0] == "ResourceLimitExceeded"
    sample.start_forever(ResourceConfig=pool)
    reused = sample.describe(first)["WarmPoolStatus"]
    assert (reused["Status"], reused["ReusedByJob"]) == ("Reused", sample.name)
    assert sample.describe()["WarmPoolStatus"]["Status"] == "InUse"
    sample.stop()
    assert sample.end()["WarmPoolStatus"]["Status"] == "Available"
    with pytest.raises(ClientError, match=r"ResourceInUse.*warm pool"):
        sample.api.delete_training_job(TrainingJobName=sample.name)


def test_a_warm_pool_ends_with_its_time(sample):
    sample.run(ResourceConfig=resources("ml.m5.2xlarge", count=1, KeepAlivePeriodInSeconds=60))
    wait_until(lambda: sample.describe()["WarmPoolStatus"]["Status"] == "Terminated")


def test_without_a_quota_no_warm_pool_is_kept(sample, limit):
    limit(pool_quota=0)
    job = sample.run(ResourceConfig=resources("ml.m5.4xlarge", **POOL))
    assert job["WarmPoolStatus"]["Status"] == "Terminated"


def test_a_job_that_has_ended_is_deleted_and_gives_its_name_back(sample):
    sample.start_forever()
    with pytest.raises(ClientError, match="ResourceInUse"):
        sample.api.delete_training_job(TrainingJobName=sample.name)
    sample.stop()
    sample.end()
    sample.api.delete_training_job(TrainingJobName=sample.name)
    with pytest.raises(ClientError, match=r"ValidationException.*Requested resource not found"):
        sample.describe()
    assert sample.run()["TrainingJobStatus"] == "Completed"


def test_another_operation_is_refused_by_name(sample):
    with pytest.raises(ClientError, match="the rehearsal does not implement sagemaker:UpdateTrainingJob"):
        sample.api.update_training_job(TrainingJobName=sample.name, ResourceConfig={"KeepAlivePeriodInSeconds": 0})


def test_a_failed_job_is_an_event(sample):
    """Developer guide, "Events that Amazon SageMaker AI sends to Amazon EventBridge"."""
    queue = sample.cloud.client("sqs").create_queue(QueueName="seen")["QueueUrl"]
    sample.cloud.listen(sample.cloud.physical_id("Topic"), queue)
    arn = sample.start("exit 1")
    sample.end()
    event = {"resources": []}
    while event["resources"] != [arn]:  # The events of earlier jobs may be under way.
        event = json.loads(json.loads(sample.cloud.receive(queue)[0]["Body"])["Message"])
    assert event["source"] == "aws.sagemaker"
    assert event["detail"]["FailureReason"] == "AlgorithmError: , exit code: 1"
    assert isinstance(event["detail"]["CreationTime"], int)


def list_wrong_requests(sample):
    """Return what is wrong in requests, with the words that refuse them."""
    submitter = sample.cloud.client("iam").get_role(RoleName=sample.cloud.physical_id("Submitter"))["Role"]["Arn"]
    vpc = sample.network()
    local = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1, "VolumeKmsKeyId": sample.key}
    unknown, no_lustre = sample.file_channel(system="fs-0123456789abcdef0"), sample.file_channel(kind="FSxLustre")
    empty, part = f"s3://{BUCKET}/nothing/", f"s3://{BUCKET}/data/tra"
    narrow = sample.make_role(*without("s3:ListBucket"))
    return [
        ({"RoleArn": submitter}, f"Could not assume role {submitter}."),
        ({"RoleArn": narrow}, "No S3 objects found"),  # A channel that the role may not list.
        (
            {"InputDataConfig": [sample.s3_channel("train", "s3://no bucket/data/")]},
            'No S3 objects found under S3 URL "s3://no bucket/data/" given in input data source.',
        ),
        (
            {"InputDataConfig": [sample.s3_channel("train", empty)]},
            f'No S3 objects found under S3 URL "{empty}" given in input data source.',
        ),
        (
            {"InputDataConfig": [sample.s3_channel("train", part, "FastFile")]},
            "S3Uri of a FastFile channel must be a folder",
        ),
        (
            {"VpcConfig": sample.network("OtherSubnet"), "InputDataConfig": [sample.file_channel()]},
            "FileSystemId must have a mount target in each zone of VpcConfig",
        ),
        ({"InputDataConfig": [unknown]}, "FileSystemId must name an EFS file system"),
        ({"InputDataConfig": [no_lustre]}, "FileSystemId must name an FSx for Lustre file system"),
        ({"VpcConfig": {**vpc, "Subnets": ["subnet-0123456789abcdef0"]}}, "VpcConfig is not valid"),
        ({"VpcConfig": {**vpc, "SecurityGroupIds": ["sg-0123456789abcdef0"]}}, "VpcConfig is not valid"),
        ({"ResourceConfig": local}, "VolumeKmsKeyId must be left out for ml.g5.xlarge"),
    ]


def test_a_request_that_names_a_wrong_role_channel_network_or_key_is_refused_in_sagemakers_words(sample):
    found = [(sample.refuse(**changes), words) for changes, words in list_wrong_requests(sample)]
    assert {code for (code, _), _ in found} == {"ValidationException"}
    assert [(message, words) for (_, message), words in found if not message.startswith(words)] == []


@pytest.mark.parametrize(("group", "count"), [("members", 0), ("members that do not admit each other", 2)])
def test_members_that_do_not_admit_each_other_are_kept_apart(sample, group, count):
    """Developer guide, "Give SageMaker AI Training Jobs Access to Resources in Your Amazon VPC"."""
    job = sample.run(VpcConfig=sample.network(group=group), InputDataConfig=[sample.file_channel()])
    assert job["TrainingJobStatus"] == "Completed"
    sample.cloud.command("report")  # Its answer comes after everything that was told before.
    told = [line for line in sample.cloud._backlog if line["kind"] == "separate"]
    assert sum(len(line["addresses"]) for line in told) == count


def test_a_mount_target_that_does_not_admit_nfs_fails_the_job(sample):
    network = sample.network(group="members that the mount target does not admit")
    job = sample.run(VpcConfig=network, InputDataConfig=[sample.file_channel()])
    reason = f"ClientError: Unable to mount file system: {sample.cloud.physical_id('Storage')}"
    assert job["FailureReason"].startswith(reason)


@pytest.mark.parametrize(
    ("subnet", "reasons"),
    [
        ("OtherSubnet", ["failed:Please ensure that the subnet's route table has a route to an S3 VPC endpoint"]),
        (
            "NarrowSubnet",
            ["Unable to download object", "because no VPC endpoint policy allows the s3:GetObject action"],
        ),
    ],
    ids=["no endpoint", "policy of the endpoint"],
)
def test_a_job_that_does_not_reach_s3_fails_in_sagemakers_words(sample, subnet, reasons):
    job = sample.run(VpcConfig=sample.network(subnet))
    assert job["TrainingJobStatus"] == "Failed"
    assert [reason for reason in reasons if reason not in job["FailureReason"]] == []


DENIALS = {
    "ec2:CreateNetworkInterface": "InternalServerError: We encountered an internal error.",
    "ec2:CreateNetworkInterfacePermission": "InternalServerError: We encountered an internal error.",
    "ec2:DescribeDhcpOptions": "InternalServerError: We encountered an internal error.",
    "kms:CreateGrant": "InternalServerError: We encountered an internal error.",
    "kms:Encrypt": "InternalServerError: We encountered an internal error.",
    "ecr:BatchGetImage": "ClientError: Cannot pull algorithm container.",
    "ecr:GetAuthorizationToken": "ClientError: Cannot pull algorithm container.",
    "s3:GetObject": "ClientError: Data download failed:Unable to download object",
    "s3:PutObject": "ClientError: Artifact upload failed:",
    "kms:GenerateDataKey": "ClientError: Artifact upload failed:",
    "kms:Decrypt": "ClientError: Artifact upload failed:",
}


@pytest.mark.parametrize("action", DENIALS)
def test_what_the_execution_role_may_not_do_fails_the_job(sample, action):
    job = sample.run(RoleArn=sample.make_role(*without(action)))
    assert job["FailureReason"].startswith(DENIALS[action])


@pytest.mark.parametrize("action", ["logs:CreateLogStream", "cloudwatch:PutMetricData", "ec2:DeleteNetworkInterface"])
def test_some_of_what_the_execution_role_may_not_do_is_only_missing(sample, action):
    job = sample.run("echo loss=1", RoleArn=sample.make_role(*without(action)))
    assert job["TrainingJobStatus"] == "Completed"
    assert sample.cloud.observation(action)
    left = sample.list_interfaces()
    assert len(left) == (2 if action.startswith("ec2:") else 0)
    for interface in left:
        sample.cloud.client("ec2").delete_network_interface(NetworkInterfaceId=interface)


def test_sagemaker_uses_each_documented_right_of_the_role_and_no_other(sample):
    before = Counter(sample.cloud.command("count_actions"))
    job = sample.run("echo loss=1", RoleArn=sample.make_role(*NARROW_ACTIONS))
    assert job["TrainingJobStatus"] == "Completed"
    assert set(Counter(sample.cloud.command("count_actions")) - before) == set(NARROW_ACTIONS)


def submit(sample, **changes):
    role = sample.cloud.client("iam").get_role(RoleName=sample.cloud.physical_id("Submitter"))["Role"]["Arn"]
    client = sample.cloud.client("sagemaker", sample.cloud.command("mint", role=role))
    return client.create_training_job(**sample.request(**{"name": f"0123-{sample.name}", **changes}))


def test_a_caller_with_the_rights_starts_a_job(sample):
    assert submit(sample)["TrainingJobArn"].endswith(f"training-job/0123-{sample.name}")
    sample.end(f"0123-{sample.name}")


@pytest.mark.parametrize("wrong", ["name", "role", "subnet"])
def test_a_caller_without_the_rights_is_refused(sample, wrong):
    changes = {
        "name": {"name": sample.name},
        "role": {"RoleArn": sample.make_role("s3:*")},
        "subnet": {"VpcConfig": sample.network("OtherSubnet")},
    }[wrong]
    said = {"role": "iam:PassRole"}.get(wrong, "sagemaker:CreateTrainingJob")
    with pytest.raises(ClientError, match=f"AccessDeniedException.*not authorized to perform: {said}"):
        submit(sample, **changes)


@pytest.mark.parametrize(
    ("system", "status"), [("OnlyTls", "Failed"), ("AnybodyByTls", "Failed"), ("Anybody", "Completed")]
)
def test_a_channel_mounts_a_file_system_without_tls_and_without_iam(sample, system, status):
    """SageMaker API reference, FileSystemDataSource: it has no access point, no IAM and no encryption in transit."""
    job = sample.run(InputDataConfig=[sample.file_channel(system=system)])
    assert job["TrainingJobStatus"] == status
    assert ("the policy of the file system denies access" in job.get("FailureReason", "")) == (status == "Failed")


def test_a_folder_of_lustre_is_named_below_its_mount_name(sample):
    """The path begins with the mount name (aws/sagemaker-python-sdk#4257)."""
    channel = sample.file_channel("/data", "ro", "Lustre", "FSxLustre")
    message = sample.refuse(InputDataConfig=[channel])[1]
    mount_name = message.partition("must begin with /")[2].partition(",")[0]
    channel["DataSource"]["FileSystemDataSource"]["DirectoryPath"] = f"/{mount_name}/data"
    assert sample.run(InputDataConfig=[channel])["TrainingJobStatus"] == "Completed"
    (mount,) = sample.take_container()["mounts"]
    identity = sample.cloud.physical_id("Lustre")
    assert (mount["folder"], mount["file_system_id"], mount["lustre"]["mount_name"]) == ("/data", identity, mount_name)


def test_an_output_that_names_no_bucket_fails_the_upload(sample):
    job = sample.run(OutputDataConfig={"S3OutputPath": "s3://no bucket/models"})
    target = f"s3://no bucket/models/{sample.name}/output/model.tar.gz"
    assert f"Artifact upload failed:{target} (InvalidBucketName" in job["FailureReason"]


@pytest.fixture
def unlaunched(share, deploy):
    """An AWS that launches no instance in the time of a test, with a quota."""
    options = {"pace": {"launch": 600.0}, "training_limits": {"quota": 3}}
    shared = share("unlaunched", lambda: deploy(**options)).begin()
    yield shared
    for job in shared.api.list_training_jobs(StatusEquals="InProgress")["TrainingJobSummaries"]:
        shared.api.stop_training_job(TrainingJobName=job["TrainingJobName"])


def test_a_job_is_stopped_before_it_trains(unlaunched):
    unlaunched.start()
    wait_until(lambda: unlaunched.describe()["SecondaryStatus"] == "Pending")
    unlaunched.stop()
    job = unlaunched.end()
    assert unlaunched.list_states()[-2:] == ["Stopping", "Stopped"]
    assert "ModelArtifacts" not in job or not job["ModelArtifacts"]


def test_a_job_beyond_the_quota_is_refused_in_sagemakers_words(unlaunched):
    unlaunched.start()
    code, message = unlaunched.refuse(name="another")
    assert code == "ResourceLimitExceeded"
    assert message.startswith(
        "The account-level service limit 'ml.m5.large for training job usage' is 3 Instances, with current utilization "
        "of 2 Instances and a request delta of 2 Instances."
    )
    assert unlaunched.start(name="on-spot", **SPOT)  # Its quota is another one.


def test_jobs_are_listed_in_pages_by_name_status_and_order(deploy):
    sample = deploy()
    for number in range(3):
        sample.run("exit 1" if number == 1 else "true", name=f"digits-{number}")

    def list_names(**options):
        answer = sample.api.list_training_jobs(**options)
        return [row["TrainingJobName"] for row in answer["TrainingJobSummaries"]], answer.get("NextToken")

    assert list_names() == (["digits-0", "digits-1", "digits-2"], None)
    assert list_names(SortOrder="Descending")[0] == ["digits-2", "digits-1", "digits-0"]
    assert list_names(NameContains="ts-1")[0] == ["digits-1"]
    assert list_names(StatusEquals="Failed")[0] == ["digits-1"]
    page, token = list_names(MaxResults=2)
    assert page == ["digits-0", "digits-1"]
    assert list_names(MaxResults=2, NextToken=token) == (["digits-2"], None)
    # The model's own words: a page is taken first, and filtered then.
    assert list_names(MaxResults=1, StatusEquals="Failed")[0] == []
