"""One log on several hosts: a Raft brain. No IO, no clock, no chance.

The brain holds numbers, never records: where the log ends, which epoch each record is of, who the
members are, how far each has it on disk. Records lie with the shell (`cluster/journal`), which does
what the commands say, in their order.

| id | what always holds | kept by |
|---|---|---|
| C1 | one leader an epoch; a vote is on disk before it leaves | `ballot` |
| C2 | same (sequence, epoch), same prefix; nothing committed is ever cut | `following` |
| C3 | acknowledged is on disk of a majority of the voters of that moment | `leading` |
| C4 | the last answer of an epoch is before the first of any later one, if clocks keep their rate within 1 % | `lease` |
| C5 | an elector keeps its promise over its own restart; a new disk is a new member | `ballot`, `members` |
| C6 | one change of members at a time, after a record of the own epoch is committed | `members` |
| C7 | a checkpoint never holds what is not committed | the shell: `cluster/journal` |
| C8 | what a lone voter sends on was on its own disk first, so what a listener has beyond it was lost there | `leading`, `following` |

What differs from Raft's paper is in docs/decisions/19-one-consensus.md, the bytes in
docs/formats/consensus.md.
"""  # noqa: E501  a table
