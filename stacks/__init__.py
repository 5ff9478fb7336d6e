"""The stacks that this project deploys, one a file."""
