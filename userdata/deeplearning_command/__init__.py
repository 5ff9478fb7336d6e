"""
`deeplearning`: command for users on every node.

`main.py` has the table of its subcommands; each is one module.
"""
