"""
`deeplearning`, the command that users have on every node.

Each subcommand is one module that adds itself to the parser of `main.py`.
"""
