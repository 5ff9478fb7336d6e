"""
`deeplearning`, the command that users have on every node.

`main.py` has the table of its subcommands, each of which is one module.
"""
