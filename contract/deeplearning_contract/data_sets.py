"""
Known data sets: the paths of their parts on a node.

The script that stages a data set, the rehearsal and jobs, which run on different machines, share them.
"""

from collections.abc import Mapping

_MODELS_FOLDER = "pretrained-models"

DATA_SETS: Mapping[str, Mapping[str, str]] = {
    # Staged by examples/mask_rcnn/stage_data.sh. Read by TensorPack's COCODetection
    # (examples/FasterRCNN/dataset/coco.py) below DATA.BASEDIR. The backbone is that of the predecessor's
    # prepare-s3-bucket.sh and of TensorPack's README (BACKBONE.WEIGHTS), the other model that of its guide.
    "coco-2017": {
        "train": "train2017",
        "val": "val2017",
        "train annotations": "annotations/instances_train2017.json",
        "val annotations": "annotations/instances_val2017.json",
        "backbone": f"{_MODELS_FOLDER}/ImageNet-R50-AlignPadding.npz",
        "model": f"{_MODELS_FOLDER}/COCO-R50FPN-MaskRCNN-Standard.npz",
    },
}
"""Name of a data set, also in the cluster's props -> name of a part for jobs -> its path in the data."""
