#!/bin/sh
# Part of the scripts beside it. Looks at processes: there may be no agent to ask, and no configuration to read.

# Guests whose QEMU an agent of this host has started, by name.
guests() {
    grep -lzs '^socket,id=drover-qmp,' /proc/[0-9]*/cmdline | while read -r process; do
        tr '\0' '\n' 2>/dev/null <"$process" | sed -n '/^-name$/{n;p;q}'
    done | sort -u | paste -sd ' '
}

# Processes that agents of this host have left to themselves: "relay", which carries a migration, or "change", which sets
# something of this host. By number.
working() { grep -lsx "droverd-$1" /proc/[0-9]*/comm | tr -dc '0-9\n' | paste -sd ' '; }
