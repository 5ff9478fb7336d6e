"""
Known data sets: files that `prepare-data --preset` downloads, and their paths on a node.

One table for both sides, which run on different machines and at different times.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class DataFile:
    """File of a data set."""

    name: str  # File name; of an archive, only the content becomes part of the data
    url: str  # Address of the download
    digest: str = ""  # MD5 in hex as its users publish it; empty without one
    size: int = 0  # Bytes; 0 when unknown
    folder: str = ""  # Folder in the data; empty for the root


@dataclass(frozen=True)
class DataSet:
    """Known data set."""

    name: str  # Name of the preset, and of the source of data in the cluster's props
    files: tuple[DataFile, ...]  # Files to download
    parts: Mapping[str, str]  # Name of a part for jobs -> its path in the data


_COCO = "http://images.cocodataset.org"
_TENSORPACK_MODELS = "http://models.tensorpack.com/FasterRCNN"
_MODELS_FOLDER = "pretrained-models"
_BACKBONE = "ImageNet-R50-AlignPadding.npz"
_MODEL = "COCO-R50FPN-MaskRCNN-Standard.npz"

# Public facts. Sizes and digests are those that COCO's users publish; the models' are unknown. No test fetches them.
# The backbone is that of the predecessor's prepare-s3-bucket.sh and of TensorPack's README (BACKBONE.WEIGHTS); the
# other model is that of the predecessor's guide, trained with the same settings.
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
