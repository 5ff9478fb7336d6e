"""Launchers: one record and module each, and the registry."""

from deeplearning_jobs.launchers.horovod import HOROVOD
from deeplearning_jobs.launchers.mpi import MPI
from deeplearning_jobs.launchers.mxnet import MXNET
from deeplearning_jobs.launchers.tensorflow import TF_MULTIWORKER, TF_PS
from deeplearning_jobs.launchers.torchrun import TORCHRUN

LAUNCHERS = {each.name: each for each in (HOROVOD, MPI, TORCHRUN, MXNET, TF_PS, TF_MULTIWORKER)}
"""Name -> launcher, in the order of the command's help."""
