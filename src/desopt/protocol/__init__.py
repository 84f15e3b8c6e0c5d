"""The network without a network: messages, and both sides of the exchange as plain logic."""
