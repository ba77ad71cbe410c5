"""Trains VGG-19 to tell the classes of images apart."""

import sys

from workloads.command import main
from workloads.vision.program import vision_program

PROGRAM = vision_program("vgg19", "Trains VGG-19 to tell the classes of images apart.")

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
