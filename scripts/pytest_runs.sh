# Runs of pytest that are counted test by test, for scripts/test and scripts/interop. Sourced behind prepare.sh; $reports is
# a directory, which gets a JUnit file of each run, and in `broken` a line for each run that ended in another way.

# The failures of a run that were told once more take three minutes at most, also where MINIKAFKA_TESTS_UNTIL is over.
AGAIN_S=180

# tests NAME VENV MOST_AGAIN PYTEST-ARGUMENT...: a run; when MOST_AGAIN tests at most failed, these once more, one after another.
tests() {
    local name=$1 venv=$2 most_again=$3 started=$SECONDS status=0 failed=0
    shift 3
    say "$name"
    pytest_run "$name" "$name" "$venv" "$@" || status=$?
    if [ $status -eq 1 ]; then
        failed=$(grep -c ': true' "$reports/$name/v/cache/lastfailed") || true
    fi
    if [ "$failed" -gt 0 ] && [ "$failed" -le "$most_again" ]; then
        say "$name: once more what failed, one after another"
        status=0
        MINIKAFKA_TESTS_UNTIL=${MINIKAFKA_TESTS_UNTIL:+$((MINIKAFKA_TESTS_UNTIL + AGAIN_S))} \
            pytest_run "$name-again" "$name" "$venv" "$@" -n 0 --last-failed --last-failed-no-failures none || status=$?
        [ $status -ne 5 ] || status=0 # nothing left: what failed was no test
    fi
    [ -s "$reports/$name.xml" ] || echo "$name (it ended without a report)" >>"$reports/broken"
    # 1 is "some failed", which the count shows; anything else (5: nothing collected) is a failure of the run.
    [ $status -le 1 ] || echo "$name (pytest ended with $status)" >>"$reports/broken"
    printf '    %s: %d s\n' "$name" $((SECONDS - started))
}

# pytest_run REPORT CACHE VENV PYTEST-ARGUMENT...
pytest_run() {
    local report=$1 cache=$2 venv=$3
    shift 3
    PATH="$PWD/$venv/bin:$PATH" "$venv/bin/python" -m pytest -q --junitxml "$reports/$report.xml" \
        -o "cache_dir=$reports/$cache" "$@"
}
