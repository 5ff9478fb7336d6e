#!/usr/bin/env python3
"""
Training of a classifier of handwritten digits, or of CIFAR-10 with --data_dir, with Apache MXNet's key-value store.

Workers push their gradients to the servers, which sum them; rank 0 writes a checkpoint after each epoch, measures the
accuracy on held-out digits and prints the result as one line of JSON. A process whose DMLC_ROLE is server or scheduler
takes that role when it imports MXNet. MXNet is retired: 1.9.1 is its last release and needs NumPy before 1.24. Its
wheel does not support GPUs, so training is on the CPU, unless the image has another build of MXNet.

    deeplearning run --launcher mxnet -- python3 train_mxnet.py --data_dir $EFS_MOUNT/cifar10_data [--network resnet]
    mxnet/launch.py -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH python3 train_mxnet.py
"""

import argparse
import json
import os
import socket
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import digits
import numpy as np

warnings.filterwarnings("ignore", "`np.bool`", DeprecationWarning)  # MXNet 1.9.1 uses a name that NumPy 1.24 removed
import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402

KEPT_CHECKPOINTS = 2
_NAME_BYTES = 64
_HOSTS_KEY = 1 << 20
"""Key in the key-value store; the trainer's keys are the parameters' numbers."""


def parse_arguments() -> argparse.Namespace:
    """Parse the flags, which include those of MXNet's own train_cifar10.py."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with MXNet's key-value store.")
    parser.add_argument(
        "--gpus", nargs="?", const="", default="", help="GPUs of this host, such as 0,1 (default: none, the CPU)"
    )
    parser.add_argument(
        "--data_dir", type=Path, help="CIFAR-10's binary files; digits in their form where none are (default: digits)"
    )
    parser.add_argument("--network", choices=("mlp", "resnet"), default="mlp", help="default: %(default)s")
    parser.add_argument(
        "--num-layers",
        type=int,
        choices=range(8, 111, 6),
        metavar="6N+2",
        default=50,
        help="layers of a resnet (default: %(default)s)",
    )
    parser.add_argument("--kv-store", default="dist_sync", help="e.g. dist_device_sync (default: %(default)s)")
    parser.add_argument("--num-epochs", type=int, default=15, help="number of passes (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=128, help="images per step, in all (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the checkpoints outside of `deeplearning run`")
    return parser.parse_args()


def choose_devices(gpus: str) -> list[mx.Context]:
    """Return the GPUs of this process; a launcher may limit each worker to its own GPU."""
    numbers = [int(number) for number in gpus.split(",") if number]
    found = mx.context.num_gpus()
    if not numbers and os.environ.get("CUDA_VISIBLE_DEVICES"):
        numbers = list(range(found))
    if numbers and max(numbers) >= found:
        sys.stderr.write(f"--gpus must name GPUs that MXNet sees, got {gpus}, it sees {found}; training on the CPU\n")
        numbers = []
    return [mx.gpu(number) for number in numbers] or [mx.cpu()]


def load_parts(folder: Path | None, *, is_first: bool) -> tuple[str, digits.Part, digits.Part]:
    """
    Return the dataset's name, images (channels first) with labels for training, and the held-out ones.

    Args:
        folder: Folder of CIFAR-10; None for digits.
        is_first: True if this process writes digits there without CIFAR-10; the others wait for them.
    """
    if folder is None:
        name, images, labels = digits.load_digits()
        return name, *digits.split(images.reshape(-1, 1, 8, 8), labels)
    place = digits.prepare_cifar(folder) if is_first else digits.wait_for_cifar(folder)
    parts = (
        digits.read_cifar(place / file for file in files) for files in (digits.TRAINING_FILES, (digits.HELD_OUT_FILE,))
    )
    train, held_out = ((np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels) for images, labels in parts)
    return digits.name_cifar(place), train, held_out


def gather_hosts(store: mx.kvstore.KVStore) -> list[str]:
    """Return the host of each worker, in the workers' order: each pushes its own row, and the servers sum them."""
    rows = np.zeros((store.num_workers, _NAME_BYTES), dtype=np.float32)
    name = socket.gethostname().encode()[:_NAME_BYTES]
    rows[store.rank, : len(name)] = list(name)
    all_rows = mx.nd.zeros(rows.shape)
    store.init(_HOSTS_KEY, all_rows)
    store.push(_HOSTS_KEY, mx.nd.array(rows))
    store.pull(_HOSTS_KEY, out=all_rows)
    return [bytes(row.astype(np.uint8)).rstrip(b"\0").decode() for row in all_rows.asnumpy()]


