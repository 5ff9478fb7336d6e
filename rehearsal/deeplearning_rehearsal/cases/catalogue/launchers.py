"""Cases that try launchers."""

from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.account import DataObject
from deeplearning_rehearsal.cases.case import Launchers, case
from deeplearning_rehearsal.cases.catalogue.needs import WITHOUT_GPUS

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

UBUNTU_22 = {
    "kind": "ssm-parameter",
    "parameter": "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id",
    "login_user": "ubuntu",
}
"""TensorFlow 2.15.1 has no wheel for Python 3.12, which Ubuntu 24.04 has; this has 3.10."""


@case(
    "The master builds Horovod for TensorFlow once, a worker installs it without a compiler, and Keras trains on both",
    workers=1,
    context=WITHOUT_GPUS
    | {
        "software.environment": {"path": "environments/keras.txt", "horovod": "0.28.1"},
        "software.image": UBUNTU_22 | {"packages": {"mount.nfs4": ["nfs-common"]}},
    },
    gpus_per_node=0,
    job=Launchers(["keras"]),
    minutes=40,
    environment="shared",
)
def keras(run: "ClusterCase") -> None:
    run.finish()


@case(
    "Horovod, MPI and torchrun train on two nodes of the PyTorch image, through `deeplearning run` and with the "
    "predecessors' own commands",
    workers=1,
    context=WITHOUT_GPUS | {"software.image": "deep-learning-ubuntu"},
    gpus_per_node=0,
    job=Launchers(),
    minutes=20,
    environment="shared",
)
def launchers(run: "ClusterCase") -> None:
    run.finish()


@case(
    "TensorFlow's and MXNet's launchers train on two nodes, through `deeplearning run` and with the "
    "predecessors' own commands",
    workers=1,
    context=WITHOUT_GPUS
    | {
        "software.environment": "environments/launchers.txt",
        "software.image": UBUNTU_22 | {"packages": {"mount.nfs4": ["nfs-common"], "g++": ["g++"]}},
    },
    gpus_per_node=0,
    job=Launchers(["tf-ps", "tf-multiworker", "mxnet"]),
    minutes=20,
)
def launchers_tensorflow_mxnet(run: "ClusterCase") -> None:
    # MXNet's wheel needs libgomp.so.1, which Ubuntu's image has not, and which comes with g++.
    run.finish()


@case(
    "The Mask R-CNN job of the predecessor's guide: staged by name, trained over Horovod, and gone on with; "
    "TensorPack's own program has a stand-in",
    workers=1,
    context={
        "workers.instance_type": "g5.xlarge",
        "master.instance_type": "g5.xlarge",
        "storage.data": [
            {"name": "coco-2017", "bucket": "team-data", "key": "coco-2017.tar"},
            {"name": "tensorpack", "bucket": "team-data", "key": "tensorpack.tar"},
        ],
    },
    job=Launchers(["mask-rcnn"]),
    minutes=10,
    objects=[
        DataObject(bucket="team-data", key="coco-2017.tar", data_set="coco-2017"),
        DataObject(bucket="team-data", key="tensorpack.tar", data_set="tensorpack"),
    ],
)
def mask_rcnn(run: "ClusterCase") -> None:
    run.wait_for_steps("data:coco-2017", "data:tensorpack")
    run.finish()
    assert not run.find_incomplete("coco-2017")
    assert not run.find_incomplete("tensorpack")
