#!/usr/bin/env bash
# fetch.sh DIR: unpacks rsyslog and syslog-ng from Debian (or Ubuntu) side by side into DIR, without installing them: the two packages
# conflict. DIR/bin then holds a program of each name, which bench finds when DIR/bin is on the PATH. Needs apt-get and dpkg.
set -euo pipefail
[ $# = 1 ] || { echo "usage: fetch.sh DIR" >&2; exit 2; }
mkdir -p "$1/bin" "$1/deb" "$1/unpacked"
dir=$(cd "$1" && pwd)
packages=(
  rsyslog rsyslog-elasticsearch libestr0 libfastjson4 liblognorm5
  syslog-ng-core syslog-ng-mod-http libivykis0 libnet1 libwrap0 libjson-c5 libcurl4 libnghttp2-14 librtmp1 libssh2-1 libpsl5 libldap-2.5-0
  libsasl2-2 libcap2 libpcre3 libbrotli1
)
cd "$dir/deb"
for package in "${packages[@]}"; do
  # A library of another release has another name: what is missing then is on the system already, or the program says so itself.
  apt-get download -qq "$package" 2>/dev/null || echo "fetch: no package $package here" >&2
done
for deb in *.deb; do dpkg -x "$deb" "$dir/unpacked"; done
# folder NAME is where a file of that name lies.
folder() { dirname "$(find "$dir/unpacked" -name "$1" | head -1)"; }
libraries=$(find "$dir/unpacked" -name 'lib*.so.*' -printf '%h\n' | sort -u | paste -sd:)
wrap() { # NAME PROGRAM ARGUMENT...: a program that starts another with the libraries beside it
  local name=$1 program=$2
  shift 2
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s %s "$@"\n' "$libraries" "$program" "$*" >"$dir/bin/$name"
  chmod +x "$dir/bin/$name"
}
wrap rsyslogd "$dir/unpacked/usr/sbin/rsyslogd" -M "$(folder imfile.so)"
wrap syslog-ng "$dir/unpacked/usr/sbin/syslog-ng" --module-path "$(folder libaffile.so)"
"$dir/bin/rsyslogd" -v | head -1
"$dir/bin/syslog-ng" -V | head -1
echo "ready: PATH=$dir/bin:\$PATH"
