#!/usr/bin/env python3
"""
Trains a classifier of handwritten digits with PyTorch's DistributedDataParallel, under torchrun.

NCCL carries the gradients between GPUs, Gloo between CPUs. When a worker is lost, torchrun starts all of them anew,
with the variables that they had at first; so each start looks for the newest checkpoint itself, and rank 0 tells the
others what it found.

    deeplearning run --launcher torchrun -- python3 train_torchrun.py [--epochs N]
    torchrun --standalone --nproc_per_node 2 train_torchrun.py [--epochs N]

PyTorch 1.13's torchrun fails under Python 3.11 when nothing is redirected; `--redirects 9:1 --tee 9:1`, about a local
rank that nobody has, keeps it from that and changes nothing else.
"""

import argparse
import gc
import hashlib
import json
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from digits import SEED, load_digits, split
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH = 128
KEPT_CHECKPOINTS = 2
_CHECKPOINT = re.compile(r"epochs-(\d{5})\.pt")


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the whole checkpoints, the newest first."""
    return sorted((path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name)), reverse=True)


def load_newest(folder: Path) -> dict[str, Any] | None:
    """
    Read the newest checkpoint that can be read: of this job, or the one that `deeplearning run` names.

    Returns:
        None when there is none.
    """
    named = os.environ.get("DEEPLEARNING_RESUME_FROM")
    paths = [*list_checkpoints(folder), *([Path(named)] if named else [])]
    return next((content for path in paths if (content := read_whole(path)) is not None), None)


def read_whole(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint; None, with a message, when it is damaged."""
    try:
        return torch.load(path, map_location="cpu")
    except Exception as error:  # noqa: BLE001 - whatever a damaged file does to its reader, the one before it may do
        sys.stderr.write(f"{path} could not be read, trying the one before it: {error}\n")
        return None


def save_checkpoint(folder: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint, whole or not at all, and forget old ones."""
    unfinished = folder / ".epochs.pt"
    torch.save(content, unfinished)
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())  # A name must not become visible before its content.
    unfinished.replace(folder / f"epochs-{content['epochs']:05d}.pt")
    for old in list_checkpoints(folder)[KEPT_CHECKPOINTS:]:
        old.unlink()


def resume(model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> int:
    """
    Give all ranks what rank 0 finds.

    Returns:
        The epochs behind the checkpoint.
    """
    found = [load_newest(folder) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    content = found[0]
    if content is None:
        return 0
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    return content["epochs"]


def train(device: torch.device, epochs: int, folder: Path) -> tuple[torch.nn.Module, int, float]:
    """
    Train on this rank's part of each batch.

    Args:
        device: Of this rank.
        epochs: Passes in all, with those behind the checkpoint.
        folder: Of the checkpoints.

    Returns:
        The model, how many images all ranks together have trained on, and the seconds it took.
    """
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    begin = resume(model, optimizer, folder)
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    _, images, labels = load_digits()
    (x, y), _ = split(torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device))
    rank, size = dist.get_rank(), dist.get_world_size()
    share = len(y) // size  # the same on all ranks, or they would wait for each other for ever
    started = time.monotonic()
    for epoch in range(begin, epochs):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(SEED + epoch))
        for part in order[rank::size][:share].split(max(1, GLOBAL_BATCH // size)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(parallel(x[part]), y[part]).backward()
            optimizer.step()
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_checkpoint(folder, {"epochs": epoch + 1, **state})
    return model, share * size * max(0, epochs - begin), time.monotonic() - started


def gather(item: Any) -> list[Any]:
    """Return every rank's item, in the ranks' order."""
    items = [None] * dist.get_world_size()
    dist.all_gather_object(items, item)
    return items


def check_same_weights(model: torch.nn.Module) -> None:
    """
    Make sure that all ranks hold the same weights, bit for bit.

    Raises:
        RuntimeError: They do not.
    """
    content = b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    digests = gather(hashlib.sha256(content).hexdigest())
    if len(set(digests)) != 1:
        raise RuntimeError(f"all ranks must hold the same weights, got {digests}")


def main() -> None:
    """Train, check and print."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with torchrun.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training part (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the checkpoints outside of `deeplearning run`")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # ranks share the machine's cores
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpu else "gloo")
    out = arguments.out or Path(os.environ["EFS_MOUNT"], "train_torchrun")
    folder = Path(os.environ.get("DEEPLEARNING_CHECKPOINT_PATH") or out)
    folder.mkdir(parents=True, exist_ok=True)
    model, trained, seconds = train(device, arguments.epochs, folder)
    check_same_weights(model)
    hosts = gather(socket.gethostname())
    if dist.get_rank() == 0:
        name, images, labels = load_digits()
        (_, y), (held_out_x, held_out_y) = split(images, labels)
        answers = model(torch.from_numpy(held_out_x).to(device)).argmax(1).cpu().numpy()
        result = {
            "framework": f"PyTorch {torch.__version__}",
            "launcher": "torchrun",
            "ranks": dist.get_world_size(),
            "hosts": hosts,
            "dataset": name,
            "trained_on": len(y),
            "held_out": len(held_out_y),
            "accuracy": round(float((answers == held_out_y).mean()), 4),
            "seconds": round(seconds, 2),
            "samples_per_second": round(trained / seconds, 1),
        }
        print(json.dumps(result), flush=True)  # noqa: T201 - the program's result
    gc.collect()  # the parallel model is in a cycle and holds the group, whose threads would abort the exit of Python
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
