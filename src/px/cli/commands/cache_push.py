"""``px cache push``: fill the shared cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.cli.flags import architectures
from px.workflow.door import permitted
from px.workflow.supply.cache import push_cache

if TYPE_CHECKING:
    import argparse

    from px.project.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--platform", default="", metavar="LIST", help="linux/amd64, linux/arm64 or both")
    parser.epilog = "The cache is the repository that [tool.px] cache or PX_CACHE names, such as HOST/team/px-cache."


def main(args: argparse.Namespace, context: Context) -> int:
    with permitted(context, "cache push") as situation:
        pushed = push_cache(situation, architectures(args.platform))
    sent = (
        f"{console.counted(pushed.sent, 'blob')} sent ({console.size(pushed.sent_bytes)})"
        if pushed.sent
        else "nothing to send"
    )
    message = f"{pushed.cache}: {console.counted(pushed.objects, 'object')}, {sent}"
    if not args.json:
        print(message)
    emit(
        args,
        message,
        {"cache": pushed.cache, "objects": pushed.objects, "sent": pushed.sent, "bytes": pushed.sent_bytes},
    )
    return 0
