"""Java's numbers and regular expressions, where users' data depends on them."""
