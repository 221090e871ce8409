"""People decide: what they are asked, what they are shown about it, and every word with which they can answer."""