class Residual(gluon.nn.HybridBlock):
    """Residual block: two convolutions and a shortcut."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.body = gluon.nn.HybridSequential()
        for step in (stride, 1):
            self.body.add(gluon.nn.BatchNorm(), gluon.nn.Activation("relu"))
            self.body.add(gluon.nn.Conv2D(channels, 3, strides=step, padding=1, use_bias=False))
        self.around = gluon.nn.Conv2D(channels, 1, strides=stride, use_bias=False) if stride > 1 else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet's name
        """Return the sum of convolutions and shortcut."""
        del F
        return self.body(x) + (self.around(x) if self.around else x)


def make_resnet(layers: int) -> gluon.HybridBlock:
    """Return a residual network for small images: three stages of as many blocks, 16, 32 and 64 channels."""
    network = gluon.nn.HybridSequential()
    network.add(gluon.nn.Conv2D(16, 3, padding=1, use_bias=False))
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        for block in range((layers - 2) // 6):
            network.add(Residual(channels, stride if block == 0 else 1))
    network.add(gluon.nn.BatchNorm(), gluon.nn.Activation("relu"), gluon.nn.GlobalAvgPool2D(), gluon.nn.Dense(10))
    return network


def make_network(
    arguments: argparse.Namespace, devices: list[mx.Context], shape: tuple[int, ...]
) -> tuple[gluon.HybridBlock, int]:
    """Return the network for images of a shape, with the weights from which it resumes, and its completed epochs."""
    if arguments.network == "resnet":
        network = make_resnet(arguments.num_layers)
    else:
        network = gluon.nn.HybridSequential()
        network.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
    network.initialize(mx.init.Xavier(), ctx=devices)
    network(mx.nd.zeros((1, *shape), ctx=devices[0]))  # the first images determine the shapes
    network.hybridize()
    path = os.environ.get("DEEPLEARNING_RESUME_FROM")
    if not path:
        return network, 0
    network.load_parameters(path, ctx=devices)
    return network, int(Path(path).stem.split("-")[1])


def save_checkpoint(folder: Path, epochs: int, network: gluon.HybridBlock) -> None:
    """Write the weights atomically and delete old ones; the optimizer's state stays on the servers."""
    unfinished = folder / ".epochs.params"
    network.save_parameters(str(unfinished))
    unfinished.replace(folder / f"epochs-{epochs:05d}.params")
    for old in sorted(folder.glob("epochs-*.params"))[:-KEPT_CHECKPOINTS]:
        old.unlink()


def train(
    network: gluon.HybridBlock,
    trainer: gluon.Trainer,
    part: tuple[np.ndarray, np.ndarray],
    batches: tuple[int, int],
    devices: list[mx.Context],
) -> None:
    """
    Train one pass over this worker's images.

    Args:
        network: Network, whose weights are changed.
        trainer: Trainer that pushes gradients and pulls weights.
        part: This worker's images and labels.
        batches: Images per step, of this worker and of all.
        devices: Devices of this worker; each takes a part of the batch.
    """
    entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    images, labels = part
    batch, whole = batches
    for first in range(0, len(labels) - batch + 1, batch):
        x = gluon.utils.split_and_load(images[first : first + batch], devices, even_split=False)
        y = gluon.utils.split_and_load(labels[first : first + batch], devices, even_split=False)
        with autograd.record():
            losses = [entropy(network(each), answer) for each, answer in zip(x, y, strict=True)]
        autograd.backward(losses)
        trainer.step(whole)


def open_folder(arguments: argparse.Namespace) -> Path:
    """Return the folder of the checkpoints."""
    out = arguments.out or Path(os.environ["EFS_MOUNT"], "train_mxnet")
    folder = Path(os.environ.get("DEEPLEARNING_CHECKPOINT_PATH") or out)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    """Train and print."""
    arguments = parse_arguments()
    store = mx.kv.create(arguments.kv_store)
    hosts = gather_hosts(store)
    devices = choose_devices(arguments.gpus)
    mx.random.seed(digits.SEED)
    name, (x, y), (held_out_x, held_out_y) = load_parts(arguments.data_dir, is_first=store.rank == 0)
    network, done = make_network(arguments, devices, x.shape[1:])
    settings = {"learning_rate": arguments.lr, "momentum": 0.9}
    trainer = gluon.Trainer(network.collect_params(), "sgd", settings, kvstore=store)
    share = len(y) // store.num_workers  # the same on all workers; otherwise the servers would wait for ever
    batch = min(share, max(len(devices), arguments.batch_size // store.num_workers))
    folder = open_folder(arguments)
    # MXNet numbers workers in the order of their start; `deeplearning run` shows the output of its own first one.
    is_first = os.environ.get("DEEPLEARNING_RANK", str(store.rank)) == "0"
    begin = time.monotonic()
    for epoch in range(done, arguments.num_epochs):
        order = np.random.default_rng(digits.SEED + epoch).permutation(len(y))
        mine = order[store.rank :: store.num_workers][:share]
        train(network, trainer, (x[mine], y[mine]), (batch, batch * store.num_workers), devices)
        if is_first:
            save_checkpoint(folder, epoch + 1, network)
    mx.nd.waitall()  # Steps are only queued; if a worker ended with some in its queue, all others would wait for ever.
    seconds = time.monotonic() - begin
    if not is_first:
        return
    answers = network(mx.nd.array(held_out_x, ctx=devices[0])).asnumpy().argmax(1)
    trained = share // batch * batch * store.num_workers * max(0, arguments.num_epochs - done)
    result = {
        "framework": f"MXNet {mx.__version__}",
        "launcher": "mxnet",
        "ranks": store.num_workers,
        "hosts": hosts,
        "dataset": name,
        "trained_on": len(y),
        "held_out": len(held_out_y),
        "accuracy": round(float((answers == held_out_y).mean()), 4),
        "seconds": round(seconds, 2),
        "samples_per_second": round(trained / seconds, 1),
    }
    print(json.dumps(result), flush=True)  # noqa: T201 - the program's result


if __name__ == "__main__":
    main()
