"""The services of the simulated world, and the network in front of them."""
