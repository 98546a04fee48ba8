#!/bin/sh
# Makes a fresh copy of the suite and builds it, with one of the changes under variants/ when one is named:
#   ./checkout.sh /tmp/c-connect c-connect
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: checkout.sh DIRECTORY [VARIANT]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
mkdir "$1"
target=$(cd "$1" && pwd -P)
cd "$here"
cp -R build.sh data native run.sh scripts tests "$target"
cd "$target"
rm -rf tests/__pycache__ tests/capability.actual.json
if [ $# -eq 2 ]; then
    # A repository around the copy must not decide where the names in the patch belong.
    GIT_CEILING_DIRECTORIES=$(dirname "$target") git apply "$here/variants/$2.patch"
fi
./build.sh
