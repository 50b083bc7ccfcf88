"""Sawzall: a typed language for logs, compiled to Python, whose results are tables."""
