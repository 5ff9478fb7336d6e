"""Amazon SageMaker's training jobs: their requests, states and containers."""
