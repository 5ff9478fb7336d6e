"""Pinned image of a cluster: the one that a parameter named at the creation, until the user adopts the current one."""
