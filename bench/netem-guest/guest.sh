#!/bin/busybox sh
# First process of the guest: loads modules, does what the kernel's command line asks, ends the machine.
/bin/busybox --install -s /bin
export PATH=/bin LD_LIBRARY_PATH=/lib/x86_64-linux-gnu HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /tmp/target /dev/shm /run/netns
/bin/ip link set lo up
echo "guest: up, Linux $(uname -r), $(nproc) CPUs, clock $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
for word in $(cat /proc/cmdline); do
    case $word in goodput=*) what=${word#goodput=} ;; esac
done
while read -r module; do
    insmod "/modules/$module" 2>/dev/null || true
done </modules/order

# Busybox would rather run its own.
ip() { /bin/ip "$@"; }

# Runs a line, says it and what came of it.
try() {
    echo "\$ $*"
    "$@" 2>&1
    code=$?
    [ $code -eq 0 ] || echo "exit code $code"
}

soft_roce() {
    try ip link add veth0 type veth peer name veth1
    ip link set veth0 up
    ip link set veth1 up
    ip address add 198.18.1.1/24 dev veth0
    sleep 2
    try rdma link add rxe0 type rxe netdev veth0
    try rdma link show
    try ibv_devinfo -d rxe0
    # The other end in a namespace of its own.
    ip netns add far
    ip link set veth1 netns far
    ip -n far address add 198.18.1.2/24 dev veth1
    ip -n far link set veth1 up
    ip -n far link set lo up
    try ip netns exec far rdma link add rxe1 type rxe netdev veth1
    try rdma link show
    try rdma system show
    # To itself: the device, the verbs and the state machine work, the wire is not used.
    ibv_rc_pingpong -d rxe0 -g 1 -n 100 >/tmp/server 2>&1 &
    sleep 3
    try ibv_rc_pingpong -d rxe0 -g 1 -n 100 127.0.0.1
    wait
    # To the namespace, by the second device.
    ip netns exec far ibv_rc_pingpong -d rxe1 -g 1 -n 100 >/tmp/server 2>&1 &
    sleep 3
    try timeout 20 ibv_rc_pingpong -d rxe0 -g 1 -n 100 198.18.1.2
    kill $! 2>/dev/null
    cat /tmp/server
}

# perftest's client of its server on the same device; its rows only.
perftest() {
    echo "\$ $*"
    "$@" >/tmp/server 2>&1 &
    server=$!
    sleep 1
    timeout 60 "$@" 198.18.1.1 >/tmp/client 2>&1 || { echo "exit code $?"; tail -3 /tmp/client; }
    kill $server 2>/dev/null
    wait $server 2>/dev/null
    grep -E '^ *(#bytes|[0-9]+ )' /tmp/client
}

# Messages by goodput beside perftest, each from the device to itself.
verbs() {
    export NO_COLOR=1 GOODPUT_RUNS=/tmp/runs
    near="goodput measure 198.18.1.1"
    ip link add veth0 type veth peer name veth1
    ip link set veth0 up
    ip link set veth1 up
    ip address add 198.18.1.1/24 dev veth0
    goodput serve --listen 198.18.1.1 >/tmp/serve 2>&1 &
    serve=$!
    sleep 3
    echo "Without a device:"
    try $near --messages 64 --transport verbs-rc
    try rdma link add rxe0 type rxe netdev veth0
    try rdma link show
    gid=$(grep -l c612:0101 /sys/class/infiniband/rxe0/ports/1/gids/* | tail -1)
    gid=${gid##*/}
    for service in rc uc ud; do
        upper=$(echo $service | tr a-z A-Z)
        sizes="1024 65536"
        [ $service = ud ] && sizes="64 1024"
        echo
        echo "== $service =="
        for size in $sizes; do
            # Unless told, perftest asks for every hundredth completion: seconds of large messages.
            each=100
            [ $size -gt 9999 ] && each=8
            try timeout 60 $near --transport verbs-$service --duration 500ms --messages $size
            perftest ib_send_bw -d rxe0 -x $gid -c $upper -s $size -D 1 -Q $each -F --report_gbits
            perftest ib_send_lat -d rxe0 -x $gid -c $upper -s $size -n 100 -F
        done
    done
    echo
    echo "== A sweep =="
    cd /tmp || exit 1
    try timeout 200 $near --transport verbs-rc --sweep message-size=64,1024,65536 --budget 12s --duration 400ms \
        --ramp 100ms
    echo
    echo "== Ends =="
    # A receiver that stands still for a second: UC and UD lose what it has nothing ready for, RC waits.
    for service in rc uc ud; do
        (sleep 4; kill -STOP $serve; sleep 1; kill -CONT $serve) &
        try timeout 30 $near --messages 64 --transport verbs-$service --duration 2s
    done
    try timeout 30 $near --messages 64 --transport verbs-rc --device rxe0:1:$gid --duration 100ms
    try timeout 30 $near --messages 64 --transport verbs-rc --device rxe9:1
    try timeout 30 $near --messages 2048 --transport verbs-ud
    (sleep 3; kill -9 $serve) &
    try timeout 30 $near --messages 64 --transport verbs-rc --duration 20s
}

# ib_send_bw and its client, $1 times, as JSON: the rates and their median. Its MB are MiB.
send_bw() {
    rounds=$1
    shift
    for round in $(seq "$rounds"); do
        "$@" >/tmp/server 2>&1 &
        server=$!
        sleep 1
        timeout 60 "$@" 198.18.1.1 >/tmp/client 2>&1
        kill $server 2>/dev/null
        wait $server 2>/dev/null
        awk '/^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+/ { printf "%.0f\n", $4 * 8388608 }' /tmp/client
    done | sort -n | awk -v command="$*" '{ each = each (NR > 1 ? ", " : "") $1; rate[NR] = $1 }
        END { printf "{\"command\": \"%s\", \"each_bits_per_second\": [%s], \"goodput_bits_per_second\": %s}",
            command, each, NR ? rate[int((NR + 1) / 2)] : "null" }'
}

# Sweeps of messages by goodput and then the same sizes by ib_send_bw, as one JSON object but for its brace.
beside() {
    cd /tmp || exit 1
    ip link add veth0 type veth peer name veth1
    # So that a packet has 4096 B, the most there is.
    ip link set veth0 mtu 9000 up
    ip link set veth1 mtu 9000 up
    ip address add 198.18.1.1/24 dev veth0
    rdma link add rxe0 type rxe netdev veth0
    goodput serve --listen 198.18.1.1 >/tmp/serve 2>&1 &
    sleep 3
    gid=$(grep -l c612:0101 /sys/class/infiniband/rxe0/ports/1/gids/* | tail -1)
    gid=${gid##*/}
    for service in rc uc ud; do
        upper=$(echo $service | tr a-z A-Z)
        sizes="4096 131072 524288"
        [ $service = ud ] && sizes="1024 4096"
        # Without a ramp both count from the first message to the last.
        goodput measure 198.18.1.1 --transport verbs-$service --sweep message-size="$(echo $sizes | tr ' ' ,)" \
            --outstanding 16 --duration 1s --ramp 0s --budget 1ms --json >/tmp/sweep.json 2>/tmp/said
        code=$?
        # 1: points of two rounds are no curve.
        if [ $code -gt 1 ]; then
            printf '"failed": "goodput ended with %s: %s",\n' $code "$(tail -1 /tmp/said | tr -d '"\\')"
            break
        fi
        printf '"%s": ' $service
        cat /tmp/sweep.json
        printf ', "ib_send_bw_%s": [\n' $service
        comma=
        for size in $sizes; do
            n=$((50000000 / size))
            [ $n -gt 5000 ] && n=5000
            what="ib_send_bw -d rxe0 -x $gid -c $upper -s $size -n $n -t 16 -Q 8 -F"
            printf '%s{"message_bytes": %s, "poll": ' "$comma" $size
            send_bw 3 $what
            printf ', "events": '
            send_bw 1 $what -e
            printf '}'
            comma=",
"
        done
        printf '],\n'
    done
    printf '"kernel": "%s"\n}\n' "$(uname -r)"
}

# What goodput says of the PCI link of an interface, and what lspci says, as one JSON object but for its brace.
pci() {
    cd /tmp || exit 1
    for card in /sys/class/net/*/device; do
        interface=$(basename "$(dirname "$card")")
        address=$(basename "$(readlink -f "$card")")
    done
    ip address add 198.18.9.1/24 dev "$interface"
    ip link set "$interface" up
    goodput serve --listen 198.18.9.1 >/tmp/serve 2>&1 &
    sleep 3
    goodput doctor 198.18.9.1 --duration 2s --ramp 500ms --json >/tmp/doctor.json 2>/tmp/said
    code=$?
    [ $code -le 1 ] || printf '"failed": "goodput ended with %s: %s",\n' $code "$(tail -1 /tmp/said | tr -d '"\\')"
    printf '"doctor": '
    cat /tmp/doctor.json
    lspci -vv -s "$address" >/tmp/lspci 2>/dev/null
    # The first of each: of the device's own registers.
    number() { sed -n "s/.*$1.*/\\1/p" /tmp/lspci | head -1; }
    printf ', "lspci": {"address": "%s", "megatransfers": %s, "lanes": %s, "megatransfers_max": %s, "lanes_max": %s,' "$address" \
        "$(number 'LnkSta:.*Speed \([0-9.]*\)GT' | awk '{ print $1 * 1000 }')" "$(number 'LnkSta:.*Width x\([0-9]*\)')" \
        "$(number 'LnkCap:.*Speed \([0-9.]*\)GT' | awk '{ print $1 * 1000 }')" "$(number 'LnkCap:.*Width x\([0-9]*\)')"
    printf ' "payload_bytes": %s, "payload_max_bytes": %s, "read_request_bytes": %s},\n' \
        "$(sed -n '/DevCtl:/,$s/.*MaxPayload \([0-9]*\) bytes, MaxReadReq.*/\1/p' /tmp/lspci | head -1)" \
        "$(number 'DevCap:.*MaxPayload \([0-9]*\)')" "$(number 'MaxReadReq \([0-9]*\)')"
    printf '"kernel": "%s"\n}\n' "$(uname -r)"
}

facts() {
    cat /proc/version
    echo
    echo "Modules in the package, and whether they are loaded:"
    while IFS=': ' read -r name file; do
        loaded=no
        [ -d "/sys/module/$name" ] && loaded=yes
        echo "$name: ${file:-built in or missing}; loaded: $loaded"
    done </modules/facts
    echo
    try cat /proc/sys/net/ipv4/tcp_available_congestion_control
    echo
    soft_roce
}

case $what in
    bench*)
        cd /tmp || exit 1
        xtask bench netem $(echo "${what#bench}" | tr , ' ') 2>&1
        echo "guest: exit code $?"
        cat target/bench/netem.json >/dev/ttyS1
        ;;
    gateway*)
        cd /tmp || exit 1
        export GOODPUT=/bin/goodput HAPROXY=/bin/haproxy
        [ -x $HAPROXY ] || unset HAPROXY
        xtask bench gateway $(echo "${what#gateway}" | tr , ' ') 2>&1
        echo "guest: exit code $?"
        cat target/bench/gateway.json >/dev/ttyS1
        ;;
    beside | facts | pci | verbs) $what >/dev/ttyS1 2>&1 ;;
    shell) setsid cttyhack sh ;;
esac
sync
poweroff -f
