"""Containers of a training job on SageMaker: they meet, and the first one runs the job."""
