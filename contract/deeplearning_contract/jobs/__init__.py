"""Jobs: their definition, where they are submitted, and the requests that start them."""
