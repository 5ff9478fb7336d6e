"""Nodes: groups, launch templates, choice of image and software, user data and programs; images with that software."""
