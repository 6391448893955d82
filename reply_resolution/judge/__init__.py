"""The judge: rubric, client, cache, budget, sampling. Knows nothing of statistics."""
