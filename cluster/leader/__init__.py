"""Masters that lead a group, and clients that find the one that does. A whole master:

    class Counter:
        def __init__(self, daemon):
            self.total, self.office = 0, Office(daemon, self)
            self.handlers = {**self.office.handlers, **self.office.guard({Add: self.add})}
            self.start, self.stop, self.ready = (
                self.office.start, self.office.stop, self.office.ready
            )
        def load(self, pieces): self.total = int(b"".join(pieces))     # a checkpoint
        def apply(self, payload): self.total += int(payload)           # a record of the log
        def lead(self, epoch): pass                                    # we serve from now on
        async def add(self, request, peer):
            sequence = self.office.append(b"%d" % request.count)
            self.apply(b"%d" % request.count)
            await self.office.settled(sequence)                        # committed; lease holds
            return self.total

`guard` refuses requests where this member does not lead, and keeps answers back without a lease;
`handlers` answer `WhoLeads`. A brain with commands puts an `office.gate(carry_out)` between itself
and the wire: `gate.say(commands)`, then `office.watch(gate)` (`lock/master.py`). Time passes in a
brain only `if office.is_leading`; `office.checkpoint_if_due(produce)` is for shadows too. With one
master in cluster.yaml the same code runs over a journal of one process.

A client: `connect_to_leader(cluster, role).call(request)`, or `channel.open_channel` on a loop.
"""
