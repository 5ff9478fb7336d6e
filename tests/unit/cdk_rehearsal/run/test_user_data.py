"""The end of user data: a stack that nobody will signal any more, and lines that name limits of the lab."""

from types import SimpleNamespace

import pytest

from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.run import user_data
from cdk_rehearsal.run.user_data import await_stack, find_limit, list_limits

RUNNING, DONE = "boots\n", "boots\nCloud-init v. 22.4.2 finished at Fri, 27 Nov 2026 08:00:00 +0000.\n"


class FakeCloud:
    """A stack that waits for signals until it is given up; each look at it takes a second."""

    def __init__(self, clock, events=()):
        self.clock, self.events, self.reason, self.waits = clock, dict(events), "", True

    def wait(self, seconds):
        self.clock.now += seconds
        for at in [at for at in self.events if at <= self.clock.now]:
            self.events.pop(at)()
        status = "ROLLBACK_COMPLETE" if self.reason else "CREATE_IN_PROGRESS" if self.waits else "CREATE_COMPLETE"
        return StackOutcome(status, self.reason, (), {}, ())

    def awaits_signals(self):
        return self.waits

    def give_up_signals(self, reason):
        self.reason = reason


class FakeFleet:
    """Two machines with logs."""

    def __init__(self):
        self.logs = dict.fromkeys(("i-1", "i-2"), RUNNING)
        self.last_signal_at = None

    def machines(self):
        return tuple(SimpleNamespace(instance_id=name) for name in self.logs)

    launched = machines

    def read_log(self, name):
        return self.logs[name]

    def lines(self, name):
        return tuple(self.logs[name].splitlines()[:1])


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(user_data.time, "monotonic", lambda: made.now)
    return made


def test_a_stack_fails_soon_after_the_user_data_of_every_instance_has_ended(clock):
    fleet = FakeFleet()
    cloud = FakeCloud(
        clock, {10: lambda: fleet.logs.update({"i-1": DONE}), 20: lambda: fleet.logs.update({"i-2": DONE})}
    )
    outcome = await_stack(cloud, fleet, deadline=600.0)
    assert outcome.status == "ROLLBACK_COMPLETE"
    assert outcome.reason == (
        "signals are missing, and the user data of every instance has ended; the last lines of i-1 and i-2: boots"
    )
    assert 20 + user_data._GRACE_SECONDS < clock.now < 20 + user_data._GRACE_SECONDS + 5


def test_a_signal_of_a_service_that_user_data_started_prolongs_the_wait(clock):
    fleet = FakeFleet()
    fleet.logs = dict.fromkeys(fleet.logs, DONE)

    def signal():
        fleet.last_signal_at = clock.now

    cloud = FakeCloud(clock, {14: signal, 28: signal, 40: lambda: setattr(cloud, "waits", False)})
    assert await_stack(cloud, fleet, deadline=600.0).status == "CREATE_COMPLETE"


def test_a_stack_that_waits_for_no_signal_or_has_instances_that_still_boot_is_not_given_up(clock):
    fleet = FakeFleet()
    assert await_stack(FakeCloud(clock), fleet, deadline=100.0).status == "CREATE_IN_PROGRESS"
    fleet.logs = {}
    assert await_stack(FakeCloud(clock), fleet, deadline=200.0).status == "CREATE_IN_PROGRESS"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("E: Unable to locate package nginx", "no package nginx; --apt nginx adds it"),
        ("E: Package 'jq' has no installation candidate", "no package jq; --apt jq"),
        ("No match for argument: httpd", "dnf of the rehearsal has no package httpd"),
        ("curl: (6) Could not resolve host: example.com", "there is no example.com in the rehearsal"),
        ("wget: unable to resolve host address ‘example.com’", "there is no example.com"),  # noqa: RUF001 - as wget
        ("fatal: unable to access 'https://x/': Could not resolve host: github.com", "there is no github.com"),
        (
            "(host='pypi.example', port=443): Max retries exceeded (Caused by 'Failed to establish a new connection",
            "there is no pypi.example",
        ),
        ("part-001: line 9: /opt/aws/bin/cfn-init: No such file or directory", "cfn-init is not in the rehearsal"),
        ("part-001: line 3: aws: command not found", "the rehearsal's Debian has no program aws"),
        ("/var/lib/cloud/instance/scripts/part-001: 3: aws: not found", "Debian has no program aws"),
        ("all is well", ""),
    ],
)
def test_lines_for_want_of_something_name_the_limit_of_the_lab(line, words):
    assert words in find_limit(line)
    assert bool(find_limit(line)) == bool(words)


def test_a_limit_is_listed_once():
    fleet = FakeFleet()
    fleet.logs = dict.fromkeys(fleet.logs, "E: Unable to locate package nginx")
    assert len(list_limits(fleet)) == 1
