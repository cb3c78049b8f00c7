"""What px says about a sandbox: why each part is there, and a bill of materials."""
