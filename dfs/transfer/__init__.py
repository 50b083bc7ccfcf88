"""What a client and a chunkserver share: bytes on their way, and the format that proves them."""
