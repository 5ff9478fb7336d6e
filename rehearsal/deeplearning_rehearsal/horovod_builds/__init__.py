"""Builds Horovod as nodes do, with real compilers on real distributions, and tries what was built."""
