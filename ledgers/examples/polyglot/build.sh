#!/bin/sh
# Compiles the extension and the helper. This is not part of the gated job: the ledger tells what the tests do, not what a
# compiler's version writes.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python3}
cc=${CC:-cc}
mkdir -p build
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if [ ! -e "$headers/Python.h" ]; then
    echo "build.sh: $headers has no Python.h; install the headers of $python (Debian: python3-dev)" >&2
    exit 1
fi
"$cc" -O2 -Wall -Wextra -fPIC -shared -I"$headers" native/tally.c -o build/tally.abi3.so
"$cc" -O2 -Wall -Wextra -static native/fold.c -o build/fold
