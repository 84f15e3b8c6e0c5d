"""The terminal, the cores, and how work is spread over them."""
