#!/usr/bin/env python3
"""
Training of a classifier of handwritten digits with PyTorch's DistributedDataParallel, under torchrun.

NCCL transfers the gradients between GPUs, Gloo between CPUs. When a worker is lost, torchrun restarts all of them with
their original variables; so each start searches for the newest checkpoint itself, and rank 0 sends its checkpoint to
the others.

    deeplearning run --launcher torchrun -- python3 train_torchrun.py [--epochs N]
    torchrun --standalone --nproc_per_node 2 train_torchrun.py [--epochs N]

PyTorch 1.13's torchrun fails under Python 3.11 if nothing is redirected; `--redirects 9:1 --tee 9:1`, for a local rank
that does not exist, prevents this and changes nothing else.
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
    """Return the complete checkpoints, newest first."""
    return sorted((path for path in folder.iterdir() if _CHECKPOINT.fullmatch(path.name)), reverse=True)


def load_newest(folder: Path) -> dict[str, Any] | None:
    """
    Return the newest readable checkpoint: of this job, or the one from `deeplearning run`.

    Returns:
        None when there is none.
    """
    named = os.environ.get("DEEPLEARNING_RESUME_FROM")
    paths = [*list_checkpoints(folder), *([Path(named)] if named else [])]
    return next((content for path in paths if (content := read_whole(path)) is not None), None)


def read_whole(path: Path) -> dict[str, Any] | None:
    """Return a checkpoint; None, with a message, if it is damaged."""
    try:
        return torch.load(path, map_location="cpu")
    except Exception as error:  # noqa: BLE001 - whatever a damaged file does to its reader, the one before it may do
        sys.stderr.write(f"{path} could not be read, trying the one before it: {error}\n")
        return None


def save_checkpoint(folder: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically, and delete old ones."""
    unfinished = folder / ".epochs.pt"
    torch.save(content, unfinished)
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())  # A name must not become visible before its content.
    unfinished.replace(folder / f"epochs-{content['epochs']:05d}.pt")
    for old in list_checkpoints(folder)[KEPT_CHECKPOINTS:]:
        old.unlink()


def resume(model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> int:
    """
    Send the checkpoint of rank 0 to all ranks.

    Returns:
        Completed epochs of the checkpoint.
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
        device: Device of this rank.
        epochs: Passes in all, with those before the checkpoint.
        folder: Folder of the checkpoints.

    Returns:
        The model, the number of images on which all ranks together have trained, and the duration in seconds.
    """
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    begin = resume(model, optimizer, folder)
    parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    _, images, labels = load_digits()
    (x, y), _ = split(torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device))
    rank, size = dist.get_rank(), dist.get_world_size()
    share = len(y) // size  # the same on all ranks, which would otherwise wait for each other for ever
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
    """Return every rank's item, in rank order."""
    items = [None] * dist.get_world_size()
    dist.all_gather_object(items, item)
    return items


def check_same_weights(model: torch.nn.Module) -> None:
    """
    Check that all ranks have the same weights, bit for bit.

    Raises:
        RuntimeError: They do not.
    """
    content = b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    digests = gather(hashlib.sha256(content).hexdigest())
    if len(set(digests)) != 1:
        raise RuntimeError(f"all ranks must have the same weights, got {digests}")


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
    gc.collect()  # the model is in a reference cycle with the group, whose threads would abort Python's exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
