#!/bin/sh
# Java 17 or newer, which the tests with Spark need: found, or installed on Debian by root.
set -eu

NEEDED=17

# The java that Spark would run.
java_command() {
    if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else echo java; fi
}

# Its major version, 0 where there is none. Java 8 calls itself 1.8.
java_version() {
    said=$("$(java_command)" -version 2>&1) || { echo 0; return; }
    number=$(printf '%s\n' "$said" | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
    echo "${number:-0}"
}

stop() {
    echo "make test needs Java $NEEDED or newer ($1): install OpenJDK $NEEDED (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) and have java on PATH, or JAVA_HOME name it" >&2
    exit 1
}

found=$(java_version)
[ "$found" -ge "$NEEDED" ] && exit 0

# With JAVA_HOME set, what apt-get installs would not be the java that is run.
[ -z "${JAVA_HOME:-}" ] || stop "JAVA_HOME=$JAVA_HOME has $([ "$found" -eq 0 ] && echo none || echo "Java $found")"
[ "$found" -eq 0 ] || stop "java on PATH is Java $found"
command -v apt-get > /dev/null 2>&1 && [ "$(id -u)" -eq 0 ] || stop "there is no java on PATH"

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless; } > "$log" 2>&1 ||
    stop "apt-get failed: $(tail -n 1 "$log")"
[ "$(java_version)" -ge "$NEEDED" ] || stop "what apt-get installed does not run"
