"""Pins the image of a cluster: what a parameter named at the creation, until the user asks for the current one."""
