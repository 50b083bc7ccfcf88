"""What every face shares: listeners, limits, requests, replies, proofs, streams."""
