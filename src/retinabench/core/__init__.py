"""What every other package builds on: errors, random streams, atomic files, progress, subprocesses."""
