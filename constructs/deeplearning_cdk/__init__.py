"""
Deep-learning training clusters on AWS, as constructs.

`TrainingCluster` is the whole, `EmrTraining` the same on Amazon EMR, `EksTraining` runs the same jobs as pods of a
Kubernetes cluster, and `SageMakerTraining` as training jobs of SageMaker; `TrainingImage` is a container image with the
software of jobs. The props of clusters are the values `Workers`, `Master`, `Network`, `Software`, `Storage` and
`Spending`; the other classes are what goes into them.
"""

from deeplearning_cdk.capacity.candidate import Candidate
from deeplearning_cdk.capacity.purchase import Purchase
from deeplearning_cdk.capacity.spending import Spending
from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.eks.training import EksTraining
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.training_image import TrainingImage
from deeplearning_cdk.nodes.values import Master, Software, Workers
from deeplearning_cdk.sagemaker.training import SageMakerTraining
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.lustre import Lustre, LustreFileSystem
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.storage.values import Storage
from deeplearning_cdk.training_cluster import TrainingCluster

__all__ = [
    "Candidate",
    "DataSource",
    "EksTraining",
    "EmrTraining",
    "EnvironmentCache",
    "InstanceTypeFacts",
    "JobEnvironment",
    "Lustre",
    "LustreFileSystem",
    "Master",
    "Network",
    "NodeImage",
    "Purchase",
    "SageMakerTraining",
    "SharedFileSystem",
    "Software",
    "Spending",
    "Storage",
    "TrainingCluster",
    "TrainingImage",
    "Workers",
]
