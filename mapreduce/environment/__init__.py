"""Python environments of jobs: what `-env` names, built once, and laid out where tasks run."""
