"""Texts on many hosts: what is asked, what comes back, and what is left when it is given up."""

import shutil
import signal
import subprocess
import threading

import pytest

from deeplearning_command.remote.nodes import KEPT_BYTES, Remote
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.membership import Member
from deeplearning_contract.names import host_name
from deeplearning_node.node import LoginUser
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import Programs
from tests.unit.moments import MOST_SECONDS, send, wait_for_end

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey"
FACTS = NodeFacts("c", "master", "i-00000000000000000", "ubuntu", "/mnt/efs", 0)
HERE = 'for word; do address=$before; before=$word; done; exec sh -c "$word"'
"""An `ssh` that runs the text on this machine."""


@pytest.fixture
def ssh(tmp_path):
    """Return a function that writes what `ssh` does; `$address` and `$word` are the host and the text."""
    for name in ("sh", "sleep", "cat"):
        (tmp_path / name).symlink_to(shutil.which(name))

    def write(body):
        (tmp_path / "ssh").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "ssh").chmod(0o755)

    write(HERE)
    return write


@pytest.fixture
def remote(tmp_path, ssh):
    members = tuple((host_name(i), Member(f"i-{i:017x}", f"10.0.0.{9 + i}", 0, f"{KEY}{i}")) for i in range(4))
    user = LoginUser("ubuntu", 1000, 1000, "/home/ubuntu")
    return Remote(FACTS, InstalledMembership(3, members), user, Programs(str(tmp_path)), is_root=False)


def ask(remote, text, hosts=None, **options):
    return remote.run_all(hosts or remote.hosts[:1], text, **{"seconds": 60, **options})


@pytest.mark.parametrize(
    ("text", "status", "output"),
    [
        ("echo out; echo err >&2; exit 3", 3, "out\nerr\n"),
        ("exit 255", 255, ""),
        ("printf half", 0, "half"),
        ("exec sh -c 'exit 4'", 4, ""),
        ("echo before; false", 1, "before\n"),
        ("true # a comment", 0, ""),
    ],
)
def test_the_status_is_the_texts_own_even_255(remote, text, status, output):
    [result] = ask(remote, text)
    assert (result.status, result.output, result.cause) == (status, output, "")


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("echo Host key verification failed. >&2; exit 255", "Host key verification failed."),
        ("exit 255", "ssh ended with status 255"),
        ("kill -9 $$", "ssh ended with status -9"),
        ("sleep 600", "no response in 1 s"),
    ],
)
def test_a_host_without_an_answer_has_a_cause_and_no_status(remote, ssh, body, cause):
    ssh(body)
    [result] = ask(remote, "true", seconds=1)
    assert (result.status, result.cause) == (None, cause)


def test_without_ssh_that_is_the_cause(remote, tmp_path):
    (tmp_path / "ssh").unlink()
    assert [result.cause for result in ask(remote, "true", remote.hosts)] == ["ssh is not installed"] * 4


def test_results_are_in_the_order_asked_and_told_as_they_come(remote, ssh, tmp_path):
    ssh(f"{HERE.partition('exec')[0]}\ncase $address in 10.0.0.9) while ! [ -e {tmp_path}/go ]; do sleep 0.01; done ;; "
        "esac\necho at $address")  # fmt: skip
    told = []

    def tell(result):
        told.append(result.host)
        if len(told) == 3:
            (tmp_path / "go").touch()

    results = ask(remote, "true", remote.hosts, on_result=tell)
    assert [result.output for result in results] == [f"at 10.0.0.{9 + i}\n" for i in range(4)]
    assert [result.host for result in results] == list(remote.hosts)
    assert told[-1] == remote.hosts[0]


def test_lines_are_printed_while_the_text_still_runs(remote, tmp_path):
    lines = []

    def tell(host, line):
        lines.append((host, line))
        (tmp_path / "go").touch()

    text = f"echo first; while ! [ -e {tmp_path}/go ]; do sleep 0.01; done; echo second"
    ask(remote, text, on_line=tell)
    assert lines == [(remote.hosts[0], "first\n"), (remote.hosts[0], "second\n")]


