"""cluster.yaml, which cluster is current, its secret and keys, its optional libraries."""
