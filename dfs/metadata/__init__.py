"""The brain of the master: events in, commands out. Never does IO, never reads a clock or chance.

metadata      the door: `handle`, `query`, `apply`                    events, settings
── what is logged
operations    the records                     image      all of it as bytes and back
namespace     what each record does           nodes      files and directories, packed
changes       requests about names → records  paths      canonical, checked
── what is known
chunk_table   versions, references, replicas  handle_set sets of handles
servers       chunkservers                    membership they come, report, beat and go
leases        who is primary                  story      what happened lately
── what is done
writing       open, find the primary, close   writers    and close for those who died
grants        create, grant, copy on write    seals      the end of changing
snapshots     seal, log, share                underway   what is going on, and who waits for it
repair        clone, delete, balance, drain   placement  where
outbox        what was decided, and questions to chunkservers
── what is asked
listing       names                           inspect    chunks and servers
"""
