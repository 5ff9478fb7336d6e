"""Checkpoints, batches, notices and connections of the elastic example."""

import argparse
import json
import socket
import types

import pytest

from tests.real_time import wait_until


def write(content):
    return lambda path: path.write_text(json.dumps(content))


def read(path):
    return json.loads(path.read_text())


def test_the_newest_checkpoint_is_read(elastic, tmp_path):
    for step in (5, 10, 15):
        elastic.save_newest(tmp_path, step, write(f"after {step}"))
    assert elastic.load_newest(tmp_path, read) == "after 15"


def test_no_checkpoint_means_a_new_beginning(elastic, tmp_path):
    assert elastic.load_newest(tmp_path, read) is None


def test_a_checkpoint_whose_writer_dies_is_never_read(elastic, tmp_path):
    def die(path):
        path.write_text('"half"')
        raise KeyboardInterrupt

    elastic.save_newest(tmp_path, 5, write("whole"))
    with pytest.raises(KeyboardInterrupt):
        elastic.save_newest(tmp_path, 10, die)
    assert elastic.load_newest(tmp_path, read) == "whole"


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(elastic, tmp_path, capsys):
    elastic.save_newest(tmp_path, 5, write("before"))
    elastic.save_newest(tmp_path, 10, write("damaged"))
    (tmp_path / "checkpoint-000000010.pt").write_bytes(b"{")
    assert elastic.load_newest(tmp_path, read) == "before"
    assert "checkpoint-000000010.pt could not be read" in capsys.readouterr().err


def test_a_late_checkpoint_of_a_lost_host_does_not_replace_a_newer_one(elastic, tmp_path):
    elastic.save_newest(tmp_path, 20, write("newer"))
    elastic.save_newest(tmp_path, 15, write("late"))
    assert elastic.load_newest(tmp_path, read) == "newer"


def test_old_checkpoints_do_not_fill_the_file_system(elastic, tmp_path):
    for step in range(5, 50, 5):
        elastic.save_newest(tmp_path, step, write(step))
    assert [step for step, _ in elastic.list_checkpoints(tmp_path)] == [45, 40]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("size", [1, 2, 3, 7, 200])
def test_the_ranks_mean_gradient_is_that_of_the_whole_batch_however_many_they_are(elastic, size):
    order = list(range(1000, 1000 + elastic.GLOBAL_BATCH + 30))
    for batch in (0, 1):
        whole = order[batch * elastic.GLOBAL_BATCH : (batch + 1) * elastic.GLOBAL_BATCH]
        shares = [elastic.select_share(order, batch, rank, size) for rank in range(size)]
        assert sorted(example for part, _ in shares for example in part) == whole
        mean = sum(sum(part) * factor for part, factor in shares) / size
        assert mean == pytest.approx(sum(whole) / len(whole))


def test_a_notice_is_new_once_and_again_when_its_text_changes(elastic, tmp_path):
    notice = elastic.Notice(tmp_path / "notice")
    assert not notice.is_new()
    (tmp_path / "notice").write_text('{"reason": "spot"}')
    assert [notice.is_new(), notice.is_new()] == [True, False]
    (tmp_path / "notice").write_text('{"reason": "capacity block"}')
    assert notice.is_new()


class State:
    """Stand-in for Horovod's state, with the attributes that the job uses."""

    def __init__(self):
        self.epoch, self.batch, self.step, self.saved = 0, 0, 0, []
        self.model = self.optimizer = types.SimpleNamespace(state_dict=dict)

    def save(self):
        self.saved.append(self.step)

    def check_host_updates(self):
        pass


@pytest.fixture
def job(elastic, horovod, tmp_path):
    """A job of rank 0 that only counts batches; `others_notice` is what the other ranks have seen."""
    horovod.Sum = "sum"
    job = object.__new__(elastic.Job)
    job.arguments = argparse.Namespace(commit_every=5, checkpoint_every=2, out=tmp_path)
    job.notice = elastic.Notice(tmp_path / "notice")
    job.others_notice = 0.0
    elastic.torch.tensor = sum
    horovod.allreduce = lambda seen, op, name: types.SimpleNamespace(item=lambda: seen + job.others_notice)
    return job


