"""Instances of training jobs: quotas, capacity, and warm pools."""

import threading
from collections.abc import Collection
from typing import Any

from cdk_rehearsal.embedded_aws.autoscaling.driver import JobQueue
from cdk_rehearsal.embedded_aws.base.training_limits import TrainingLimits
from cdk_rehearsal.embedded_aws.sagemaker.job import RUNNING, TrainingJob, WarmPool
from cdk_rehearsal.embedded_aws.sagemaker.request import RequestError

_THREADS = 2


class InstanceLedger:
    """
    Counts the instances of jobs and warm pools against the limits; `second` is the length of a pool's second.

    Attributes:
        limits: What the account and AWS have; it may be replaced at any time.
    """

    def __init__(self, limits: TrainingLimits, second: float) -> None:
        self.limits = limits
        self._second = second
        self._timers = JobQueue(_THREADS)
        self._lock = threading.RLock()
        self._provisioned: list[TrainingJob] = []
        self._pooled: list[TrainingJob] = []

    def check_quota(self, job: TrainingJob, jobs: Collection[TrainingJob]) -> None:
        """Raise RequestError for a job that exceeds a quota with those that run and the warm pools of its type."""
        quota = self.limits.spot_quota if job.is_on_spot else self.limits.quota
        with self._lock:
            used = [each for each in jobs if each.status in RUNNING]
            # A pool counts toward the quota of training (developer guide, "Train Using SageMaker Managed Warm Pools").
            used += [each for each in self._pooled if not job.is_on_spot and each is not self._find_pool(job)]
        count = sum(each.count for each in used if _kind(each) == _kind(job))
        if quota is not None and count + job.count > quota:  # zenml-io/zenml#847
            kind = "spot training job" if job.is_on_spot else "training job"
            raise RequestError(
                f"The account-level service limit '{job.instance_type} for {kind} usage' is {quota} Instances, with "
                f"current utilization of {count} Instances and a request delta of {job.count} Instances. Please "
                "contact AWS support to request an increase for this limit.",
                "ResourceLimitExceeded",
            )

    def take(self, job: TrainingJob) -> bool:
        """Give a job the instances of a matching warm pool, or new ones; return whether there are enough."""
        with self._lock:
            earlier = self._find_pool(job)
            if earlier is not None and earlier.pool is not None:
                self._pooled.remove(earlier)
                earlier.pool.enter("Reused", job.name)
            else:
                holders = [
                    each for each in (*self._provisioned, *self._pooled) if each.instance_type == job.instance_type
                ]
                left = self.limits.capacity
                if left is not None and left - sum(each.count for each in holders) < job.count:
                    return False
            self._provisioned.append(job)
            if job.keep_alive:
                job.pool = WarmPool()
        return True

    def release(self, job: TrainingJob, *, is_healthy: bool) -> None:
        """Take the instances of a job; they wait for the next one where it wants that and they are healthy."""
        with self._lock:
            if job not in self._provisioned:
                return
            self._provisioned.remove(job)
            if job.pool is None:
                return
            quota = self.limits.pool_quota
            pooled = sum(each.count for each in self._pooled if each.instance_type == job.instance_type)
            # Without a quota that has room, no pool is kept (the same page).
            if not is_healthy or (quota is not None and pooled + job.count > quota):
                job.pool.enter("Terminated")
                return
            self._pooled.append(job)
            job.pool.enter("Available")
        self._timers.after(job.keep_alive * self._second, lambda: self._expire(job))

    def close(self) -> None:
        """End the timers of pools."""
        self._timers.close()

    def _expire(self, job: TrainingJob) -> None:
        with self._lock:
            if job in self._pooled and job.pool is not None:
                self._pooled.remove(job)
                job.pool.enter("Terminated")

    def _find_pool(self, job: TrainingJob) -> TrainingJob | None:
        wanted = _describe_match(job)
        found = (each for each in self._pooled if _describe_match(each) == wanted)
        # A job without KeepAlivePeriodInSeconds ends the pool that it takes.
        return next(found, None) if not job.is_on_spot else None


def _kind(job: TrainingJob) -> tuple[str, bool]:
    return job.instance_type, job.is_on_spot


def _describe_match(job: TrainingJob) -> tuple[Any, ...]:
    """Return what two jobs must share for a warm pool (the guide's "Matching training jobs")."""
    resources, vpc = job.request["ResourceConfig"], job.vpc
    names = ("InstanceCount", "InstanceType", "VolumeKmsKeyId", "VolumeSizeInGB")
    return job.role, *(resources.get(name) for name in names), vpc["SecurityGroupIds"], vpc["Subnets"]
