"""The actions that a case file may name, with the options of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeplearning_rehearsal.cases.format.toml_table import Table

FOUND_DEAD_SECONDS = 20.0
"""How long EC2 takes to find a dead machine, unless a case says otherwise; in truth minutes."""

NOTICE_SECONDS = 120.0
"""EC2 announces the interruption of a spot instance two minutes before."""


@dataclass(frozen=True)
class Option:
    """
    An option of an action.

    Attributes:
        read: Reads it from its table.
    """

    read: Callable[[Table, str], Any]


@dataclass(frozen=True)
class ActionWords:
    """
    How a case file asks for an action.

    Attributes:
        meaning: What it does, in a few words.
        has_target: Whether it is done to a machine.
        options: Its options by name.
    """

    meaning: str
    has_target: bool = True
    options: Mapping[str, Option] = field(default_factory=dict)


def _number(default: int | None = None) -> Option:
    return Option(lambda table, key: table.need(key, int) if default is None else table.get(key, int, default))


_FOUND_DEAD = Option(lambda table, key: table.number_or(key, "never", FOUND_DEAD_SECONDS))
_DELAY = Option(lambda table, key: table.get(key, float, 0.0))
_SECONDS = Option(lambda table, key: table.need(key, float))
_TROUBLE = Option(lambda table, key: table.choose(key, ("hang", "unresolvable")))
_LINE = Option(lambda table, key: table.need(key, str))
_NOTICE = Option(lambda table, key: table.get(key, float, NOTICE_SECONDS))

ACTION_WORDS: Mapping[str, ActionWords] = {
    "power_off": ActionWords(
        "the machine dies; EC2 finds it dead later, or never", options={"found_dead_after": _FOUND_DEAD}
    ),
    "silence": ActionWords("all packets of the machine are dropped, while it goes on running"),
    "restore": ActionWords("a silenced machine is heard again"),
    "reboot": ActionWords("the machine loses power and starts again with its disk"),
    "fail_instance": ActionWords("EC2 finds the running machine dead, so that its group replaces it"),
    "run_user_data_again": ActionWords("the machine's user data runs a second time"),
    "spot_notice": ActionWords("EC2 announces that it takes the machine back, and does", options={"seconds": _NOTICE}),
    "set_gpus": ActionWords(
        "nvidia-smi shows so many GPUs and uncorrected ECC errors, so much later",
        options={"count": _number(), "ecc_errors": _number(0), "answer_seconds": _DELAY},
    ),
    "break_mounts": ActionWords(
        "mounts that begin now hang, or do not resolve their server, for a time",
        options={"trouble": _TROUBLE, "seconds": _SECONDS},
    ),
    "fill_disk": ActionWords("the machine's disk is full, but for a rest", options={"free_mib": _number(0)}),
    "slow_metadata": ActionWords("the metadata service answers so much later", options={"seconds": _SECONDS}),
    "stop_sshd": ActionWords("the machine's SSH server stops"),
    "start_sshd": ActionWords("it starts again"),
    "run": ActionWords("a shell line runs as root on the machine", options={"line": _LINE}),
    "send_poison": ActionWords("malformed messages are put on every queue and topic", has_target=False),
    "age_groups": ActionWords(
        "Auto Scaling says that its groups were made so much earlier, as if so much time had passed",
        has_target=False,
        options={"seconds": _SECONDS},
    ),
    "set_workers": ActionWords(
        "the operator sets the desired capacity of the workers", has_target=False, options={"count": _number()}
    ),
}
