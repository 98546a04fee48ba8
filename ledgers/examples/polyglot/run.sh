#!/bin/sh
# The suite, as CI runs it: the job that capgate wraps.
set -eu
cd "$(dirname "$0")"
if [ ! -e build/fold ]; then
    echo "run.sh: nothing is compiled; run ./build.sh first" >&2
    exit 2
fi
PYTHONPATH=$PWD/build
export PYTHONPATH
exec "${PYTHON:-python3}" -m unittest discover -s tests
