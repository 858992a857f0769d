"""Draws from the posterior by stochastic gradient Langevin dynamics and its relatives: one file for each sampler."""
