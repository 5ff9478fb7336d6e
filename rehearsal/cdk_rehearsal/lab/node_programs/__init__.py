"""
Programs that run inside the lab's nodes, in place of what a cloud image and its machine bring.

Standard library only: they are copied into the nodes' image and run by the nodes' own Python.
"""
