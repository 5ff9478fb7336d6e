"""`deeplearning check`: the contract and the image, tried as users would."""
