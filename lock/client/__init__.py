"""The client of a lock cell: a session that is kept, a cache that is never stale, handles, locks.

`session` and `cache` decide without IO, clock or threads; `client` is the shell around them.
"""
