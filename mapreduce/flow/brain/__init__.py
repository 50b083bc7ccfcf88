"""What can run next in a flow, decided without IO: events in, records and commands out."""
