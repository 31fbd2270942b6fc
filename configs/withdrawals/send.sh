#!/bin/sh
# A toy chain: each transaction is a line in a file. One that comes again after a crash has the same hash, by which
# a chain knows it.
id=$1 pool=$2 amount=$3
if [ "$amount" -gt 1000 ]; then
    echo "pool $pool has not got $amount" >&2
    exit 1
fi
mkdir -p out
echo "$TIDEGATE_HASH $pool $id $amount" >> out/chain
echo "{ \"id\": \"$id\", \"transaction\": \"$TIDEGATE_HASH\" }"
