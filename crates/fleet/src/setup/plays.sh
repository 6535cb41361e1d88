# Ends what playbooks that are under way have started on this machine. ssh brought it here, so it is
# below no process of ours; it is known by a variable. $1: the folder of a host.
end_plays() {
  for play in "$1"/plays/*; do
    [ -f "$play" ] || continue
    tries=0
    while [ $tries -lt 50 ]; do
      some=
      for process in $(grep -lzxF -e "PLANARIA_PLAY=${play##*/}" /proc/[0-9]*/environ 2>/dev/null); do
        process=${process#/proc/}
        kill -KILL "${process%/environ}" 2>/dev/null && some=1
      done
      [ -n "$some" ] || break
      tries=$((tries + 1))
      sleep 0.1 2>/dev/null || sleep 1
    done
    forget_play "$play"
  done
}

# Takes away what tells of a playbook, and the shell that was made for it.
forget_play() {
  shell=$(cat "$1" 2>/dev/null)
  case $shell in /tmp/planaria-play-*) rm -f "$shell" ;; esac
  rm -f "$1"
}
