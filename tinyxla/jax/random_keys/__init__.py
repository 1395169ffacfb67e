"""Random keys: generators that programs define, and the analysis of keys that are used twice."""
