"""The wire: frames, messages, the proof of the secret, control and bulk connections.

`network` is the door; beside it other rooms import `messages` (what is said), `addresses` and
`identity` (who says it).
"""
