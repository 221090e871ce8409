"""Reviewers: metrics, intervals, alerts, calibrated thresholds, seeded cases and shadow reviews."""
