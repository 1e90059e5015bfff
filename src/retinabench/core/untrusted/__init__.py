"""What comes from a stranger: names of files, and text that we write again."""
