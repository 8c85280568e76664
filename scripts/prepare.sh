# What scripts/demo and scripts/test share: a virtual environment with the project in it, and a Java runtime.
# Sourced by bash with `set -euo pipefail`, in the root of the project. Everything that is there already is left alone,
# so a second run takes no time and needs neither root nor a network.

JAVA_MIN=17

# Dozens of Python processes import the same modules: without compiled files each would compile them anew.
unset PYTHONDONTWRITEBYTECODE

say() {
    printf '%s\n' "==> $*"
}

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

may_use_apt() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null
}

# apt_install PACKAGE...: the first of them that this release of Debian has.
apt_install() {
    local package
    apt-get update -qq
    for package in "$@"; do
        if [ -n "$(apt-cache madison "$package")" ]; then
            say "installing $package with apt"
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
            return
        fi
    done
}

python_is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

# The interpreter that makes the environments: $PYTHON, or the first on PATH that is new enough.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" >/dev/null && python_is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.10 or newer is needed and was not found." \
        "On Debian or Ubuntu: apt-get install python3 python3-venv; or name one: PYTHON=/path/to/python3 $0"
}

# make_venv DIRECTORY
make_venv() {
    local python
    if [ -x "$1/bin/python" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        # Debian ships venv without ensurepip; the package is named for the exact version.
        local package
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        may_use_apt || fail "$python cannot make a virtual environment." \
            "Install what is missing, then run this again: sudo apt-get install $package"
        apt_install "$package"
    fi
    say "making a virtual environment in $1 ($("$python" --version))"
    "$python" -m venv --clear "$1"
}

# install_project DIRECTORY REQUIREMENT...: what pyproject.toml asks for, again only when that has changed.
install_project() {
    local venv=$1 stamp wanted
    shift
    stamp=$venv/.installed
    wanted=$( { cat pyproject.toml; printf '%s\n' "$PWD" "$@"; } | sha256sum)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    say "installing $* in $venv (the first time this loads PySpark, about 450 MB)"
    local quiet=--quiet
    [ -t 1 ] && quiet=--progress-bar=on
    "$venv/bin/python" -m pip install --disable-pip-version-check $quiet "$@"
    "$venv/bin/python" scripts/compile_pyspark.py
    printf '%s\n' "$wanted" >"$stamp"
}

# archive_spark_classes VENV: what a Spark session loads, for the JVMs of the tests; made again with another PySpark.
archive_spark_classes() {
    local archive=$PWD/$1/spark-classes.jsa
    if [ "$archive" -nt "$1/.installed" ]; then
        return
    fi
    rm -f "$archive"
    "$1/bin/python" scripts/archive_spark_classes.py "$archive" >"$archive.log" 2>&1 ||
        say "the classes of Spark in $1 could not be archived ($archive.log): the tests take longer"
}

# fetch_prometheus VENV: Debian's Prometheus for the tests of metrics, which are left out without it. It is not installed,
# as that would start a server.
fetch_prometheus() {
    local directory
    if command -v prometheus >/dev/null || [ -x "$1/prometheus/prometheus" ] || ! command -v dpkg-deb >/dev/null; then
        return
    fi
    say "fetching Prometheus (19 MB)"
    directory=$(mktemp -d)
    {
        ! may_use_apt || apt-get update -qq
        (cd "$directory" && apt-get download -qq prometheus && dpkg-deb --extract prometheus_*.deb .) &&
            rm -rf "$1/prometheus" && mv "$directory/usr/bin" "$1/prometheus"
    } 2>"$directory/log" ||
        say "the tests that need Prometheus are left out: $(tail -n 1 "$directory/log")"
    rm -rf "$directory"
}

# The environment that demo and test share: the newest PySpark, the examples and the tools.
prepare_main_venv() {
    make_venv .venv
    install_project .venv --editable '.[spark,examples,dev]'
    # Compiled once for this machine; here, so that no test has to wait for it.
    .venv/bin/python -c 'from minikafka.records import kernels; kernels.warm_up()'
}

# java_version COMMAND: its major version, 0 when it does not run.
java_version() {
    local line
    line=$("$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || true
    printf '%s' "${line:-0}"
}

# Sets JAVA_HOME when the runtime that will do is not the one on PATH.
find_java() {
    local candidate
    if [ -n "${JAVA_HOME:-}" ] && [ "$(java_version "$JAVA_HOME/bin/java")" -ge $JAVA_MIN ]; then
        return 0
    fi
    if command -v java >/dev/null && [ "$(java_version java)" -ge $JAVA_MIN ]; then
        unset JAVA_HOME
        return 0
    fi
    for candidate in /usr/lib/jvm/*/bin/java; do
        if [ -x "$candidate" ] && [ "$(java_version "$candidate")" -ge $JAVA_MIN ]; then
            JAVA_HOME=$(dirname "$(dirname "$candidate")")
            export JAVA_HOME
            return 0
        fi
    done
    return 1
}

has_browser() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

# The tests of the web console drive a browser; without one they are skipped.
want_browser() {
    if ! has_browser && may_use_apt; then
        apt_install chromium
    fi
    has_browser || say "no Chromium: the tests of the console in a browser are skipped (sudo apt-get install chromium)"
}

# ZooKeeper and Spark need Java 17 or newer: Debian 12 has 17, Debian 13 has 21.
need_java() {
    if find_java; then
        return
    fi
    if may_use_apt; then
        apt_install openjdk-17-jre-headless openjdk-21-jre-headless
    fi
    find_java || fail "Java $JAVA_MIN or newer is needed (for ZooKeeper and Spark) and was not found." \
        "Debian 12: sudo apt-get install openjdk-17-jre-headless; Debian 13: sudo apt-get install openjdk-21-jre-headless;" \
        "elsewhere: any Java 17 or 21 runtime, on PATH or named by JAVA_HOME. Then run this again."
}
