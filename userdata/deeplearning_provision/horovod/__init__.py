"""Horovod: its build for a framework and CUDA, and a test of the result."""