def test_no_more_are_asked_at_once_than_it_says(remote, ssh, tmp_path):
    running = tmp_path / "running"
    running.mkdir()
    ssh(f"for f in {running}/*; do [ -e $f ] && n=x$n; done; echo $n; : > {running}/$$; sleep 0.05; "
        f"exec sh -c 'exec {shutil.which('rm')} {running}/'$$")  # fmt: skip
    results = ask(remote, "true", remote.hosts * 4, at_once=2)
    assert {result.output.strip() for result in results} <= {"", "x"}


def test_only_the_end_of_much_output_is_kept(remote, tmp_path):
    (tmp_path / "much").write_text("0123456789\n" * (KEPT_BYTES // 10) + "last\n")
    [result] = ask(remote, f"cat {tmp_path}/much")
    assert len(result.output) <= KEPT_BYTES
    assert result.output.endswith("9\nlast\n")


def test_an_interruption_waits_for_no_reader_of_the_output(remote, ssh):
    """As `less` stops to read."""
    ssh("echo here; exec sleep 600")
    is_read, seen = threading.Event(), []

    def write(*_):
        send(signal.SIGINT)
        is_read.wait(MOST_SECONDS)

    try:
        with pytest.raises(KeyboardInterrupt):
            ask(remote, "true", on_line=write, on_break=lambda: seen.append(is_read.is_set()))
    finally:
        is_read.set()
    assert seen == [False]


@pytest.mark.parametrize("callback", ["on_line", "on_result"])
def test_an_error_of_a_callback_breaks_the_texts_off(remote, ssh, tmp_path, callback):
    last = f"[ {callback} = on_result ] && [ $address = 10.0.0.9 ] || sleep 600"
    ssh(f"{HERE.partition('exec')[0]}\necho here; {last}")
    broken = []

    def refuse(*_):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        ask(remote, "true", remote.hosts, **{callback: refuse}, on_break=lambda: broken.append(callback))
    assert broken == [callback]
    wait_for_end(tmp_path / "ssh")


def test_host_keys_are_strict_and_root_becomes_the_login_user(remote):
    become = Remote(FACTS, remote.membership, remote.user, remote.programs, is_root=True)
    command = become.command("deeplearning-master", "true")
    assert command[:5] == ["runuser", "-u", "ubuntu", "--", "ssh"]
    assert command[-3:] == ["--", "10.0.0.9", "true"]
    assert {"StrictHostKeyChecking=yes", "UserKnownHostsFile=/dev/null", "-F", "none", "-n", "-T"} <= set(command)
    with_terminal = remote.command("deeplearning-worker2", "top", tty=True)
    assert "-t" in with_terminal
    assert "-n" not in with_terminal


@pytest.mark.parametrize("name", ["deeplearning-worker2", "i-00000000000000001", "10.0.0.10"])
def test_a_host_has_three_names(remote, name):
    assert remote.find(name).address == "10.0.0.10"


def test_an_unknown_host_is_refused_before_any_is_asked(remote, ssh, tmp_path):
    ssh(f": > {tmp_path}/asked")
    with pytest.raises(RefusedError, match=r"host must be one of `deeplearning hosts`, got 'nobody'"):
        ask(remote, "true", ["deeplearning-worker1", "nobody"])
    assert not (tmp_path / "asked").exists()


def test_the_text_arrives_as_one_word(remote, ssh):
    ssh("printf '<%s>' \"$@\"")
    [result] = ask(remote, "echo 'a  b'; $c")
    assert result.output.endswith("echo 'a  b'; $c>")
    assert subprocess.run(["sh", "-n"], input="echo 'a  b'; $c", text=True, check=False).returncode == 0
