"""Notifications to people: mail, chats and other channels. Each notification is a run."""
