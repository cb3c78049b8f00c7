#!/bin/sh
# Build px-init for both architectures into ../../data/init. Needs gcc and gcc-aarch64-linux-gnu.
# The results are in the repository, so that px needs no compiler; a test builds them again and compares.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../data/init}
mkdir -p "$out"
for target in x86_64 aarch64; do
	"$target-linux-gnu-gcc" -std=gnu11 -Os -Wall -Wextra -Werror -ffreestanding -fno-builtin -fno-stack-protector \
		-fno-asynchronous-unwind-tables -fcf-protection=none -fno-pic -no-pie -nostdlib -static \
		-Wl,--build-id=none -Wl,-z,noexecstack -Wl,-z,norelro -Wl,-z,noseparate-code -Wl,--gc-sections -s -o "$out/$target" "$here/init.c" \
		|| { echo "no compiler for $target" >&2; exit 1; }
	chmod 755 "$out/$target"
done
