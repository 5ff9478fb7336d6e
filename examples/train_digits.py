#!/usr/bin/env python3
"""
Trains a classifier of handwritten digits, data-parallel with Horovod and PyTorch.

Every rank takes a part of scikit-learn's digits; rank 0 measures the accuracy on held-out digits, writes checkpoint and
result to the shared file system and prints the result as one line of JSON.

    run_horovod.sh train_digits.py [--epochs N] [--out FOLDER]
"""

import argparse
import hashlib
import json
import os
import socket
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits

SEED = 2018
HELD_OUT = 0.2
GLOBAL_BATCH = 128


def load_parts() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """
    Return (images, labels) for training and the held-out ones.

    The digits come sorted by writer, so they are shuffled first, with one seed on all ranks.
    """
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    x = torch.tensor(images / 16.0, dtype=torch.float32)[order]
    y = torch.tensor(labels, dtype=torch.long)[order]
    held_out = int(len(y) * HELD_OUT)
    return (x[held_out:], y[held_out:]), (x[:held_out], y[:held_out])


def train(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int) -> None:
    """Train on this rank's part; the batch over all ranks stays the same, however many there are."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    share = len(y) // hvd.size()  # the same on all ranks, or they would wait for each other for ever
    batch = max(1, GLOBAL_BATCH // hvd.size())
    shuffle = torch.Generator().manual_seed(SEED)
    for _ in range(epochs):
        mine = torch.randperm(len(y), generator=shuffle)[hvd.rank() :: hvd.size()][:share]
        for part in mine.split(batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()


def check_same_weights(model: torch.nn.Module) -> None:
    """
    Make sure that all ranks hold the same weights, bit for bit.

    Raises:
        RuntimeError: They do not.
    """
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    digests = hvd.allgather_object(digest)
    if len(set(digests)) != 1:
        raise RuntimeError(f"all ranks must hold the same weights, got {digests}")


def save(folder: Path, model: torch.nn.Module, result: dict[str, object]) -> None:
    """Write checkpoint and result, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / ".checkpoint.pt")
    (folder / ".result.json").write_text(json.dumps(result) + "\n")
    for name in ("checkpoint.pt", "result.json"):
        (folder / f".{name}").replace(folder / name)


def main() -> None:
    """Train, check, save and print."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with Horovod and PyTorch.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training part (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(os.environ["EFS_MOUNT"], "train_digits"), help="result folder")
    arguments = parser.parse_args()

    hvd.init()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # ranks share the machine's cores
    (x, y), (held_out_x, held_out_y) = load_parts()
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    begin = time.monotonic()
    train(model, x, y, arguments.epochs)
    seconds = time.monotonic() - begin
    check_same_weights(model)
    hosts = hvd.allgather_object(socket.gethostname())
    if hvd.rank() == 0:
        accuracy = (model(held_out_x).argmax(1) == held_out_y).float().mean().item()
        result = {
            "framework": f"PyTorch {torch.__version__}",
            "ranks": hvd.size(),
            "hosts": hosts,
            "dataset": "scikit-learn digits",
            "trained_on": len(y),
            "held_out": len(held_out_y),
            "accuracy": round(accuracy, 4),
            "seconds": round(seconds, 2),
        }
        save(arguments.out, model, result)
        print(json.dumps(result), flush=True)  # noqa: T201 - the program's result
    hvd.shutdown()


if __name__ == "__main__":
    main()
