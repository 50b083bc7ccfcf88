"""What a master and a worker of the course's protocol decide: events in, commands out, no IO."""
