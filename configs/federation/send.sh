#!/bin/sh
# A toy network: each site is a file. `far.example` answers when it is asked for the fourth time.
site=$1 id=$2
if [ "$site" = far.example ] && [ "$TIDEGATE_ATTEMPT" -lt 4 ]; then
    echo "$site does not answer" >&2
    exit 1
fi
mkdir -p out
echo "$id" >> "out/$site"
echo "{ \"id\": $id, \"site\": \"$site\", \"attempts\": $TIDEGATE_ATTEMPT }"
