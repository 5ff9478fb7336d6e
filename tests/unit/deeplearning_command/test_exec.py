"""`deeplearning exec`: a command on many hosts."""

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deeplearning_command.cluster import exec as exec_command
from deeplearning_command.remote import nodes
from deeplearning_node import signals
from tests.unit.deeplearning_command.master_node import run, write_membership
from tests.unit.moments import given_up, interrupt_at, list_lines, send, wait_for_end

HERE = """
for word; do address=$before; before=$word; done
export ADDRESS=$address
sh -c "$word" 2>&1 | cat
"""
"""
An `ssh` that runs the text on this machine; `$ADDRESS` tells the host.

As with a real one, what it started does not hold its caller's pipe.
"""


@pytest.fixture
def hosts(lab, node):
    """Three hosts that are this machine."""
    write_membership(node, 3)
    for name in ("bash", "timeout", "printenv", "cut", "echo"):
        if shutil.which(name):
            (lab.directory / "programs0" / name).symlink_to(shutil.which(name))
    lab.program(0, "ssh", HERE)
    return node


def test_every_line_has_its_hosts_name_and_a_table_ends_it(hosts, capsys):
    assert run(hosts, "exec", "--", "echo at $ADDRESS; echo more >&2") == 0
    captured = capsys.readouterr()
    assert sorted(captured.out.splitlines()) == sorted(
        f"deeplearning-worker{i + 1} | {text}" for i in range(3) for text in (f"at 10.0.0.{9 + i}", "more")
    )
    assert captured.err == (
        "\nHOST                  STATUS\n"
        + "".join(f"deeplearning-worker{i + 1}  0\n" for i in range(3))
        + "\n3 of 3 hosts ended with status 0\n"
    )


def test_one_status_that_is_not_0_is_reported_and_is_bad_news(hosts, capsys):
    assert run(hosts, "exec", "--", "[ $ADDRESS = 10.0.0.10 ] && exit 255; true") == 1
    table = capsys.readouterr().err
    assert "deeplearning-worker2  255\n" in table
    assert table.endswith("2 of 3 hosts ended with status 0\n")


def test_a_host_that_does_not_answer_is_named(lab, hosts, capsys):
    refuse = "[ $ADDRESS = 10.0.0.11 ] && { echo No route to host; exit 255; }"
    lab.program(0, "ssh", HERE.replace("sh -c", f"{refuse}\nsh -c"))
    assert run(hosts, "exec", "--", "true") == 1
    table = capsys.readouterr().err
    assert "deeplearning-worker3  none    No route to host\n" in table
    assert table.endswith("2 of 3 hosts ended with status 0; no response from deeplearning-worker3\n")


def test_several_words_are_a_program_and_its_arguments_as_they_are(hosts, capsys):
    assert run(hosts, "exec", "--hosts", "deeplearning-worker1", "--", "sh", "-c", 'echo "$1"', "x", "a  $b; 'c'") == 0
    assert capsys.readouterr().out == "deeplearning-worker1 | a  $b; 'c'\n"


def test_only_the_named_hosts_are_asked_each_once(hosts, capsys):
    names = "i-00000000000000002,deeplearning-worker1,,deeplearning-worker1"
    assert run(hosts, "exec", "--hosts", names, "echo", "here") == 0
    lines = sorted(line.split(" ")[0] for line in capsys.readouterr().out.splitlines())
    assert lines == ["deeplearning-worker1", "i-00000000000000002"]


def test_a_command_that_takes_too_long_is_ended_on_the_host(hosts, capsys):
    assert run(hosts, "exec", "--timeout", "1", "--hosts", "10.0.0.9", "--", "echo $$; exec sleep 600") == 1
    captured = capsys.readouterr()
    assert "10.0.0.9  124     took longer than 1 s" in captured.err
    pid = captured.out.split("|")[1].strip()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a command must be given"),
        (["--"], "a command must be given"),
        (["--hosts", ",", "--", "true"], "--hosts must name hosts separated by commas, got ','"),
        (["--hosts", "nobody", "--", "true"], "host must be one of `deeplearning hosts`, got 'nobody'"),
    ],
)
def test_nothing_to_run_and_nowhere_to_run_it_are_refused(hosts, capsys, arguments, message):
    assert run(hosts, "exec", *arguments) == 2
    assert f"deeplearning exec: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--at-once", "0"], ["--timeout", "0"], ["--timeout", "x"]])
def test_limits_are_whole_numbers_of_at_least_1(hosts, capsys, arguments):
    with pytest.raises(SystemExit):
        run(hosts, "exec", *arguments, "--", "true")
    assert "of at least 1, got" in capsys.readouterr().err


def join_connections():
    """Wait for the threads that a command leaves to themselves."""
    for thread in threading.enumerate():
        if thread.name.startswith("remote"):
            thread.join()


@pytest.fixture
def endless(hosts, tmp_path):
    """Return a function that runs a command that ends by itself on no host, and is interrupted when all run it."""
    up = f"{tmp_path}/up.$ADDRESS"
    text = f": >{up}; while [ -e {up} ] && ! [ -e {tmp_path}/over ]; do sleep 0.05; done"

    def execute(number=signal.SIGINT):
        for path in tmp_path.glob("up.*"):
            path.unlink()
        has_ended = threading.Event()

        def interrupt():
            while not has_ended.is_set() and len(list(tmp_path.glob("up.*"))) < 3:
                time.sleep(0.01)
            if not has_ended.is_set():
                send(number)

        waiting = threading.Thread(target=interrupt)
        waiting.start()
        try:
            with given_up(tmp_path / "over"):
                status = run(hosts, "exec", "--", text)
                with contextlib.suppress(KeyboardInterrupt):  # One that a thread sends when the command has ended.
                    join_connections()
                join_connections()
                return status
        finally:
            has_ended.set()
            waiting.join()

    return execute


@pytest.mark.parametrize("number", signals.STOP_SIGNALS, ids=lambda number: number.name)
def test_an_interruption_ends_the_command_on_every_host_and_nothing_else(endless, capsys, tmp_path, number):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with signals.handle_stops(signals.interrupt):  # By default all but Ctrl-C would end the tests as well.
            assert endless(number) == 130
        assert capsys.readouterr().err == "\nending the command on all hosts\nended on all hosts\n\ninterrupted\n"
        assert len(list(tmp_path.glob("up.*"))) == 3
        wait_for_end(tmp_path / "over")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_no_moment_loses_an_interruption_or_leaves_the_command_on_a_host(endless, tmp_path):
    """Also a second interruption, at a moment in which the first one is handled, leaves nothing."""
    modules = (exec_command, nodes, signals)
    endless()  # Imports what only a first use imports.
    parts = ("run", "_end", "hold_stops", "Remote.run_all", "_Connections.run", "_Connections.end")
    moments = [line for line in list_lines(modules, endless) if line.partition(":")[0] in parts]
    assert {line.partition(":")[0] for line in moments} == set(parts)
    for moment in moments:
        assert (moment, interrupt_at(moment, modules, endless)) == (moment, 130)
        wait_for_end(tmp_path / "over")
