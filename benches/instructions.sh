#!/bin/sh
# Instructions that the gateway spends on one small call, against the budget in instructions.txt. Needs valgrind.
# Counts do not depend on how busy the machine is, so CI can hold them to a few percent; they do depend on the
# compiler. `--write` makes what is measured the budget.
set -eu
cd "$(dirname "$0")/.."
budget=benches/instructions.txt
tolerance=5

bench=$(cargo bench --bench gateway --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/gateway-[^"]*\)".*/\1/p')
counts=$(mktemp)
trap 'rm -f "$counts"' EXIT

# instructions MODE SIZE IN_FLIGHT CALLS: of a whole run, from start to end.
instructions() {
    "$bench" role load "$@" valgrind --tool=callgrind --callgrind-out-file="$counts"
    sed -n 's/^summary: //p' "$counts"
}

status=0
measured=
while read -r mode size in_flight allowed; do
    few=$(instructions "$mode" "$size" "$in_flight" 640)
    many=$(instructions "$mode" "$size" "$in_flight" 2560)
    each=$(((many - few) / 1920))
    measured="$measured$mode $size $in_flight $each
"
    verdict=ok
    if [ $((each * 100)) -gt $((allowed * (100 + tolerance))) ]; then
        verdict='MORE THAN ALLOWED'
        status=1
    elif [ $((each * 100)) -lt $((allowed * (100 - tolerance))) ]; then
        verdict='less than allowed: lower the budget (--write)'
    fi
    echo "$mode, $size B, $in_flight in flight: $each instructions a call, budget $allowed: $verdict"
done <"$budget"
if [ "${1:-}" = --write ]; then
    printf %s "$measured" >"$budget"
    exit 0
fi
exit $status
