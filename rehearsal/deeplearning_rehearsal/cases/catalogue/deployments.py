"""Cases of a second deployment under a running job, which then loses a member."""

from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.account import AccountBucket
from deeplearning_rehearsal.cases.case import Digits, Elastic, Redeployment, case
from deeplearning_rehearsal.cases.catalogue.eks import EKS
from deeplearning_rehearsal.cases.catalogue.sagemaker import SAGEMAKER

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

TEAM = [AccountBucket(name="team-data")]
DATA = {"storage.data": [{"name": "coco", "bucket": "team-data", "key": "coco/", "target": "local"}]}
"""One more data source, which is empty."""
RELEASE = Redeployment(is_release=True)


def lose_worker(run: "ClusterCase") -> None:
    """Deploy again while the elastic job trains, and lose a worker."""
    run.wait_for_commits(4, ranks=3)
    run.deploy_again()
    run.worker(2).power_off(found_dead_after=15)
    run.wait_for_generation(2)
    seen = run.finish()
    assert seen.replacements
    assert seen.has_regained_size
    assert seen.lost_commits <= 1


@case(
    "The next release is deployed while a job trains, and a worker dies: its replacement starts from the new template, "
    "and training goes on",
    faults=[45],
    workers=2,
    min_capacity=1,
    job=Elastic(epochs=30),
    minutes=14,
    second=RELEASE,
)
def release_while_training(run: "ClusterCase") -> None:
    lose_worker(run)


@case(
    "A data source is added while a job trains, and a worker dies: its replacement joins, and training goes on",
    faults=[45],
    workers=2,
    min_capacity=1,
    job=Elastic(epochs=30),
    minutes=14,
    buckets=TEAM,
    second=Redeployment(DATA),
)
def data_added_while_training(run: "ClusterCase") -> None:
    lose_worker(run)


def lose_pod(run: "ClusterCase") -> None:
    """Deploy again while a job on EKS trains, and lose a pod."""
    run.wait_for_checkpoint()
    run.deploy_again()
    run.inject("pod 1 is deleted")
    run.eks.delete_pod(1)
    seen = run.finish()
    assert seen.job_runs == 1
    assert seen.job_status == "Complete/SuccessPolicy"
    assert seen.job_failures == 1
    assert seen.submit_status == 0


@case(
    "On EKS the next release is deployed while a job trains, and a pod is lost: its replacement has the programs with "
    "which the job was submitted",
    faults=[45],
    context=EKS,
    gpus_per_node=2,
    job=Digits(keys={"retries": 1}),
    minutes=12,
    second=RELEASE,
)
def eks_release_while_training(run: "ClusterCase") -> None:
    lose_pod(run)


@case(
    "On EKS a data source is added while a job trains, and a pod is lost: its replacement joins, and the job resumes",
    faults=[45],
    context=EKS,
    gpus_per_node=2,
    job=Digits(keys={"retries": 1}),
    minutes=12,
    buckets=TEAM,
    second=Redeployment(DATA),
)
def eks_data_added_while_training(run: "ClusterCase") -> None:
    lose_pod(run)


def lose_spot_capacity(run: "ClusterCase") -> None:
    """Deploy again while a job on SageMaker trains, and lose its spot capacity."""
    run.wait_for_checkpoint()
    run.deploy_again()
    run.inject("SageMaker takes the spot capacity back")
    assert run.sagemaker.interrupt(run.sagemaker.names()[0])
    seen = run.finish()
    assert seen.job_runs == 1
    assert seen.job_status == "Completed"
    assert seen.prints("resumes from /efs/jobs/")


@case(
    "On SageMaker the next release is deployed while a job trains, and spot capacity is taken back: the restart has "
    "the programs with which the job was submitted",
    faults=[45],
    context=SAGEMAKER | {"max_run": "1h", "spot_wait": "2h"},
    gpus_per_node=2,
    minutes=12,
    second=RELEASE,
    job=Digits(),
)
def sagemaker_release_while_training(run: "ClusterCase") -> None:
    lose_spot_capacity(run)


@case(
    "On SageMaker a data source is added while a job trains, and spot capacity is taken back: the job resumes",
    faults=[45],
    context=SAGEMAKER | {"max_run": "1h", "spot_wait": "2h"},
    gpus_per_node=2,
    minutes=12,
    buckets=TEAM,
    second=Redeployment(DATA),
    job=Digits(),
)
def sagemaker_data_added_while_training(run: "ClusterCase") -> None:
    lose_spot_capacity(run)
