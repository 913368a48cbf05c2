"""A slow, independent simulator that the compiled engine is held against, and the cases both are run on."""
