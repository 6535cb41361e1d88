# Before this: run, and `end_plays`. Ends the run's host on this machine, by its own wish or without, and removes what
# it had written. What the host has started ends with it.
cd "${HOME:-/nonexistent}" 2>/dev/null || exit 1

# Processes are known by their command line: a number that was written down may be another's by now.
is_host() {
  case "$(2>/dev/null tr '\000' ' ' <"/proc/$1/cmdline")" in
  *"/planaria agent host $run "*) return 0 ;;
  # One that looks for its program yet: it would make the folder again.
  "sh -c eval "*" planaria host $run "*) return 0 ;;
  esac
  return 1
}

hosts() {
  2>/dev/null cat ".cache/planaria/runs/$run/host.pid"
  echo
  grep -lzxF -e "$run" /proc/[0-9]*/cmdline 2>/dev/null | while IFS=/ read -r _ _ pid _; do
    echo "$pid"
  done
}

some=
for pid in $(hosts); do
  case $pid in *[!0-9]*) continue ;; esac
  if is_host "$pid"; then some="$some $pid"; fi
done
for pid in $some; do kill -TERM "$pid" 2>/dev/null; done
for pid in $some; do
  tries=0
  while is_host "$pid" && [ $tries -lt 30 ]; do
    sleep 0.1 2>/dev/null || sleep 1
    tries=$((tries + 1))
  done
  # Its group too: it is the leader of what ssh started.
  if is_host "$pid"; then
    kill -KILL "-$pid" 2>/dev/null
    kill -KILL "$pid" 2>/dev/null
  fi
done
# A host that was killed has not ended what came by ssh.
for folder in ".cache/planaria/runs/$run"/host-*; do end_plays "$folder"; done
why=$(rm -rf ".cache/planaria/runs/$run" 2>&1) || {
  printf 'planaria: kept %s\n' "$(printf '%s' "$why" | tr '\n\r' '  ' | cut -c 1-1000)"
  exit 1
}
printf 'planaria: removed\n'
