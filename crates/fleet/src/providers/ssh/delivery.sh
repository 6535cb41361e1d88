# Before this: sha, bytes, build and run of the program that is wanted. What follows uses $file.
# One line for each thing that the controller must know, nothing secret, and POSIX words only.
LC_ALL=C
export LC_ALL

fail() {
  printf 'planaria: fault %s\n' "$(printf '%s' "$*" | tr '\n\r' '  ' | cut -c 1-1000)"
  exit 1
}

# The machine, its C library and the room it has, where the program has to come first.
describe() {
  libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=
  case $libc in
  glibc*) ;;
  *) case $(ldd --version 2>&1) in *musl*) libc=musl ;; *) libc=unknown ;; esac ;;
  esac
  set -- $(df -Pk "$bin" 2>/dev/null | tail -n 1)
  printf 'planaria: missing %s %s %s %s\n' "$(uname -s)" "$(uname -m)" "${4:-unknown}" "$libc"
}

# The SHA-256 of a file; of one that cannot be hashed here it is taken for right.
hash() {
  if command -v sha256sum >/dev/null 2>&1; then
    set -- $(sha256sum <"$1")
  elif command -v openssl >/dev/null 2>&1; then
    set -- $(openssl dgst -sha256 -r <"$1")
  else
    set -- "$sha"
  fi
  printf '%s' "$1"
}

# Whether the program is there as it was delivered: a disk may have damaged it since, or a hand.
is_whole() {
  [ -f "$bin/ok" ] && [ -x "$file" ] && [ "$(wc -c <"$file")" -eq "$bytes" ] &&
    [ "$(hash "$file")" = "$sha" ]
}

# What was left by a delivery that was killed, and programs that were not used for a month.
tidy() {
  find "$folder/bin" -name '.part.*' -mmin +60 -exec rm -f {} + 2>/dev/null
  find "$folder/bin" -name ok -mtime +30 2>/dev/null | while IFS= read -r old; do
    rm -rf "${old%/ok}"
  done
}

deliver() {
  mask=$(umask)
  umask 077
  why=$(mkdir -p "$bin" 2>&1) || fail folder "$why"
  tidy
  describe
  part=$bin/.part.$$
  trap 'rm -f "$part"' EXIT
  trap 'exit 1' HUP INT TERM PIPE
  why=$({ head -c "$bytes" >"$part"; } 2>&1) || fail folder "$why"
  got=$(wc -c <"$part")
  [ "$got" -eq "$bytes" ] || fail short "$got"
  got=$(hash "$part")
  [ "$got" = "$sha" ] || fail damaged "$got"
  chmod 700 "$part"
  said=$("$part" agent build 2>&1 </dev/null) || fail start "$? $said"
  [ "$said" = "$build" ] || fail build "$said"
  why=$(mv -f "$part" "$file" 2>&1) || fail folder "$why"
  trap - EXIT HUP INT TERM PIPE
  umask "$mask"
}

cd "${HOME:-/nonexistent}" 2>/dev/null || fail home "${HOME:-not set}"
folder=$HOME/.cache/planaria
bin=$folder/bin/$sha
file=$bin/planaria
is_whole || deliver
true >"$bin/ok"
