"""Nodes: groups and launch templates, instance types, interfaces, user data and the programs that it brings."""
