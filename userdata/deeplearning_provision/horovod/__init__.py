"""Horovod: how it is built for a framework and CUDA, and tried."""
