"""Injections: their moments, their order, and the result of one that fails or never happens."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.names import NodeRole
from deeplearning_rehearsal.cases.format.case import Injection
from deeplearning_rehearsal.cases.format.triggers import Target, Trigger, parse_target, parse_trigger
from deeplearning_rehearsal.cases.run.injector import Injector
from tests.real_time import GENEROUS_SECONDS


@dataclass
class FakeSituation:
    """A rehearsal whose standing a test sets."""

    launched: dict[str, str] = field(default_factory=dict)
    state: str = ""
    logs: dict[str, str] = field(default_factory=dict)
    is_formed: bool = False
    committed: dict[int, int] = field(default_factory=dict)
    printed: str = ""

    def instance(self, target: Target) -> str | None:
        return self.launched.get(str(target))

    def phase(self) -> str:
        return self.state

    def has_said(self, instance_id: str, text: str) -> bool:
        return text in self.logs.get(instance_id, "")

    def has_formed(self) -> bool:
        return self.is_formed

    def has_printed(self, text: str) -> bool:
        return text in self.printed

    def commits(self, ranks: int) -> int:
        return self.committed.get(ranks, 0)


def _trigger(text: str) -> Trigger:
    trigger = parse_trigger(text)
    assert trigger is not None
    return trigger


@pytest.mark.parametrize(
    ("text", "too_early", "due"),
    [
        ("boot worker 2", {"launched": {"worker 1": "i-1"}}, {"launched": {"worker 2": "i-2"}}),
        ("boot master", {"launched": {"worker 1": "i-1"}}, {"launched": {"master": "i-0"}}),
        ("state published", {"state": "launched"}, {"state": "published"}),
        ("state published", {"state": "formed"}, {"state": "published"}),
        ("formed", {"state": "formed"}, {"is_formed": True}),
        ("submit prints FailedMount", {"printed": "FailedScheduling"}, {"printed": "train-0: FailedMount: x"}),
        ("training commit 5 with 4 ranks", {"committed": {4: 4, 3: 9}}, {"committed": {4: 5}}),
        (
            "worker 1 says reported joined",
            {"launched": {"worker 1": "i-1"}, "logs": {"i-1": "reported ready", "i-2": "reported joined"}},
            {"launched": {"worker 1": "i-1"}, "logs": {"i-1": "INFO reported joined"}},
        ),
        ("worker 1 says reported joined", {"logs": {"i-1": "reported joined"}}, {"launched": {"worker 1": "i-1"}}),
    ],
)
def test_a_moment_has_come_when_its_words_say_so(
    text: str, too_early: dict[str, object], due: dict[str, object]
) -> None:
    logs = {"logs": {"i-1": "reported joined"}} if "says" in text and "logs" not in due else {}
    assert not _trigger(text).is_due(FakeSituation(**too_early), waited=99.0)
    assert _trigger(text).is_due(FakeSituation(**due, **logs), waited=0.0)


def test_a_pause_counts_from_the_injection_before() -> None:
    assert not _trigger("+2.5 s").is_due(FakeSituation(), waited=2.4)
    assert _trigger("+2.5 s").is_due(FakeSituation(), waited=2.5)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "boot", "boot worker", "boot worker 0", "boot node 1", "state ready", "+2 min", "training commit 5"],
)
def test_text_that_is_not_a_moment_is_refused_as_a_trigger(text: str) -> None:
    assert parse_trigger(text) is None


def test_a_master_without_number_is_the_one_launched_last_and_workers_need_one() -> None:
    assert parse_target("master") == Target(NodeRole.MASTER, None)
    assert parse_target("master 1") == Target(NodeRole.MASTER, 1)
    assert parse_target("worker 12") == Target(NodeRole.WORKER, 12)
    assert parse_target("worker") is None


def _inject(
    injections: list[Injection],
    situation: FakeSituation,
    act: Callable[[Injection, str], None],
    seconds: float = GENEROUS_SECONDS,
) -> Injector:
    injector = Injector(injections, situation, act, interval=0.001)
    with injector:
        injector.wait(seconds)
    return injector


def test_injections_strike_in_order_each_at_its_own_moment() -> None:
    situation, seen = FakeSituation(launched={"worker 2": "i-2"}), []

    def act(injection: Injection, instance_id: str) -> None:
        seen.append((injection.do, instance_id, situation.state))
        situation.state = "published"

    worker = Target(NodeRole.WORKER, 2)
    first = Injection(_trigger("boot worker 2"), "silence", worker)
    second = Injection(_trigger("state published"), "send_poison")
    injector = _inject([first, second], situation, act)
    assert seen == [("silence", "i-2", ""), ("send_poison", "", "published")]
    assert [(item.injection, item.instance_id, item.problem) for item in injector.injected] == [
        (first, "i-2", ""),
        (second, "", ""),
    ]
    assert injector.missing == ()


def test_an_injection_whose_moment_never_comes_is_missing_with_all_after_it() -> None:
    never = Injection(_trigger("state failed"), "send_poison")
    always = Injection(_trigger("+0 s"), "send_poison")
    injector = _inject([never, always], FakeSituation(), lambda *_: None, seconds=0.05)
    assert (injector.injected, injector.missing) == ([], (never, always))


def test_an_injection_that_fails_keeps_its_reason_and_the_next_one_strikes() -> None:
    struck = threading.Event()

    def act(injection: Injection, _instance_id: str) -> None:
        if injection.do == "silence":
            raise RehearsalError("no such link")
        struck.set()

    target = Target(NodeRole.WORKER, 1)
    injections = [
        Injection(_trigger("+0 s"), "silence", target),
        Injection(_trigger("+0 s"), "reboot", Target(NodeRole.WORKER, 7)),
        Injection(_trigger("+0 s"), "restore", target),
    ]
    injector = _inject(injections, FakeSituation(launched={"worker 1": "i-1"}), act)
    assert struck.is_set()
    assert [item.problem for item in injector.injected] == [
        "RehearsalError: no such link",
        "RehearsalError: no worker 7 was launched",
        "",
    ]
