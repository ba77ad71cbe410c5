"""Trains ShuffleNet V2 1.0x to tell the classes of images apart."""

import sys

from workloads.command import main
from workloads.vision.program import vision_program

PROGRAM = vision_program("shufflenet_v2_x1_0", "Trains ShuffleNet V2 1.0x to tell the classes of images apart.")

if __name__ == "__main__":
    sys.exit(main(PROGRAM))
