"""From judged replies to one page that decides, and everything behind it."""
