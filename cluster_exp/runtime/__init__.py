"""The live runtime: master, workers, trainers."""
