"""Machine images: definition, and the pin of the AMI id."""
