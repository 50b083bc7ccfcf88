"""The durable log of both masters, and the copy of one that another host keeps."""
