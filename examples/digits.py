#!/usr/bin/env python3
"""
Handwritten digits on which the examples train: scikit-learn's, or drawn ones where these are not available.

Nothing is downloaded: scikit-learn's digits are read from `digits.csv.gz` beside this file, or from scikit-learn if it
is installed. Every process gets the same digits in the same order, so that each rank can select its part. As a program,
it writes them to a folder in the format of CIFAR-10, unless the folder contains CIFAR-10.

    digits.py FOLDER
"""

import argparse
import os
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

Part = tuple[np.ndarray, np.ndarray]
"""Images and labels."""
SEED = 2018
HELD_OUT = 0.2
RECORD_BYTES = 1 + 32 * 32 * 3
"""Record of CIFAR-10's binary version: the label, then the red, green and blue 32 x 32 pixels."""
TRAINING_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
HELD_OUT_FILE = "test_batch.bin"
FILE = Path(__file__).with_name("digits.csv.gz")
"""File of scikit-learn's wheel, in `sklearn/datasets/data`: one line per image, its label last."""
_STAND_IN = "stand-in.txt"
_SHAPES = (
    "01110 10001 10011 10101 11001 10001 01110",
    "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111",
    "11110 00001 00001 01110 00001 00001 11110",
    "00010 00110 01010 10010 11111 00010 00010",
    "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110",
    "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110",
    "01110 10001 10001 01111 00001 00010 01100",
)
"""The digits 0 to 9, five columns wide and seven rows high."""


def load_digits() -> tuple[str, np.ndarray, np.ndarray]:
    """
    Return the dataset's name, images of 64 values from 0 to 1, and labels.

    They are shuffled with one seed: scikit-learn's come sorted by writer.
    """
    name, images, labels = read_digits()
    order = np.random.default_rng(SEED).permutation(len(labels))
    return name, (images[order] / 16.0).astype(np.float32), labels[order].astype(np.int64)


def read_digits() -> tuple[str, np.ndarray, np.ndarray]:
    """Return the dataset's name, its images of 64 values from 0 to 16, and their labels."""
    if FILE.is_file():
        table = np.loadtxt(FILE, delimiter=",")
        return "scikit-learn digits", table[:, :64], table[:, 64]
    try:
        from sklearn.datasets import load_digits as load  # noqa: PLC0415 - an image may be without it
    except ImportError:
        return "drawn digits", *draw_digits()
    return "scikit-learn digits", *load(return_X_y=True)


def draw_digits(count: int = 1800) -> tuple[np.ndarray, np.ndarray]:
    """Return images of 8 x 8 grey values from 0 to 16, each shifted, faded and with noise, and their labels."""
    random = np.random.default_rng(SEED)
    shapes = [np.array([[int(dot) for dot in row] for row in shape.split()]) for shape in _SHAPES]
    labels = np.arange(count) % len(shapes)
    images = np.zeros((count, 8, 8))
    for image, label in zip(images, labels, strict=True):
        top, left = random.integers(0, 2), random.integers(0, 4)
        image[top : top + 7, left : left + 5] = shapes[label] * random.uniform(9, 16)
    images += random.normal(0, 1.5, images.shape)
    return images.clip(0, 16).reshape(count, 64), labels


def split(images: np.ndarray, labels: np.ndarray) -> tuple[Part, Part]:
    """Return (images, labels) for training and the held-out ones."""
    held_out = int(len(labels) * HELD_OUT)
    return (images[held_out:], labels[held_out:]), (images[:held_out], labels[:held_out])


def find_cifar(folder: Path) -> Path | None:
    """Return the folder of CIFAR-10's binary files: the archive's subfolder, or `folder` itself."""
    for place in (folder, folder / "cifar-10-batches-bin"):
        if all((place / name).is_file() for name in (*TRAINING_FILES, HELD_OUT_FILE)):
            return place
    return None


def name_cifar(place: Path) -> str:
    """Return the name of the data in `place`."""
    return (place / _STAND_IN).read_text().strip() if (place / _STAND_IN).is_file() else "CIFAR-10"


def prepare_cifar(folder: Path) -> Path:
    """
    Return the folder of CIFAR-10's binary files; if there are none, write the digits in their format first.

    One process of a job calls this function, the others `wait_for_cifar`. The files appear atomically.

    Args:
        folder: The user's folder.
    """
    place = find_cifar(folder)
    if place is not None:
        return place
    name, images, labels = load_digits()
    (x, y), held_out = split(images, labels)
    parts = np.array_split(np.arange(len(y)), len(TRAINING_FILES))
    unfinished = folder / f".unfinished-{os.getpid()}"
    unfinished.mkdir(parents=True)
    for file, part in zip(TRAINING_FILES, parts, strict=True):
        (unfinished / file).write_bytes(encode_cifar(x[part], y[part]))
    (unfinished / HELD_OUT_FILE).write_bytes(encode_cifar(*held_out))
    (unfinished / _STAND_IN).write_text(f"{name} as 32 x 32 pixels in three colours\n")
    return unfinished.rename(folder / "cifar-10-batches-bin")


def wait_for_cifar(folder: Path, seconds: float = 300.0) -> Path:
    """
    Return the folder of CIFAR-10's binary files after another process has written them.

    Raises:
        TimeoutError: They do not exist after `seconds`.
    """
    give_up = time.monotonic() + seconds
    while (place := find_cifar(folder)) is None:
        if time.monotonic() > give_up:
            raise TimeoutError(f"{folder} must contain CIFAR-10's binary files, got none in {seconds:.0f} s")
        time.sleep(0.5)
    return place


def encode_cifar(images: np.ndarray, labels: np.ndarray) -> bytes:
    """Return digits as records of the binary version of CIFAR-10."""
    grey = np.rint(images.reshape(-1, 8, 8) * 255).astype(np.uint8)
    large = grey.repeat(4, axis=1).repeat(4, axis=2).reshape(-1, 1024)
    return np.concatenate([labels.astype(np.uint8)[:, None], large, large, large], axis=1).tobytes()


def read_cifar(files: Iterable[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return images of 32 x 32 x 3 values from 0 to 1, and labels, from files of the binary version of CIFAR-10."""
    records = np.frombuffer(b"".join(file.read_bytes() for file in files), dtype=np.uint8).reshape(-1, RECORD_BYTES)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images.astype(np.float32) / 255, records[:, 0].astype(np.int64)


def main() -> None:
    """Write the files and print their folder."""
    parser = argparse.ArgumentParser(description="Write digits as binary files of CIFAR-10, unless it is there.")
    parser.add_argument("folder", type=Path)
    place = prepare_cifar(parser.parse_args().folder)
    print(f"{place}: {name_cifar(place)}")  # noqa: T201 - the program's result


if __name__ == "__main__":
    main()
