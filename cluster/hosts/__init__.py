"""Hosts over SSH: logins, software, and the verbs of `mrstream cluster`."""
