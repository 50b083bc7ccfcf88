"""The user's program: words, environment, stderr, files that travel with it."""
