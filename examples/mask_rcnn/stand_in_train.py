#!/usr/bin/env python3
"""
Substitute for TensorPack's examples/FasterRCNN/train.py without TensorFlow 1 and GPUs.

It takes the flags and settings that job.py passes to the original, reads the same files, runs as many steps with real
Horovod, one image per rank, and writes checkpoints with the same names. The model is linear, written in PyTorch, and
pictures are 8x8 pixels in PGM, with any file ending. It tests the job, not Mask R-CNN.
"""

import argparse
import json
import shutil
import socket
import time
from pathlib import Path

import horovod.torch as hvd
import numpy as np
import torch

PIXELS = 64
STATED_BATCH = 8
Split = tuple[torch.Tensor, torch.Tensor]


def read_split(base: Path, split: str) -> Split:
    """Return pictures and the numbers of their categories, from the files that TensorPack's COCODetection reads."""
    document = json.loads((base / "annotations" / f"instances_{split}.json").read_text())
    numbers = {category["id"]: number for number, category in enumerate(document["categories"])}
    names = {image["id"]: image["file_name"] for image in document["images"]}
    labels = [numbers[note["category_id"]] for note in document["annotations"]]
    rows = [
        np.frombuffer((base / split / names[note["image_id"]]).read_bytes()[-PIXELS:], dtype=np.uint8)
        for note in document["annotations"]
    ]
    return torch.tensor(np.array(rows) / 255.0, dtype=torch.float32), torch.tensor(labels)


def make_model(settings: dict[str, str], load: str, categories: int) -> tuple[torch.nn.Module, int]:
    """Return the model and its step, from a checkpoint or from the backbone's weights."""
    model = torch.nn.Linear(PIXELS, categories)
    if load:
        model.load_state_dict(torch.load(f"{load}.data-00000-of-00001"))
        return model, int(load.rpartition("-")[2])
    backbone = np.load(settings["BACKBONE.WEIGHTS"])["conv0/W"]
    with torch.no_grad():
        model.weight.copy_(torch.tensor(backbone[0, 0, 0, :PIXELS]).expand(categories, PIXELS))
    return model, 0


def save(model: torch.nn.Module, folder: Path, step: int) -> None:
    """Write a checkpoint with TensorFlow's file names: the index last, since a checkpoint without data is invalid."""
    torch.save(model.state_dict(), folder / f"model-{step}.data-00000-of-00001")
    (folder / f"model-{step}.index").write_text(f"{step}\n")


def train(model: torch.nn.Module, step: int, settings: dict[str, str], folder: Path, part: Split) -> int:
    """Train the remaining epochs, one image per rank and step; return the number of images on all ranks."""
    size, rank = hvd.size(), hvd.rank()
    steps = int(settings["TRAIN.STEPS_PER_EPOCH"])
    schedule = json.loads(settings["TRAIN.LR_SCHEDULE"])
    ends = [end * STATED_BATCH // size // steps for end in schedule]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    images, labels = part
    seen = 0
    for epoch in range(int(settings["TRAIN.STARTING_EPOCH"]), ends[-1] + 1):
        optimizer.param_groups[0]["lr"] = 0.2 * 0.1 ** sum(epoch > end for end in ends[:-1])
        for _ in range(steps):
            mine = (step * size + rank) % len(labels)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images[mine : mine + 1]), labels[mine : mine + 1]).backward()
            optimizer.step()
            step, seen = step + 1, seen + size
        if rank == 0 and epoch % int(settings["TRAIN.CHECKPOINT_PERIOD"]) == 0:
            save(model, folder, step)
    return seen


def main() -> None:
    """Train and print a line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--logdir", type=Path, required=True)
    parser.add_argument("--load", default="")
    parser.add_argument("--config", nargs="+", default=[])
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.config)
    hvd.init()
    if settings["TRAINER"] != "horovod" or (hvd.size() % STATED_BATCH and STATED_BATCH % hvd.size()):
        raise SystemExit(f"TRAINER must be horovod, with 1, 2, 4 or 8n ranks, got {hvd.size()} ranks")
    if hvd.rank() == 0:  # TensorPack also empties its log folder.
        shutil.rmtree(options.logdir, ignore_errors=True)
        options.logdir.mkdir(parents=True)
    base = Path(settings["DATA.BASEDIR"])
    train_split = json.loads(settings["DATA.TRAIN"])[0].removeprefix("coco_")
    part, held_out = read_split(base, train_split), read_split(base, train_split.replace("train", "val"))
    model, step = make_model(settings, options.load, int(part[1].max()) + 1)
    begin = time.monotonic()
    seen = train(model, step, settings, options.logdir, part)
    seconds = time.monotonic() - begin
    hosts = hvd.allgather_object(socket.gethostname())
    if hvd.rank() != 0:
        return
    result = {
        "framework": f"PyTorch {torch.__version__}, for TensorPack",
        "launcher": "horovod",
        "ranks": hvd.size(),
        "hosts": hosts,
        "dataset": f"{base.name}, made small",
        "trained_on": len(part[1]),
        "held_out": len(held_out[1]),
        "accuracy": round(float((model(held_out[0]).argmax(1) == held_out[1]).float().mean()), 4),
        "seconds": round(seconds, 2),
        "samples_per_second": round(seen / max(seconds, 0.01), 1),
    }
    print(json.dumps(result), flush=True)  # noqa: T201 - the program's result


if __name__ == "__main__":
    main()
