"""Products of arrays: DotGeneral, convolutions, ragged and scaled products."""
