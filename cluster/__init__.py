"""Machines: configuration, the wire, the journal, daemons, hosts over SSH.

Below everything else, and without knowing what a chunk or a job is.
"""
