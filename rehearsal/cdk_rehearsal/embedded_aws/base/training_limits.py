"""Limits on the instances of training jobs of SageMaker: quotas of the account, and the capacity of AWS."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingLimits:
    """
    Most instances of each type at a time.

    Attributes:
        quota: Service quota `<type> for training job usage`. Default: enough.
        spot_quota: Service quota `<type> for spot training job usage`. Default: enough.
        pool_quota: Service quota of warm pools; without one, none is kept. Default: enough.
        capacity: What AWS can provision. Default: enough.
    """

    quota: int | None = None
    spot_quota: int | None = None
    pool_quota: int | None = None
    capacity: int | None = None
