#!/usr/bin/env python3
"""
Elastic training of a classifier of handwritten digits with Horovod: workers may leave and join while it runs.

Every rank takes a part of each batch of the digits of `digits.py`. All ranks commit every few batches; rank 0 writes a
checkpoint to the shared file system, from which a restarted job resumes. Rank 0 appends its progress to
`progress.jsonl` and, at the end, writes the accuracy on held-out digits to `result.json` and prints it.

    run_elastic.sh train_elastic.py [--epochs N] [--commit-every BATCHES] [--batch-seconds S] [--out FOLDER]
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import select
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from digits import SEED, load_digits, split
from horovod.common.elastic import run_fn
from horovod.torch.elastic import TorchState

GLOBAL_BATCH = 128
NOTICE = Path("/opt/deeplearning/notice")
"""File that appears before this node, or the whole capacity, ends."""
KEPT_CHECKPOINTS = 2
SILENCE_SECONDS = 5
"""Seconds without responses to probes until a host is lost; its kernel responds even if programs are busy."""

_CHECKPOINT = re.compile(r"checkpoint-(\d{9})\.pt")


class Connections:
    """
    Connections between this rank and the others; when one is lost, all are closed at once.

    Horovod's transport alone is not enough. It detects a lost peer only on the rank that waits for it: other ranks wait
    for HOROVOD_GLOO_TIMEOUT_SECONDS, which must be long because starting ranks need it. A host without a network does
    not close its connections. Therefore the kernel probes every connection, independent of busy programs, and closes it
    after SILENCE_SECONDS without a response; a thread passes a loss on to all ranks, so that all abort the same batch.
    The thread watches all connections of the process, since the connection to Horovod's launcher on the master must not
    hang either.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peers: dict[int, tuple[int, socket.socket]] = {}
        self._poll = select.poll()
        self._is_closed = threading.Event()
        threading.Thread(target=self._watch, name="connections", daemon=True).start()

    def open(self) -> None:
        """Connect this rank with the others through Horovod, and forget earlier connections."""
        self.forget()
        hvd.shutdown()
        before = {inode for _, inode in _list_sockets()}
        hvd.init()
        opened = [(number, inode) for number, inode in _list_sockets() if inode not in before]
        with self._lock:
            for number, inode in opened:
                duplicate = socket.socket(fileno=os.dup(number))
                if _is_connected(duplicate):
                    self._peers[number] = inode, duplicate
                    self._poll.register(duplicate, select.POLLRDHUP)

    def forget(self) -> None:
        """Stop to watch the ranks."""
        with self._lock:
            for _, duplicate in self._peers.values():
                duplicate.close()
            self._peers, self._poll = {}, select.poll()

    def close(self) -> None:
        """Stop the thread; connections stay unchanged."""
        self.forget()
        self._is_closed.set()

    def _watch(self) -> None:
        while not self._is_closed.is_set():
            for number, _ in _list_sockets():
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as duplicate:
                    _limit_silence(duplicate)
            for _ in range(25):
                with self._lock:
                    if self._has_lost_one():
                        self._end_all()
                self._is_closed.wait(0.02)

    def _has_lost_one(self) -> bool:
        return bool(self._poll.poll(0)) or any(_inode(number) != inode for number, (inode, _) in self._peers.items())

    def _end_all(self) -> None:
        for _, duplicate in self._peers.values():
            with contextlib.suppress(OSError):  # It has ended.
                duplicate.shutdown(socket.SHUT_RDWR)


def _list_sockets() -> list[tuple[int, int]]:
    """Return (descriptor, inode) of each socket of this process."""
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return [(number, inode) for number in numbers if (inode := _inode(number))]


