"""Cases on Amazon EKS."""

import json
from typing import TYPE_CHECKING

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from deeplearning_rehearsal.cases.account import DataObject
from deeplearning_rehearsal.cases.case import CloudFaults, Digits, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

EKS = {"platform": "eks", "administrators": ["arn:aws:iam::123456789012:role/Administrator"]}


@case(
    "On EKS each pod of a job brings the data in S3 with the rights of its service account",
    context=EKS
    | {
        "instance_type": "m5.xlarge",
        "storage.data": [{"name": "coco", "bucket": "team-data", "key": "coco/", "target": "local"}],
    },
    objects=[DataObject(bucket="team-data", key="coco/", files=3, file_bytes=1000)],
    proves_rights=True,
    job=Digits(),
)
def eks_data(run: "ClusterCase") -> None:
    run.finish()


@case(
    "On EKS the driver of the nodes is older than the image's CUDA needs: the job fails before it trains, and a log "
    "names both versions",
    faults=[76],
    expect="job",
    context=EKS | {"instance_type": "g5.12xlarge"},
    gpus_per_node=4,
)
def eks_driver_too_old(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the nodes have driver 535.183.01, and the image CUDA 13.0")
    run.lab.set_driver("535.183.01", cuda="13.0.96")
    seen = run.finish()
    assert seen.job_status == "Failed/PodFailurePolicy"
    assert seen.prints("CUDA 13.0 of the software of jobs needs NVIDIA driver 580 or newer, the host has 535.183.01")
    assert seen.prints("another node_image or version, whose nodes have a newer driver")


@case(
    "On EKS a member writes more to its disk than its limit: the kubelet evicts its pod, and the job resumes at the "
    "cost of a retry",
    faults=[45],
    context=EKS,
    gpus_per_node=2,
    retries=1,
    minutes=12,
)
def eks_evicted_over_its_limit(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("pod 1 exceeds its limit of disk")
    run.eks.exceed_disk(1)
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 1
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.job_failures == 1
    assert seen.submit_status == 0
    assert seen.prints("resumes from /efs/jobs/count_ranks/checkpoints/epochs-")
    assert seen.says("has ended with status 137: Container member exceeded its local ephemeral storage limit")


@case(
    "On EKS the add-on of EFS is gone: the pods wait for their volume, and submit says so in the kubelet's words",
    expect="job",
    context=EKS | {"instance_type": "m5.xlarge"},
)
def eks_file_system_addon_absent(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("the add-on of EFS is deleted")
    eks = run.client("eks")
    (cluster,) = eks.list_clusters()["clusters"]
    eks.delete_addon(clusterName=cluster, addonName="aws-efs-csi-driver")
    run.wait_for_print("FailedMount")
    run.inject("the job is stopped")
    run.eks.stop()
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.job_status == "Suspended"
    assert seen.submit_status == 2
    assert seen.prints("driver name efs.csi.aws.com not found in the list of registered CSI drivers")


@case(
    "On EKS a job fails: submit ends with its status, and its pod sends the event of which the alarm topic notifies",
    expect="job",
    context=EKS | {"instance_type": "m5.xlarge"},
    job=Digits(keys={"program": ["python3", "-c", "raise SystemExit(3)"]}),
    proves_rights=True,
)
def eks_job_fails(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.job_runs == 1
    assert seen.job_status == "Failed/PodFailurePolicy"
    assert seen.submit_status == 3


@case(
    "On EKS a job asks for more GPUs than the type has: submit refuses it, while another one trains",
    expect="job",
    context=EKS,
    gpus_per_node=2,
    job=Digits(),
)
def eks_greedy_job(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("another job is submitted")
    run.eks.submit_other("greedy", gpus_per_member=16)
    run.wait_for_print("gpus_per_member must be at most 2")
    run.inject("the job is stopped")
    run.eks.stop()
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.job_runs == 1
    assert seen.job_status == "Suspended"
    assert seen.submit_status == 1


@case(
    "On EKS the image cannot be pulled: submit says so in the words of containerd, and the job can be stopped",
    expect="job",
    context=EKS | {"instance_type": "m5.xlarge", "image": "111122223333.dkr.ecr.us-east-1.amazonaws.com/absent:1"},
)
def eks_image_gone(run: "ClusterCase") -> None:
    run.wait_for_print("ImagePullBackOff")
    run.inject("the job is stopped")
    run.eks.stop()
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.job_status == "Suspended"
    assert seen.submit_status == 2
    assert seen.prints("ErrImagePull: rpc error: code = NotFound")
    assert seen.prints('Back-off pulling image "111122223333.dkr.ecr.us-east-1.amazonaws.com/absent:1"')


@case(
    "On EKS the nodes' role may not mount the access point: the pods wait for their volume, and submit says so "
    "in the driver's words",
    faults=[42],
    expect="job",
    context=EKS | {"instance_type": "m5.xlarge"},
    denied=["elasticfilesystem:ClientMount"],
)
def eks_mount_denied(run: "ClusterCase") -> None:
    run.wait_for_formation()
    run.inject("a policy of every role denies the mount")
    iam = run.client("iam")
    statement = {"Effect": "Deny", "Action": "elasticfilesystem:ClientMount", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    for role in iam.list_roles()["Roles"]:
        iam.put_role_policy(RoleName=role["RoleName"], PolicyName="Denied", PolicyDocument=document)
    run.wait_for_print("FailedMount")
    run.inject("the job is stopped")
    run.eks.stop()
    seen = run.finish()
    assert seen.stack == "CREATE_COMPLETE"
    assert seen.job_status == "Suspended"
    assert seen.submit_status == 2
    assert seen.prints("accesspoint=fsap-")
    assert seen.prints("mount.nfs4: access denied by server while mounting 127.0.0.1:/")


@case(
    "On EKS no instance is to be had: a node group fails, and the stack shows EC2's reason",
    faults=[2],
    expect="failed",
    context=EKS,
    minutes=5,
    cloud=CloudFaults(launch_faults=[LaunchFault("InsufficientInstanceCapacity")]),
)
def eks_no_capacity(run: "ClusterCase") -> None:
    seen = run.finish()
    assert "AsgInstanceLaunchFailures" in seen.reason
    assert "InsufficientInstanceCapacity" in seen.reason


@case(
    "On EKS a node dies in training: its pod costs no retry, a new node of the group takes it, and the job resumes",
    faults=[45],
    context=EKS,
    gpus_per_node=2,
    minutes=15,
)
def eks_node_lost(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("the node of pod 1 dies")
    node = run.eks.power_off_node(1)
    run.later(20, lambda: run.declare_dead(node))
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 1
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.job_failures == 0
    assert seen.submit_status == 0
    assert seen.prints("resumes from /efs/jobs/count_ranks/checkpoints/epochs-")


@case(
    "On EKS a node is short of memory: it evicts its pod at the cost of no retry and takes no other, and the job "
    "resumes when the node has memory again",
    faults=[45],
    context=EKS,
    gpus_per_node=2,
    minutes=12,
)
def eks_node_pressure(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("the node of pod 1 is short of memory")
    node = run.eks.press_node(1)
    run.later(20, lambda: run.eks.relieve_node(node))
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 1
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.job_failures == 0
    assert seen.submit_status == 0
    assert seen.prints("resumes from /efs/jobs/count_ranks/checkpoints/epochs-")
    assert seen.says("has ended with status 137: The node was low on resource: memory.")


@case(
    "On EKS the kernel kills a member's container for want of memory: the pod says so, and the job resumes at "
    "the cost of a retry",
    faults=[45],
    context=EKS,
    gpus_per_node=2,
    retries=1,
    minutes=12,
)
def eks_out_of_memory(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("the kernel kills the container of pod 1")
    run.eks.exhaust_memory(1)
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 1
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.job_failures == 1
    assert seen.submit_status == 0
    assert seen.prints("resumes from /efs/jobs/count_ranks/checkpoints/epochs-")
    assert seen.says("has ended with status 137: OOMKilled")


@case(
    "On EKS somebody deletes the pod of rank 0: its replacement leads the same members, and the job resumes at "
    "the cost of a retry",
    faults=[45],
    context=EKS,
    gpus_per_node=2,
    retries=1,
    minutes=12,
)
def eks_pod_deleted(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("pod 0 is deleted")
    run.eks.delete_pod(0)
    seen = run.finish()
    assert seen.ranks == 4
    assert seen.job_runs == 1
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.job_failures == 1
    assert seen.submit_status == 0
    assert seen.prints("resumes from /efs/jobs/count_ranks/checkpoints/epochs-")


@case(
    "On EKS the caller's token expires while submit follows a job: it makes another, and no line of the log is lost",
    faults=[53],
    context=EKS,
    gpus_per_node=2,
    minutes=10,
    cloud=CloudFaults(token_seconds=5),
    job=Digits(),
)
def eks_token_expired(run: "ClusterCase") -> None:
    seen = run.finish()
    assert seen.job_runs == 1
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.submit_status == 0
    assert seen.lost_lines == 0
    assert seen.says("a token is not accepted")


@case(
    "On EKS two jobs want all members at once: the second is refused by name, and a third waits in its queue "
    "without a pod",
    context=EKS,
    gpus_per_node=2,
    minutes=10,
    job=Digits(),
)
def eks_two_jobs(run: "ClusterCase") -> None:
    run.wait_for_checkpoint()
    run.inject("another job is submitted")
    run.eks.submit_other("second")
    run.wait_for_print("job second must have 2 free members")
    run.inject("a job is submitted to a queue")
    run.eks.submit_other("third", queue="team")
    seen = run.finish()
    assert seen.job_runs == 2
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.submit_status == 0
    assert seen.prints("job second must have 2 free members, got those of train_digits, which has 2 of 2")
    assert seen.prints("Job third is created, and waits in the queue team")
