"""Reinforcement learning on Atari games: games are played on the CPU, and a network learns from them."""
