"""Ground of the embedded AWS: records, options and requests that every service reads, and that import none of them."""
