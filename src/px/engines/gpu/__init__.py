"""GPUs of this machine in a sandbox: the driver's device nodes and libraries, and nothing else of the machine."""
