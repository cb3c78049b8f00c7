"""What Metaflow registers: three step decorators, one trampoline command, and an environment with its decorator.

``sandbox`` is a trampoline group: Metaflow then knows that ``sandbox step`` only takes a task elsewhere, and calls no
task hooks there.
"""

import sys

STEP_DECORATORS_DESC = [
    ("sandbox", ".sandbox_decorator.SandboxDecorator"),
    ("daytona", ".sandbox_decorator.DaytonaDecorator"),
    ("e2b", ".sandbox_decorator.E2BDecorator"),
    ("px_environment", ".environment.px_decorator.PxDecorator"),
]

ENVIRONMENTS_DESC = [
    ("px", ".environment.px_environment.PxEnvironment"),
]

TRAMPOLINE_CLIS_DESC = [
    ("sandbox", ".sandbox_cli.cli"),
]
# Older versions of Metaflow have one list for all commands. It is not imported to ask: `px sandbox ps` need not wait.
if not hasattr(sys.modules.get("metaflow.extension_support.plugins"), "get_trampoline_cli_names"):
    CLIS_DESC = TRAMPOLINE_CLIS_DESC
