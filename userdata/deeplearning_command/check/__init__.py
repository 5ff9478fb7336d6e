"""`deeplearning check`: tests of the contract and of the image, as users would run them."""
