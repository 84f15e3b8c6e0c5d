"""The network without a network: messages, and both sides of them as plain logic."""
