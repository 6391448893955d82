"""Statistics of ordinal scores, computed from counts. Knows nothing of judges."""
