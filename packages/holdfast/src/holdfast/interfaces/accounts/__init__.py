"""Who may decide: accounts, what they may do and where, how they prove who they are, and what was decided on that."""
