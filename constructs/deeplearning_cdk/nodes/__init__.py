"""Nodes: groups, launch templates, instance types, network interfaces, user data and programs."""
