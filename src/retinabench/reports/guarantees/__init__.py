"""What the verbs about guarantees print."""
