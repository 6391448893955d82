"""What notebooks 2 and 3 compute and show: length bias, and collapsing to binary."""
