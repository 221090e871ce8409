"""Webhooks: signed answers that come in, signed notices that go out, and the server that receives."""
