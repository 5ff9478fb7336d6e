"""
Quotas of EC2 that the instances of a stack count against.

Names: EC2 User Guide, "Amazon EC2 service quotas" and "Spot Instance quotas"; copies of the latter have one quota for
all P types, or one for P5 and later and one for the types before. The quota that the account has is taken.
"""

import re
from collections.abc import Iterator, Sequence

from deeplearning_cli.account.answers import Answers, Quota, Refused
from deeplearning_cli.account.demand import Market, NodeDemand
from deeplearning_cli.account.finding import Finding
from deeplearning_contract.launch_failures import QUOTAS

_QUOTA_RIGHTS = "servicequotas:ListServiceQuotas and servicequotas:ListAWSDefaultServiceQuotas"
_SPOT = (
    (r"p[2-4]", ("All P4, P3 and P2 Spot Instance Requests", "All P Spot Instance Requests")),
    (r"p[0-9]", ("All P5 Spot Instance Requests", "All P Spot Instance Requests")),
    (r"(g|vt)[0-9]", ("All G and VT Spot Instance Requests",)),
    (r"inf[0-9]", ("All Inf Spot Instance Requests",)),
    (r"trn[0-9]", ("All Trn Spot Instance Requests",)),
    (r"dl[0-9]", ("All DL Spot Instance Requests",)),
    (r"f[0-9]", ("All F Spot Instance Requests",)),
    (r"x[0-9]", ("All X Spot Instance Requests",)),
    (
        r"(a|c|d|h|i|im|is|m|r|t|z)[0-9]",
        ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",),
    ),
)
"""Start of an instance type -> names of the quota of its vCPUs for spot instances."""


def list_names(instance_type: str, market: Market) -> tuple[str, ...]:
    """Return the names that the quota of an instance type may have; none for a reservation, or an unknown type."""
    if market == "reserved":
        # A reservation counts against the quota from its creation on, used or not; a block does not (EC2 User Guide,
        # "Capacity Reservation limits and restrictions" and "Capacity Blocks for ML").
        return ()
    rows = _SPOT if market == "spot" else tuple((start, (name,)) for start, name in QUOTAS)
    return next((names for start, names in rows if re.match(start, instance_type)), ())


def judge_quotas(demands: Sequence[NodeDemand], answers: Answers) -> Iterator[Finding]:
    """Judge for each candidate, one after the other, whether its instances are within the account's quotas."""
    for candidate in dict.fromkeys(demand.candidate for demand in demands):
        own = [demand for demand in demands if demand.candidate == candidate]
        for names in dict.fromkeys(list_names(demand.instance_type, demand.market) for demand in own):
            if names:
                counted = [each for each in own if list_names(each.instance_type, each.market) == names]
                yield _judge(names, counted, answers)


def _judge(names: Sequence[str], demands: Sequence[NodeDemand], answers: Answers) -> Finding:
    subject = f"quota {names[0]}"
    wanted = " and ".join(f"{demand.count} {demand.instance_type}" for demand in demands)
    if isinstance(answers.quotas, Refused):
        return Finding.refused(subject, answers.quotas, _QUOTA_RIGHTS)
    if isinstance(answers.vcpus, Refused):
        return Finding.refused(subject, answers.vcpus, "ec2:DescribeInstanceTypes")
    name = next((name for name in names if name in answers.quotas), "")
    unknown = [demand.instance_type for demand in demands if demand.instance_type not in answers.vcpus]
    if not name or unknown:
        missing = f"the region has no {unknown[0]}" if unknown else "the account shows no such quota"
        return Finding(subject, "unknown", f"{wanted}: {missing}", "look it up in the Service Quotas console")
    vcpus = sum(demand.count * answers.vcpus[demand.instance_type] for demand in demands)
    return _compare(f"quota {name}", f"{wanted} need {vcpus} vCPUs", vcpus, answers.quotas[name])


def _compare(subject: str, need: str, vcpus: int, quota: Quota) -> Finding:
    used = "its use is unknown" if quota.used is None else f"{quota.used:g} are in use"
    detail = f"{need}, the quota is {quota.vcpus:g}, {used}"
    least = vcpus + (quota.used or 0)
    remedy = f"request at least {least:g} in Service Quotas; AWS may need days to grant it"
    if least > quota.vcpus:
        return Finding(subject, "wrong", detail, remedy)
    if quota.used is None:
        return Finding(subject, "unknown", detail, "allow cloudwatch:GetMetricStatistics, or look in Service Quotas")
    return Finding(subject, "ok", detail)
