#!/bin/sh
# What the browser tests need besides Python: Debian's chromium. Quick when it is there already.
set -eu
if ! command -v chromium >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi
