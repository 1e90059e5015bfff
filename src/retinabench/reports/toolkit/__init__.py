"""What all reports share: number formats, one table model, one figure style and one page builder."""
