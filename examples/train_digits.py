#!/usr/bin/env python3
"""
Data-parallel training of a classifier of handwritten digits with Horovod and PyTorch.

Every rank takes a part of the digits of `digits.py`; rank 0 prints its loss and writes a checkpoint after each epoch,
measures the accuracy on held-out digits, writes weights and result to the shared file system and prints the result as
one line of JSON.

    deeplearning run [--launcher mpi] -- python3 train_digits.py [--epochs N] [--out FOLDER]
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
from digits import SEED, load_digits, split

Part = tuple[torch.Tensor, torch.Tensor]
"""Images and labels."""


def load_parts() -> tuple[str, Part, Part]:
    """Return the dataset's name, and (images, labels) for training and the held-out ones."""
    name, images, labels = load_digits()
    (x, y), (held_out_x, held_out_y) = split(torch.from_numpy(images), torch.from_numpy(labels))
    return name, (x, y), (held_out_x, held_out_y)


def train(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, *, epochs: int, batch: int, folder: Path) -> int:
    """
    Train on this rank's part; the batch over all ranks does not depend on their number.

    Args:
        model: Model, whose weights are changed.
        x: Images.
        y: Labels of the images.
        epochs: Passes in all; those before the checkpoint from which the job resumes are not repeated.
        batch: Images per step, over all ranks.
        folder: Folder for a checkpoint after each epoch.

    Returns:
        Number of images on which all ranks together have trained.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    begin = resume(model, optimizer)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    share = len(y) // hvd.size()  # the same on all ranks, which would otherwise wait for each other for ever
    for epoch in range(begin, epochs):
        started = time.monotonic()
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(SEED + epoch))
        losses = []
        for part in order[hvd.rank() :: hvd.size()][:share].split(max(1, batch // hvd.size())):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[part]), y[part])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.4f}", flush=True)  # noqa: T201 - for the user
        report_throughput(share * hvd.size() / (time.monotonic() - started))
        save_checkpoint(folder, epoch + 1, model, optimizer)
    return share * hvd.size() * max(0, epochs - begin)


def resume(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint that `deeplearning run` found, if any, and return its completed epochs."""
    path = os.environ.get("DEEPLEARNING_RESUME_FROM")
    if not path:
        return 0
    content = torch.load(path, map_location="cpu")
    model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    return content["epochs"]


def report_throughput(samples_per_second: float) -> None:
    """Write the job's throughput on rank 0 to the file from `deeplearning run`, for the cluster's dashboard."""
    path = os.environ.get("DEEPLEARNING_METRICS_PATH")
    if path and hvd.rank() == 0:
        Path(path).write_text(json.dumps({"samples_per_second": samples_per_second}) + "\n")


def save_checkpoint(folder: Path, epochs: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint on rank 0 atomically, and keep the newest two."""
    if hvd.rank() != 0:
        return
    content = {"epochs": epochs, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(content, folder / ".epochs.pt")
    (folder / ".epochs.pt").replace(folder / f"epochs-{epochs:05d}.pt")
    for old in sorted(folder.glob("epochs-*.pt"))[:-2]:
        old.unlink()


def check_same_weights(model: torch.nn.Module) -> None:
    """
    Check that all ranks have the same weights, bit for bit.

    Raises:
        RuntimeError: They do not.
    """
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    digests = hvd.allgather_object(digest)
    if len(set(digests)) != 1:
        raise RuntimeError(f"all ranks must have the same weights, got {digests}")


def save(folder: Path, model: torch.nn.Module, result: dict[str, object]) -> None:
    """Write weights and result, each atomically."""
    torch.save(model.state_dict(), folder / ".checkpoint.pt")
    (folder / ".result.json").write_text(json.dumps(result) + "\n")
    for name in ("checkpoint.pt", "result.json"):
        (folder / f".{name}").replace(folder / name)


def main() -> None:
    """Train, check, save and print."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with Horovod and PyTorch.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training part (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="images of a step over all ranks (default: %(default)s)")
    parser.add_argument("--width", type=int, default=128, help="units of the hidden layer (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(os.environ["EFS_MOUNT"], "train_digits"), help="result folder")
    arguments = parser.parse_args()

    hvd.init()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # ranks share the machine's cores
    dataset, (x, y), (held_out_x, held_out_y) = load_parts()
    width = arguments.width
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    folder = Path(os.environ.get("DEEPLEARNING_CHECKPOINT_PATH") or arguments.out)
    arguments.out.mkdir(parents=True, exist_ok=True)
    begin, cpu_begin = time.monotonic(), time.process_time()
    trained = train(model, x, y, epochs=arguments.epochs, batch=arguments.batch, folder=folder)
    seconds = time.monotonic() - begin
    cpu_seconds = sum(hvd.allgather_object(time.process_time() - cpu_begin))
    check_same_weights(model)
    hosts = hvd.allgather_object(socket.gethostname())
    if hvd.rank() == 0:
        accuracy = (model(held_out_x).argmax(1) == held_out_y).float().mean().item()
        result = {
            "framework": f"PyTorch {torch.__version__}",
            "launcher": "mpi" if "OMPI_COMM_WORLD_RANK" in os.environ else "horovod",
            "ranks": hvd.size(),
            "hosts": hosts,
            "dataset": dataset,
            "trained_on": len(y),
            "held_out": len(held_out_y),
            "accuracy": round(accuracy, 4),
            "seconds": round(seconds, 2),
            "samples_per_second": round(trained / seconds, 1),
            "cpu_seconds": round(cpu_seconds, 2),
        }
        save(arguments.out, model, result)
        print(json.dumps(result), flush=True)  # noqa: T201 - the program's result
    hvd.shutdown()


if __name__ == "__main__":
    main()
