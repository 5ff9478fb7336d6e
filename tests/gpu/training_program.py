"""
Train a residual network of ResNet-50's shape on synthetic images, with autocast to bfloat16, and measure its speed.

Rank 0 writes the samples a second of all ranks to `--out`.
"""

import argparse
import contextlib
import json
import os
import time
from pathlib import Path

import torch
from torch import distributed, nn

with contextlib.suppress(ImportError):
    import horovod.torch as hvd

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""Width and blocks of each stage (He et al., "Deep Residual Learning for Image Recognition", table 1)."""
CLASSES = 1000
WARM_STEPS = {"cuda": 20, "cpu": 1}


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs, relu = 4 * width, nn.ReLU()
        layers = [*convolve(inputs, width, 1), relu, *convolve(width, width, 3, stride), relu]
        self.path = nn.Sequential(*layers, *convolve(width, outputs, 1))
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*convolve(inputs, outputs, 1, stride))

    def forward(self, images):
        return torch.relu(self.path(images) + self.shortcut(images))


def convolve(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)


def make_network():
    layers, inputs = [*convolve(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, (width, blocks) in enumerate(STAGES):
        for number in range(blocks):
            layers.append(Block(inputs, width, 2 if stage and not number else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def begin(way, kind):
    """Begin to communicate; return this rank's device, its rank and the number of ranks."""
    index, rank, ranks = 0, 0, 1
    if way == "horovod":
        hvd.init()
        index, rank, ranks = hvd.local_rank(), hvd.rank(), hvd.size()
    elif way == "ddp":
        distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
        index, rank, ranks = int(os.environ["LOCAL_RANK"]), distributed.get_rank(), distributed.get_world_size()
    if kind == "cuda":
        torch.cuda.set_device(index)
    return torch.device(kind), rank, ranks


def measure(options, device, layout):
    """Train, and return the seconds of the measured steps with the last loss."""
    model = make_network().to(device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if options.way == "horovod":
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    elif options.way == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    images = torch.randn(options.batch, 3, options.pixels, options.pixels, device=device).to(memory_format=layout)
    labels = torch.randint(CLASSES, (options.batch,), device=device)
    warm, loss, begun = WARM_STEPS[device.type], torch.zeros(()), 0.0
    for step in range(warm + options.steps):
        if step == warm:
            loss.item()  # Waits for the GPU.
            begun = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    last = loss.item()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun, last


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=("alone", "horovod", "ddp"), default="alone")
    parser.add_argument("--channels-last", action="store_true", help="memory format of the parameters and the input")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--pixels", type=int, default=224, help="width and height of an image")
    parser.add_argument("--steps", type=int, default=80, help="steps that are measured, after the first ones")
    parser.add_argument("--device", choices=tuple(WARM_STEPS), default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    device, rank, ranks = begin(options.way, options.device)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    seconds, loss = measure(options, device, layout)
    if rank == 0:
        speed = round(options.steps * options.batch * ranks / seconds, 1)
        options.out.write_text(json.dumps({"samples_per_second": speed, "ranks": ranks, "loss": loss}))


if __name__ == "__main__":
    main()
