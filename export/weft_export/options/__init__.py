"""What decides what a bundle has in it: the options that `weft export` and `weft up` share."""
