"""What the parts of desopt say to each other: protocols, streams, payloads, errors."""
