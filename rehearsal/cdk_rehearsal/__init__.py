"""
Rehearses CDK stacks with EC2 fleets on this machine: an embedded AWS, and machines that boot their user data.

The names below are imported on use, since moto alone takes two seconds to load.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
    from cdk_rehearsal.machine import Machine
    from cdk_rehearsal.orders import try_orders
    from cdk_rehearsal.plan import Plan, rehearse
    from cdk_rehearsal.report.report import Report, Section
    from cdk_rehearsal.run.run import Run

__all__ = ["LaunchFault", "Machine", "Plan", "Report", "Run", "Section", "rehearse", "try_orders"]
_HOMES = {
    "LaunchFault": "cdk_rehearsal.embedded_aws.base.launch_faults",
    "Machine": "cdk_rehearsal.machine",
    "Plan": "cdk_rehearsal.plan",
    "Report": "cdk_rehearsal.report.report",
    "Run": "cdk_rehearsal.run.run",
    "Section": "cdk_rehearsal.report.report",
    "rehearse": "cdk_rehearsal.plan",
    "try_orders": "cdk_rehearsal.orders",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
