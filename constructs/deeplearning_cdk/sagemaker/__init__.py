"""SageMaker: what training jobs need, and the checks of its props."""
