"""`deeplearning logs`: which file it shows, how much of it, and what it says when there is none."""

import pytest

from deeplearning_command.main import main

LINES = [f"line {number}" for number in range(1, 61)]


@pytest.fixture
def logs(job_lab, capfd):
    """Two runs of a job and one of another, which is newer; returns what runs the subcommand."""
    for job, number in (("train", 1), ("train", 2), ("later", 1)):
        folder = job_lab.folder / f"efs/jobs/{job}/runs/{number}"
        folder.mkdir(parents=True)
        for rank in (0, 1):
            text = "\n".join(f"{job}/{number} rank {rank} {line}" for line in LINES)
            (folder / f"rank-{rank}.log").write_text(text + ("\n" if rank else ""))
        (folder / "launcher.log").write_text("launched\n")

    def run(*arguments):
        status = main(["logs", *arguments], job_lab.folder / job_lab.addresses[0])
        captured = capfd.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "prefix"),
    [
        (["train"], "train/2 rank 0"),
        (["train", "--run", "1"], "train/1 rank 0"),
        (["train/1", "--rank", "1"], "train/1 rank 1"),
    ],
)
def test_it_shows_the_last_lines_of_a_rank_of_a_run(logs, arguments, prefix):
    status, out, _ = logs(*arguments, "--lines", "3")
    assert status == 0
    assert out.splitlines() == [f"{prefix} line {number}" for number in (58, 59, 60)]


def test_it_shows_40_lines_where_nobody_says_how_many(logs):
    assert len(logs("train")[1].splitlines()) == 40
    assert logs("train", "--lines", "0")[1] == ""
    assert len(logs("train", "--lines", "1000")[1].splitlines()) == 60


def test_a_bar_without_an_end_gets_one_and_what_it_has_overwritten_long_ago_is_left_out(logs, job_lab):
    log = job_lab.folder / "efs/jobs/train/runs/2/rank-0.log"
    log.write_text("begun\n" + "\r".join(f"{step}/4" + "#" * 1_000_000 for step in range(4)) + "\r4/4")
    _, out, _ = logs("train")
    assert out.endswith("\r4/4\n")
    assert 1_000_000 < len(out) < 3_000_000
    assert logs("later")[1].endswith("line 60\n")


def test_a_log_is_found_by_its_name(logs):
    assert logs("train", "--rank", "launcher")[1] == "launched\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none"], "there is no run none; there are jobs later, train"),
        (["train", "--run", "7"], "there is no run train/7; there are runs 1, 2"),
        (["train", "--rank", "9"], "--rank must name a log of train/2, got '9'; there are launcher, rank-0, rank-1"),
        (["../etc"], "a job's name must be at most 64 letters"),
        (["train", "--lines=-1"], "--lines must not be negative, got -1"),
        ([], "no job has been run"),
    ],
)
def test_a_missing_log_is_reported_with_the_logs_that_exist(logs, arguments, said):
    status, out, err = logs(*arguments)
    assert (status, out) == (2, "")
    assert said in err


def test_the_agents_of_all_nodes_are_shown_and_a_silent_one_is_named(job_lab):
    log = job_lab.folder / "agent.log"
    log.write_text("\n".join(f"\x1b[31mheard {number}" for number in range(5)) + "\n")
    job_lab.silence(1)
    # The test's nodes have no /var/log of their own: what cannot be read is asked of sudo.
    job_lab.write_program("sudo", f'shift 2; shift $(($# - 1)); exec tail -n 2 "{log}"')
    done = job_lab.run("logs", "--agent", "--lines", "2")
    assert done.returncode == 1
    assert done.stdout == (
        "==> deeplearning-worker1 <==\n[31mheard 3\n[31mheard 4\n"
        "==> deeplearning-worker2 <==\nssh: connect to host 10.0.0.10 port 22: timed out\n"
        "(no log: ssh: connect to host 10.0.0.10 port 22: timed out)\n"
    )
