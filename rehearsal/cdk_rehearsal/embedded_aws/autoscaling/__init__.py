"""EC2 Auto Scaling: groups, activities, health checks, notifications and the API."""
