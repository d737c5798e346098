#!/bin/sh
# Instructions and allocations that the gateway spends on one small call, against the budget in instructions.txt: a row
# for each way to address a tool, and for each era that the client and the server speak. `journalled` is a call by
# registered name with journal and metrics on, `traced` one whose spans go to a collector, all threads counted.
# Counts do not depend on how busy the machine is, so CI can hold them to a few percent; they do depend on the
# compiler. Needs valgrind; without it nothing is checked, and that is said. `--write` makes what is measured the budget.
set -eu
cd "$(dirname "$0")/.."
budget=benches/instructions.txt
tolerance=10

if ! command -v valgrind >/dev/null; then
    # Where CI may install packages, it does.
    { [ "$(id -u)" = 0 ] && apt-get install -qq -y valgrind >/dev/null 2>&1; } || true
fi
if ! command -v valgrind >/dev/null; then
    echo 'SKIPPED: valgrind is not installed and cannot be, so the budget of instructions was not checked'
    exit 0
fi

# built NAME ARGUMENTS: the path of the executable of that name, which cargo builds with these arguments.
built() {
    name=$1
    shift
    cargo "$@" --message-format=json | sed -n 's/.*"executable":"\([^"]*\/'"$name"'[^"]*\)".*/\1/p'
}
# Whoever makes the calls is not counted, so it is built as tests are. What is counted is the gateway without its verbs, which
# takes half the time to build.
bench=$(built gateway- bench --profile dev --bench gateway --no-run)
gateway=$(RUSTFLAGS="${RUSTFLAGS:-} --cfg counting" built mcp-workbench build --profile count --bin mcp-workbench)
profile=$(mktemp)
trap 'rm -f "$profile" "$profile.budget"' EXIT

# count WAY CLIENT SERVER SIZE IN_FLIGHT CALLS: instructions and calls of the allocator in a whole run, from start to end.
count() {
    "$bench" role load "$@" valgrind --tool=callgrind --callgrind-out-file="$profile" "$gateway"
    awk '
        # Names stand in full once, by number afterwards: "(7) malloc", "(7)".
        function name(text, number) {
            number = text
            sub(/\).*/, "", number)
            if (sub(/^\([0-9]+\) /, "", text)) names[number] = text
            return names[number]
        }
        /^fn=/ { name(substr($0, 4)) }
        /^cfn=/ { callee = name(substr($0, 5)) }
        /^calls=/ && callee ~ /^(malloc|calloc|realloc|posix_memalign|aligned_alloc)$/ { allocations += substr($1, 7) }
        /^summary: / { instructions = $2 }
        END { print instructions, allocations }
    ' "$profile"
}

# Another compiler makes other code: then the numbers are shown and hold nobody.
compiler=$(rustc --version)
counted_with=$(head -n 1 "$budget")
status=0
measured="$compiler
"
tail -n +2 "$budget" >"$profile.budget"
while read -r way client server size in_flight allowed allowed_allocations; do
    few=$(count "$way" "$client" "$server" "$size" "$in_flight" 640)
    many=$(count "$way" "$client" "$server" "$size" "$in_flight" 2560)
    each=$(((${many% *} - ${few% *}) / 1920))
    # In hundredths.
    allocations=$((((${many#* } - ${few#* }) * 100 + 960) / 1920))
    measured="$measured$way $client $server $size $in_flight $each $allocations
"
    verdict=ok
    if [ $((each * 100)) -gt $((allowed * (100 + tolerance))) ] ||
        [ "$allocations" -gt $((allowed_allocations + 50)) ]; then
        verdict='MORE THAN ALLOWED'
        status=1
    elif [ $((each * 100)) -lt $((allowed * (100 - tolerance))) ]; then
        verdict='less than allowed: lower the budget (--write)'
    fi
    echo "$way, $client client, $server server, $size B, $in_flight in flight: $each instructions a call (budget $allowed)," \
        "$allocations/100 allocations (budget $allowed_allocations/100): $verdict"
done <"$profile.budget"
if [ "${1:-}" = --write ]; then
    printf %s "$measured" >"$budget"
    exit 0
fi
if [ "$compiler" != "$counted_with" ]; then
    echo "not held to the budget, which was counted with $counted_with: --write makes it anew"
    exit 0
fi
exit $status
