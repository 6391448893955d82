"""Tables of replies, labels and verdicts: read strictly, every odd cell named."""
