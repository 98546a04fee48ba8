#!/bin/sh
# Writes out/sums.txt and out/report.txt. The report is written aside and moved into place, under a name with the process id in
# it: a name that is different in each run, and gone at its end, is no entry of the ledger.
set -eu
cd "$(dirname "$0")/.."
LC_ALL=C # sorts and says "total" alike everywhere
export LC_ALL
mkdir -p out
build/fold data/*.txt > out/sums.txt
{
    cat out/sums.txt
    wc -w data/*.txt
} > "out/report.$$"
mv "out/report.$$" out/report.txt
