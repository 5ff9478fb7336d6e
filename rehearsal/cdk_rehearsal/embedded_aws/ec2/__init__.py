"""EC2: images, launches and their failures, and tags."""
