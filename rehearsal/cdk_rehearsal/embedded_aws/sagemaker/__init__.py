"""Amazon SageMaker's training jobs: their requests, states, rights, containers and output."""
