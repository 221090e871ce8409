"""The canonical form of a call's arguments: encode, decode, and the form of each type."""
