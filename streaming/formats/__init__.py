"""What lies in files and what a command reads and writes; compression."""
