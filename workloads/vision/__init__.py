"""Image classification: JPEG files are read, decoded and augmented, and a convolutional network learns them."""
