"""Tests of px.sandbox."""