def _inode(descriptor: int) -> int:
    """Return the inode of a socket; 0 for anything else."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return 0  # It has been closed.
    return status.st_ino if stat.S_ISSOCK(status.st_mode) else 0


def _is_connected(connection: socket.socket) -> bool:
    try:
        connection.getpeername()
    except OSError:
        return False
    return connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM


def _limit_silence(connection: socket.socket) -> None:
    """Make the kernel close a connection without a response for SILENCE_SECONDS."""
    if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_SECONDS * 1000)


def save_newest(folder: Path, step: int, write: Callable[[Path], None]) -> None:
    """
    Write a checkpoint atomically, and delete old ones. Its name contains the step: a lost host whose network returns
    never replaces a newer one.

    Args:
        folder: Folder of the checkpoints. step: Completed batches.
        write: Function that writes the content to a path.
    """
    unfinished = folder / f".{socket.gethostname()}-{os.getpid()}.unfinished"
    write(unfinished)
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())  # A name must not become visible before its content.
    unfinished.replace(folder / f"checkpoint-{step:09d}.pt")
    for _, old in list_checkpoints(folder)[KEPT_CHECKPOINTS:]:
        old.unlink(missing_ok=True)


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of the complete checkpoints, newest first."""
    found = ((_CHECKPOINT.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def load_newest(folder: Path, read: Callable[[Path], Any]) -> Any:
    """
    Return the newest readable checkpoint.

    Args:
        folder: Folder of the checkpoints. read: Function that reads the content from a path.

    Returns:
        None when there is none.
    """
    contents = (_read_whole(path, read) for _, path in list_checkpoints(folder))
    return next((content for content in contents if content is not None), None)


def _read_whole(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except Exception as error:  # noqa: BLE001 - whatever a damaged file does to its reader, the one before it may do
        sys.stderr.write(f"{path} could not be read, trying the one before it: {error}\n")
        return None


def select_share(order: list[int], batch: int, rank: int, size: int) -> tuple[list[int], float]:
    """
    Return this rank's part of a batch, and the factor that turns the ranks' mean gradient into the batch's.

    The batches do not depend on the number of ranks, so training is the same after ranks are lost. A rank's part may be
    empty.

    Args:
        order: The epoch's order of all examples.
        batch: Number of the batch in the epoch.
        rank: This rank.
        size: Number of ranks.
    """
    whole = order[batch * GLOBAL_BATCH : (batch + 1) * GLOBAL_BATCH]
    return whole[rank::size], size / len(whole)


class Notice:
    """
    Notice that capacity ends soon.

    Args:
        path: File in which it appears.
    """

    def __init__(self, path: Path = NOTICE) -> None:
        self._path = path
        self._seen: bytes | None = None

    def is_new(self) -> bool:
        """Return whether the notice has changed since the last call."""
        try:
            text = self._path.read_bytes()
        except OSError:
            return False
        is_new, self._seen = text != self._seen, text
        return is_new


def load_parts() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return (images, labels) for training, and the held-out ones."""
    _, images, labels = load_digits()
    return split(torch.from_numpy(images), torch.from_numpy(labels))


class Job:
    """
    Training job in this process.

    Args:
        arguments: Arguments of the command line.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.parts = load_parts()
        self.notice = Notice()
        self.begin = time.monotonic()
        self.has_started = False
        torch.manual_seed(SEED)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)

    def open_state(self) -> TorchState:
        """
        Return the state that all ranks share, from the newest checkpoint or new.

        Only rank 0 reads the checkpoint; the others, also those that join later, receive the state from rank 0.
        """
        # The optimizer is wrapped before its state is loaded: the wrapper is a new optimizer without the state.
        optimizer = hvd.DistributedOptimizer(self.optimizer, named_parameters=self.model.named_parameters())
        progress = {"epoch": 0, "batch": 0, "step": 0}
        checkpoint = load_newest(self.arguments.out, torch.load) if hvd.rank() == 0 else None
        if checkpoint is not None:
            self.model.load_state_dict(checkpoint.pop("model"))
            optimizer.load_state_dict(checkpoint.pop("optimizer"))
            progress = checkpoint
        return TorchState(model=self.model, optimizer=optimizer, **progress)

    def train(self, state: TorchState) -> None:
        """Train to the end; called again with the last commit's state each time the membership changes."""
        self.report("reset" if self.has_started else "start", state)
        self.has_started = True
        (x, y), _ = self.parts
        while state.epoch < self.arguments.epochs:
            shuffle = torch.Generator().manual_seed(SEED + state.epoch)
            order = torch.randperm(len(y), generator=shuffle).tolist()
            while state.batch * GLOBAL_BATCH < len(order):
                part, factor = select_share(order, state.batch, hvd.rank(), hvd.size())
                state.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(state.model(x[part]), y[part], reduction="sum")
                (loss * factor).backward()
                state.optimizer.step()
                time.sleep(self.arguments.batch_seconds)
                state.batch += 1
                state.step += 1
                self.commit_when_due(state)
            state.epoch += 1
            state.batch = 0
        self.finish(state)

    def commit_when_due(self, state: TorchState) -> None:
        """Commit at the interval of the flags, and at once when a node has a new notice."""
        # All ranks commit together or not at all, so each needs the notices of all.
        seen = torch.tensor([float(self.notice.is_new())])
        is_noticed = bool(hvd.allreduce(seen, op=hvd.Sum, name="notice").item())
        interval = self.arguments.commit_every
        if not is_noticed and state.step % interval != 0:
            return
        state.save()
        if is_noticed or state.step // interval % self.arguments.checkpoint_every == 0:
            self.save_checkpoint(state)
        self.report("commit", state)
        state.check_host_updates()  # Raises an exception if hosts have joined or left.

    def save_checkpoint(self, state: TorchState) -> None:
        """Write the checkpoint on rank 0."""
        if hvd.rank() != 0:
            return
        content = {name: getattr(state, name) for name in ("epoch", "batch", "step")}
        content |= {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}
        save_newest(self.arguments.out, state.step, lambda path: torch.save(content, path))

    def report(self, event: str, state: TorchState) -> None:
        """Append a line of progress on rank 0."""
        if hvd.rank() != 0:
            return
        line = {"time": time.time(), "batch": state.step, "size": hvd.size(), "event": event}
        with (self.arguments.out / "progress.jsonl").open("a") as progress:
            progress.write(json.dumps(line) + "\n")

    def finish(self, state: TorchState) -> None:
        """
        Check that the ranks agree; on rank 0, measure, write and print the result.

        Raises:
            RuntimeError: The ranks have different weights.
        """
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in state.model.parameters())).hexdigest()
        digests = hvd.allgather_object(digest)
        if len(set(digests)) != 1:
            raise RuntimeError(f"all ranks must have the same weights, got {digests}")
        hosts = hvd.allgather_object(socket.gethostname())
        self.save_checkpoint(state)
        if hvd.rank() != 0:
            return
        (_, y), (held_out_x, held_out_y) = self.parts
        accuracy = (state.model(held_out_x).argmax(1) == held_out_y).float().mean().item()
        result = {
            "framework": f"PyTorch {torch.__version__}",
            "ranks": hvd.size(),
            "hosts": hosts,
            "dataset": "scikit-learn digits",
            "trained_on": len(y),
            "held_out": len(held_out_y),
            "accuracy": round(accuracy, 4),
            "seconds": round(time.monotonic() - self.begin, 2),
        }
        unfinished = self.arguments.out / ".result.json"
        unfinished.write_text(json.dumps(result) + "\n")
        unfinished.replace(self.arguments.out / "result.json")
        self.report("done", state)
        print(json.dumps(result), flush=True)  # noqa: T201 - the program's result


def main() -> None:
    """Resume from the newest checkpoint, or start."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with Horovod Elastic and PyTorch.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training part (default: %(default)s)")
    parser.add_argument("--commit-every", type=int, default=5, metavar="BATCHES", help="default: %(default)s")
    parser.add_argument("--checkpoint-every", type=int, default=1, metavar="COMMITS", help="default: %(default)s")
    parser.add_argument("--batch-seconds", type=float, default=0.0, help="pause after each batch (default: none)")
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ["EFS_MOUNT"], "train_elastic"), help="result folder"
    )
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # ranks share the machine's cores
    connections = Connections()
    connections.open()
    job = Job(arguments)
    # Like horovod.torch.elastic.run, with our own reconnection.
    run_fn(job.train, connections.open)(job.open_state())
    connections.close()  # From here on, ranks that end are not lost.


if __name__ == "__main__":
    main()
