"""Workers spread over a Ray cluster, in actors that keep the state by themselves."""
