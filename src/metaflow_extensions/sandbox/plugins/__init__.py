"""What Metaflow registers: three step decorators and one trampoline command.

``sandbox`` is a trampoline group, not a plain one: Metaflow then knows that the process behind it only
delegates, and runs no task hooks there.
"""

STEP_DECORATORS_DESC = [
    ("sandbox", ".sandbox_decorator.SandboxDecorator"),
    ("daytona", ".sandbox_decorator.DaytonaDecorator"),
    ("e2b", ".sandbox_decorator.E2BDecorator"),
]

TRAMPOLINE_CLIS_DESC = [
    ("sandbox", ".sandbox_cli.cli"),
]
