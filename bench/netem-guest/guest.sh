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
    facts) facts >/dev/ttyS1 2>&1 ;;
    shell) setsid cttyhack sh ;;
esac
sync
poweroff -f
