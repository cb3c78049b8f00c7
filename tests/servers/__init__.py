"""Servers that speak the protocols of E2B and Daytona to their unmodified SDKs, over loopback, for tests.

They are not the providers: no isolation between tenants, no quotas, no public images, no egress filtering, no
pausing, no volumes.  What they do not know, they refuse.  What they run, they run in real px sandboxes.
"""
