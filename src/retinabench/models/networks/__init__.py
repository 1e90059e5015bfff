"""The networks, one module each, and the head that is trained on cached features."""
