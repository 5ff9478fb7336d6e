"""Cases on Amazon SageMaker."""

from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.account import AccountBucket, DataObject
from deeplearning_rehearsal.cases.case import CloudFaults, Digits, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

SAGEMAKER = {"platform": "sagemaker"}


@case(
    "On SageMaker there is no capacity: the job fails with SageMaker's words",
    expect="job",
    context=SAGEMAKER,
    gpus_per_node=2,
    minutes=5,
    cloud=CloudFaults(training_capacity=0),
)
def sagemaker_capacity(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.job_status == "Failed"
    assert "CapacityError: Unable to provision requested ML compute capacity" in seen.job_reason


@case(
    "On SageMaker data in S3 comes by channels to CPU instances, whose volumes the key of the stack encrypts",
    context=SAGEMAKER
    | {
        "instance_type": "m5.xlarge",
        "storage.data": [{"name": "coco", "bucket": "team-data", "key": "coco/", "target": "local"}],
    },
    objects=[DataObject(bucket="team-data", key="coco/", files=3, file_bytes=1000)],
    proves_rights=True,
    job=Digits(),
)
def sagemaker_data(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.job_runs == 1
    assert seen.job_status == "Completed"
    assert seen.job_model


@case(
    "On SageMaker the driver of the hosts is older than the image's CUDA needs: the job fails before it trains, and "
    "its reason names both versions",
    faults=[76],
    expect="job",
    context=SAGEMAKER,
    gpus_per_node=2,
    minutes=6,
)
def sagemaker_driver_too_old(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the hosts have driver 535.183.01, and the image CUDA 13.0")
    run.lab.set_driver("535.183.01", cuda="13.0.96")
    seen = run.finish()
    assert seen.job_status == "Failed"
    assert "AlgorithmError" in seen.job_reason
    assert "CUDA 13.0 of the software of jobs needs NVIDIA driver 580 or newer" in seen.job_reason
    assert "the host has 535.183.01" in seen.job_reason
    assert "torch==2.7.1" in seen.job_reason
    assert "newer driver" not in seen.job_reason


@case(
    "On SageMaker the prefix of the data is empty: the job is refused before it costs anything",
    expect="job",
    context=SAGEMAKER | {"storage.data": [{"name": "coco", "bucket": "team-data", "key": "coco/", "target": "local"}]},
    gpus_per_node=2,
    minutes=5,
    buckets=[AccountBucket(name="team-data")],
)
def sagemaker_empty_channel(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.job_runs == 0
    assert "ValidationException" in seen.job_reason
    assert 'No S3 objects found under S3 URL "s3://team-data/coco/"' in seen.job_reason


@case(
    "On SageMaker the image has no SSH server: the job fails at once, and names the package",
    expect="job",
    context=SAGEMAKER,
    gpus_per_node=2,
    minutes=6,
)
def sagemaker_image_without_sshd(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the image lacks the SSH server")
    run.sagemaker.containers.absent.append("/usr/sbin/sshd")
    seen = run.finish()
    assert seen.job_status == "Failed"
    assert "AlgorithmError" in seen.job_reason
    assert "the image lacks /usr/sbin/sshd" in seen.job_reason
    assert "openssh-server" in seen.job_reason


@case(
    "On SageMaker a container dies while it trains: the job fails, and the next submission resumes from its "
    "newest checkpoint",
    faults=[45],
    context=SAGEMAKER,
    gpus_per_node=2,
    minutes=12,
)
def sagemaker_member_dies(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("all processes of a container end")
    run.sagemaker.containers.find("algo-2").kill()
    run.wait_for_job("Failed")
    run.inject("the job is submitted again")
    run.sagemaker.start()
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 2
    assert seen.job_status == "Completed"
    assert "exit code: 137" in seen.job_reason
    assert seen.prints("resumes from /efs/jobs/")
    assert seen.job_model


@case(
    "On SageMaker the file system has no mount target in the zone: the job is refused, and the refusal names the "
    "file system and the zone",
    expect="job",
    context=SAGEMAKER,
    gpus_per_node=2,
    minutes=5,
)
def sagemaker_mount_target_absent(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the file systems lose their mount targets")
    efs = run.client("efs")
    for system in efs.describe_file_systems()["FileSystems"]:
        for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]:
            efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    seen = run.finish()
    assert seen.job_runs == 0
    assert "FileSystemId must have a mount target in each zone of VpcConfig" in seen.job_reason
    assert "has none in us-east-1a" in seen.job_reason


@case(
    "On SageMaker a quota refuses the job: the call fails at once, with the quota's name, value and use",
    expect="job",
    context=SAGEMAKER,
    gpus_per_node=2,
    minutes=5,
    cloud=CloudFaults(training_quota=0),
)
def sagemaker_quota(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.job_runs == 0
    assert "ResourceLimitExceeded" in seen.job_reason
    assert "ml.g5.12xlarge for training job usage' is 0 Instances" in seen.job_reason


@case(
    "On SageMaker a second job of a running job's name is refused, because both would share its checkpoints",
    context=SAGEMAKER,
    gpus_per_node=2,
)
def sagemaker_same_name(run: "ClusterCase") -> None:
    run.wait_for_job("Training")
    run.inject("the job is submitted again")
    run.sagemaker.start()
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 1
    assert seen.job_status == "Completed"
    assert "job count_ranks must have ended" in seen.job_reason


@case(
    "On SageMaker spot capacity is taken back: new containers meet, none of the earlier ones is a member, and "
    "the job resumes",
    faults=[45],
    context=SAGEMAKER | {"max_run": "1h", "spot_wait": "2h"},
    gpus_per_node=2,
    minutes=12,
)
def sagemaker_spot_interrupted(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("SageMaker takes the spot capacity back")
    assert run.sagemaker.interrupt(run.sagemaker.names()[0])
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 1
    assert seen.job_status == "Completed"
    assert seen.goes_through("Training", "Interrupted", "Starting", "Training", "Uploading", "Completed")
    assert seen.prints("resumes from /efs/jobs/")
    assert seen.job_model


@case(
    "On SageMaker a job is stopped and submitted again: it resumes from its newest checkpoint",
    context=SAGEMAKER,
    gpus_per_node=2,
    minutes=12,
    proves_rights=True,
)
def sagemaker_stop_resumes(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("the job is stopped")
    run.sagemaker.stop()
    run.wait_for_job("Stopped")
    run.inject("the job is submitted again")
    run.sagemaker.start()
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 2
    assert seen.job_status == "Completed"
    assert seen.prints("resumes from /efs/jobs/")
    assert seen.job_model


@case(
    "On SageMaker the time of a job is over: its ranks get SIGTERM, and its newest checkpoint is the model",
    expect="job",
    context=SAGEMAKER | {"max_run": "90s"},
    gpus_per_node=2,
    job=Digits(keys={"program": ["python3", "train_digits.py", "--epochs", "100000"]}),
)
def sagemaker_time_limit(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.job_status == "Stopped"
    assert seen.job_secondary == "MaxRuntimeExceeded"
    assert seen.goes_through("Training", "Stopping", "Uploading", "MaxRuntimeExceeded")
    assert seen.prints("stopped")
    assert seen.job_model


@case(
    "On SageMaker the containers' security group does not admit its own members: found before training, with the "
    "remedy",
    expect="job",
    context=SAGEMAKER,
    gpus_per_node=2,
)
def sagemaker_wrong_security_group(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("security groups do not admit their own members any more")
    ec2 = run.client("ec2")
    for group in ec2.describe_security_groups()["SecurityGroups"]:
        name, rules = group["GroupId"], group["IpPermissions"]
        own = [rule for rule in rules if name in [pair["GroupId"] for pair in rule.get("UserIdGroupPairs", ())]]
        if own and group["GroupName"] != "default":
            ec2.revoke_security_group_ingress(GroupId=name, IpPermissions=own)
    seen = run.finish()
    assert seen.job_status == "Failed"
    assert "AlgorithmError" in seen.job_reason
    assert "security groups of the job admit each other" in seen.job_reason
