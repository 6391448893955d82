"""May this judge be used? Measures, rules and a verdict that is kept."""
