"""Reviewers: metrics, intervals, alerts, calibrated thresholds and seeded cases."""
