"""The services of the demo: real servers on loopback, written as their makers would document them."""
