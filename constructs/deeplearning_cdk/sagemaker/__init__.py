"""SageMaker: what training jobs need, its roles, its notifications and its checks."""
