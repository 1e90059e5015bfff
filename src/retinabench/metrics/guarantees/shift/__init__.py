"""What is known of a set whose images differ from validation: whether they do, and what a threshold does there."""
