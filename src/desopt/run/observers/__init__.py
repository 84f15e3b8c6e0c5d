"""What is told of every round."""
