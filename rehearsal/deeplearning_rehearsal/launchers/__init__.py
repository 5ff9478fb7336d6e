"""Launchers: each trains an example on a formed cluster, through `deeplearning run` and as the predecessors did."""
