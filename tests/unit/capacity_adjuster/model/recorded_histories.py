"""
The histories that a search found for faults of the adjuster, with the least in them that still shows the fault.

Each is played on its state machine, and must break no promise. A search seldom meets them by itself.
"""

from cluster_machine import ClusterMachine
from request_machine import RequestMachine
from stop_machine import StopMachine

from deeplearning_contract.names import NodeRole

CALL = {"crash": None, "lag": 0.0, "meanwhile": []}


def begin(**options):
    """Return the first step of the cluster machine, which is plain in all else."""
    plain = {"minimum": 0, "workers": 0, "spare": 0, "late": None, "hook": "", "master": "", "fate": ""}
    return "begin", {**plain, "is_manned": False, **options}


def begin_stop(workers, stop_after):
    return "begin", {"workers": workers, "stop_after": stop_after, "fate": "", "is_manned": False}


def begin_request(*, is_manned=False):
    plain = {"minimum": 0, "workers": 0, "fate": "", "stop_after": 0, "block": ""}
    return "begin", {**plain, "is_manned": is_manned, **CALL}


def ask(workers, **options):
    return "stack_asks", {"workers": workers, "is_crashed_again": False, **CALL, **options}


def lose(role, progress, outcome=""):
    return "node_dies", {"role": role, "progress": progress, "outcome": outcome}


def use_up_budget(*, is_redelivered):
    return "budget_is_used_up", {"is_redelivered": is_redelivered, **CALL}


RECORDED = {
    "a master alone": [ClusterMachine, begin()],
    "a worker without which it goes on": [ClusterMachine, begin(workers=1, fate="capacity")],
    "a worker without which it fails": [ClusterMachine, begin(minimum=1, workers=1, fate="capacity")],
    "a look before the launch fails": [ClusterMachine, begin(workers=1, fate="capacity"), ("tick", CALL)],
    "a worker dies and has no successor": [ClusterMachine, begin(workers=3), lose(NodeRole.WORKER, 3, "capacity")],
    "the master dies and has no successor": [ClusterMachine, begin(fate="capacity"), lose(NodeRole.MASTER, 0)],
    "one worker dies before it joins": [
        ClusterMachine,
        begin(workers=1),
        ("launches_end", {"role": NodeRole.WORKER, "ends": [""], "listed": False}),
        lose(NodeRole.WORKER, 0),
    ],
    "three workers die before they join": [
        ClusterMachine,
        begin(workers=1, is_manned=True),
        ("workers_die_at_each_boot", {"times": 3}),
    ],
    "a master is requested": [RequestMachine, begin_request()],
    "more is requested than the group takes": [RequestMachine, begin_request(), ask(4)],
    "an update dies and the next one reads what is old": [
        RequestMachine,
        begin_request(is_manned=True),
        ask(0),
        ask(1),
        ask(0, crash=0),
        ask(1, lag=3.0),
    ],
    "the time is over": [StopMachine, begin_stop(1, 120)],
    "the budget is used up, and its message comes twice": [
        StopMachine,
        begin_stop(0, 0),
        use_up_budget(is_redelivered=True),
    ],
    "the budget is used up while the stack is deleted": [
        StopMachine,
        begin_stop(1, 3600),
        ("minutes_pass", {"minutes": 8}),
        ("minutes_pass", {"minutes": 3}),
        ("stack_is_deleted", {}),
        use_up_budget(is_redelivered=False),
    ],
}
"""Name -> state machine and the steps that are played on it: rules and their options."""
