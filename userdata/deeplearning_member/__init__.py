"""Members of clusters without a state table: they meet on the shared file system, on EMR and on SageMaker."""
