"""What Metaflow registers: three step decorators and one trampoline command.

``sandbox`` is a trampoline group: Metaflow then knows that ``sandbox step`` only takes a task elsewhere, and calls no
task hooks there.
"""

STEP_DECORATORS_DESC = [
    ("sandbox", ".sandbox_decorator.SandboxDecorator"),
    ("daytona", ".sandbox_decorator.DaytonaDecorator"),
    ("e2b", ".sandbox_decorator.E2BDecorator"),
]

TRAMPOLINE_CLIS_DESC = [
    ("sandbox", ".sandbox_cli.cli"),
]
