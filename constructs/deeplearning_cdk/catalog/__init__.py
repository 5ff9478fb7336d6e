"""Catalogue: instance types with their hardware, and the wheels of PyTorch that support their GPUs."""
