"""
Known data sets made small: files of the real names, of which a stand-in for the program can learn something.

A picture has COCO's file name and 8x8 grey pixels as PGM; one quarter is bright, and its category says which.
"""

import io
import json
import random
import zipfile
from collections.abc import Callable, Mapping

from deeplearning_contract.names import DATA_SETS
from deeplearning_rehearsal.checks.training import example_folder

TRAIN_IMAGES, VAL_IMAGES = 64, 20
CATEGORIES = {1: "person", 3: "car", 17: "cat", 18: "dog"}
"""With the ids that COCO gives them."""
BACKBONE_SHAPE = (7, 7, 3, 64)
"""Of `conv0/W` in TensorPack's ResNet-50."""
PROGRAM = "tensorpack/examples/FasterRCNN/train.py"
_SIDE = 8
_COCO = DATA_SETS["coco-2017"]


def make_coco() -> dict[str, bytes]:
    """Return path -> content of every part of COCO 2017 that a job reads."""
    source = random.Random("coco-2017")  # noqa: S311 - made-up data, no secret
    tree = {
        _COCO["backbone"]: _make_npz({"conv0/W": BACKBONE_SHAPE}),
        _COCO["model"]: _make_npz({"conv0/W": BACKBONE_SHAPE}),
    }
    for split, count in (("train", TRAIN_IMAGES), ("val", VAL_IMAGES)):
        names = {number: f"{number * 9:012d}.jpg" for number in range(1, count + 1)}
        category_of = {number: list(CATEGORIES)[number % len(CATEGORIES)] for number in names}
        tree |= {f"{_COCO[split]}/{name}": _draw(category_of[n], source) for n, name in names.items()}
        document = {
            "images": [{"id": n, "file_name": name, "width": _SIDE, "height": _SIDE} for n, name in names.items()],
            "annotations": [{"id": n, "image_id": n, "category_id": category_of[n]} for n in names],
            "categories": [{"id": number, "name": name} for number, name in CATEGORIES.items()],
        }
        tree[_COCO[f"{split} annotations"]] = json.dumps(document).encode()
    return tree


def make_tensorpack() -> dict[str, bytes]:
    """Return what stands for a clone of TensorPack, as far as the job names it."""
    return {PROGRAM: (example_folder() / "mask_rcnn" / "stand_in_train.py").read_bytes()}


SMALL_DATA: Mapping[str, Callable[[], dict[str, bytes]]] = {"coco-2017": make_coco, "tensorpack": make_tensorpack}


def _draw(category: int, source: random.Random) -> bytes:
    quarter = list(CATEGORIES).index(category)
    pixels = bytes(
        source.randrange(60) + (150 if (row // 4, column // 4) == divmod(quarter, 2) else 0)
        for row in range(_SIDE)
        for column in range(_SIDE)
    )
    return f"P5 {_SIDE} {_SIDE} 255\n".encode() + pixels


def _make_npz(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return arrays of zeros as NumPy writes them: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape in shapes.items():
            count = 1
            for length in shape:
                count *= length
            header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
            header += " " * (-(len(header) + 11) % 64) + "\n"
            start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), start + bytes(4 * count))
    return buffer.getvalue()
