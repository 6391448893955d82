"""People label replies, blind; and everybody reads them side by side."""