def run_batches(job, state, count):
    for _ in range(count):
        state.step += 1
        job.commit_when_due(state)


def test_commits_and_checkpoints_come_at_their_intervals(elastic, job, tmp_path):
    state = State()
    run_batches(job, state, 24)
    assert state.saved == [5, 10, 15, 20]
    assert [step for step, _ in elastic.list_checkpoints(tmp_path)] == [20, 10]


@pytest.mark.fault(50)
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_notice_on_any_node_makes_a_commit_and_a_checkpoint_at_once(elastic, job, tmp_path, is_ours):
    state = State()
    run_batches(job, state, 6)
    if is_ours:
        (tmp_path / "notice").write_text("{}")
    else:
        job.others_notice = 1.0
    run_batches(job, state, 1)
    job.others_notice = 0.0
    run_batches(job, state, 1)
    assert state.saved == [5, 7]
    assert [step for step, _ in elastic.list_checkpoints(tmp_path)] == [7]


def test_progress_is_a_line_of_json_for_each_event(job, tmp_path):
    state = State()
    job.report("start", state)
    run_batches(job, state, 5)
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [(line["event"], line["batch"], line["size"]) for line in lines] == [("start", 0, 1), ("commit", 5, 1)]
    assert all(set(line) == {"time", "batch", "size", "event"} for line in lines)


class Mesh:
    """Connections as Horovod's transport makes them: each `init` opens three, to sockets of the test."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.pairs, self.ours, self.theirs = [], [], []

    def init(self):
        pairs = [self.connect() for _ in range(3)]
        self.ours, self.theirs = ([pair[side] for pair in pairs] for side in (0, 1))

    def connect(self):
        self.pairs.append((socket.create_connection(self.listener.getsockname()), self.listener.accept()[0]))
        return self.pairs[-1]

    def has_ended(self, index):
        self.theirs[index].settimeout(0.05)
        try:
            return self.theirs[index].recv(1) == b""
        except TimeoutError:
            return False


@pytest.fixture
def mesh(horovod):
    mesh = Mesh()
    horovod.init = mesh.init
    yield mesh
    for connection in (mesh.listener, *(side for pair in mesh.pairs for side in pair)):
        connection.close()


@pytest.fixture
def connections(elastic, mesh):
    connections = elastic.Connections()
    connections.open()
    yield connections
    connections.close()


@pytest.mark.fault(45)
@pytest.mark.parametrize("is_theirs", [True, False])
def test_when_one_connection_is_lost_all_are_ended(connections, mesh, is_theirs):
    assert not any(mesh.has_ended(index) for index in range(3))
    (mesh.theirs if is_theirs else mesh.ours)[0].close()
    wait_until(lambda: mesh.has_ended(1) and mesh.has_ended(2))


def has_any_ended(mesh):
    """Tell after so many looks of 0.05 s each that the thread had its turns."""
    return any(mesh.has_ended(index) for _ in range(3) for index in (1, 2))


def test_a_connection_that_is_not_between_ranks_may_end(connections, mesh):
    _, earlier = mesh.connect()
    connections.open()
    _, later = mesh.connect()
    earlier.close()
    later.close()
    assert not has_any_ended(mesh)


def test_connections_of_the_ranks_before_may_end(connections, mesh):
    old = [*mesh.ours, *mesh.theirs]
    connections.open()
    for connection in old:
        connection.close()
    assert not has_any_ended(mesh)


def test_after_the_job_ranks_may_end(connections, mesh):
    connections.close()
    mesh.ours[0].close()
    wait_until(lambda: mesh.has_ended(0))
    assert not has_any_ended(mesh)


def test_the_kernel_ends_every_connection_of_the_process_that_falls_silent(elastic, connections, mesh):
    def limit(connection):
        probes = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return probes and connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    later, _ = mesh.connect()
    wait_until(lambda: {limit(c) for c in (later, *mesh.ours)} == {elastic.SILENCE_SECONDS * 1000})
