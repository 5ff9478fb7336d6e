"""
Known data sets: what `prepare-data --preset` downloads, and what jobs find of it on a node.

One table for both sides, because they run on different machines and at different times.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DataFile:
    """A file that is downloaded."""

    name: str  # Of the file; an archive's content becomes part of the data, not the archive
    url: str  # Where it comes from
    digest: str = ""  # MD5 in hex as its users publish it; empty when nobody does
    size: int = 0  # Bytes; 0 when it is not known
    folder: str = ""  # Where it lies in the data; empty for the root


@dataclass(frozen=True)
class DataSet:
    """A known data set."""

    name: str  # Of the preset, and of the source of data in the cluster's props
    files: tuple[DataFile, ...]  # What is downloaded
    parts: Mapping[str, str]  # Name of a part, as jobs ask for it -> its path in the data


_COCO = "http://images.cocodataset.org"
_TENSORPACK_MODELS = "http://models.tensorpack.com/FasterRCNN"
_MODELS_FOLDER = "pretrained-models"
_BACKBONE = "ImageNet-R50-AlignPadding.npz"
_MODEL = "COCO-R50FPN-MaskRCNN-Standard.npz"

# Public facts. Sizes and digests are those that COCO's users publish; the models' are not known. No test fetches them.
# The backbone is what the predecessor's prepare-s3-bucket.sh fetched and what TensorPack's README trains from, as
# BACKBONE.WEIGHTS; the other model is the one that the predecessor's guide names, which the same settings have trained.
_COCO_2017 = DataSet(
    "coco-2017",
    (
        DataFile("train2017.zip", f"{_COCO}/zips/train2017.zip", "cced6f7f71b7629ddf16f17bbcfab6b2", 19336861798),
        DataFile("val2017.zip", f"{_COCO}/zips/val2017.zip", "442b8da7639aecaf257c1dceb8ba8c80", 815585330),
        DataFile(
            "annotations_trainval2017.zip",
            f"{_COCO}/annotations/annotations_trainval2017.zip",
            "f4bbac642086de4f52a3fdda2de5fa2c",
            252907541,
        ),
        DataFile(_BACKBONE, f"{_TENSORPACK_MODELS}/{_BACKBONE}", folder=_MODELS_FOLDER),
        DataFile(_MODEL, f"{_TENSORPACK_MODELS}/{_MODEL}", folder=_MODELS_FOLDER),
    ),
    # Read by TensorPack's COCODetection (examples/FasterRCNN/dataset/coco.py) below DATA.BASEDIR.
    {
        "train": "train2017",
        "val": "val2017",
        "train annotations": "annotations/instances_train2017.json",
        "val annotations": "annotations/instances_val2017.json",
        "backbone": f"{_MODELS_FOLDER}/{_BACKBONE}",
        "model": f"{_MODELS_FOLDER}/{_MODEL}",
    },
)

DATA_SETS: Mapping[str, DataSet] = {data_set.name: data_set for data_set in (_COCO_2017,)}
