#!/bin/sh
# Boots Debian's kernel in a virtual machine and runs `xtask bench netem` or `bench gateway` there, messages
# by RDMA verbs, or a look at what the kernel can do. See README.md beside this file.
#
#   run.sh [bench] [--rounds N] [--quick] [--only NAME]   measure; rows to bench/netem-guest.json
#   run.sh gateway [--rounds N] [--quick] [--only NAME]   the same; rows to bench/gateway-guest.json
#   run.sh verbs                                          soft RoCE beside perftest; to verbs.txt here
#   run.sh beside                                         sweeps of it beside ib_send_bw; JSON to OUT
#   run.sh pci                                            an interface's PCI link beside lspci; JSON to OUT
#   run.sh facts                                          modules, soft RoCE; to facts.txt here
#   run.sh shell                                          a shell in the guest
#
# Environment: CACHE (what is downloaded and built), ACCEL (auto, kvm, tcg, icount), CPUS, MEMORY,
# TIMEOUT_S, OUT (the rows' file), PROFILE (release; debug for a look), GOODPUT and XTASK (other programs
# than those built here), HAPROXY (for the gateway; what PATH has without it). Exit code 3: this machine
# cannot have the guest.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/goodput-netem-guest}
accel=${ACCEL:-auto}
memory=${MEMORY:-4G}
limit=${TIMEOUT_S:-3600}
built=$root/target/${PROFILE:-release}
# The last kernel seen to work. The cloud flavour lacks soft RoCE.
image=${IMAGE:-$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -1)}
haproxy=
modules="veth bridge sch_netem sch_fq tcp_bbr tls act_mirred cls_matchall sch_ingress crc32_generic rdma_rxe ib_uverbs e1000e"
packages="$image busybox-static ibverbs-utils libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200 \
perftest libibumad3 librdmacm1 libpci3 pciutils"

# Of the gateway, besides.
splitting="nft_tproxy nft_socket nft_fib_inet nft_reject_inet nft_queue nfnetlink_queue"

say() { echo "netem-guest: $*" >&2; }
die() { say "$*"; exit 1; }
lacking() { say "$*"; exit 3; }

need() {
    for program in "$@"; do
        command -v "$program" >/dev/null || lacking "$program is missing; Debian: apt-get install \
--no-install-recommends qemu-system-x86 cpio kmod iproute2 iperf3 ethtool"
    done
}

# Downloads and unpacks, once. Nothing is installed, so this machine's own kernel stays what it is.
unpack() {
    [ -n "$image" ] || lacking "no Debian kernel known; run apt-get update, or set IMAGE"
    [ "$(cat "$cache/$image.unpacked" 2>/dev/null)" = "$packages" ] && return
    rm -rf "$cache/debs" "$cache/system"
    mkdir -p "$cache/debs" "$cache/system"
    (cd "$cache/debs" && apt-get download $packages >/dev/null) ||
        lacking "the guest's packages could not be downloaded: $packages"
    for deb in "$cache"/debs/*.deb; do dpkg-deb -x "$deb" "$cache/system"; done
    echo "$packages" >"$cache/$image.unpacked"
}

# Where a program of ours is.
binary() {
    case $1 in
        goodput) echo "${GOODPUT:-$built/goodput}" ;;
        xtask) echo "${XTASK:-$built/xtask}" ;;
        *) echo "$built/$1" ;;
    esac
}

# Copies a program and the libraries that it loads.
program() {
    mkdir -p "$tree$(dirname "$2")"
    cp -L "$1" "$tree$2"
    LD_LIBRARY_PATH="$cache/system/usr/lib/x86_64-linux-gnu:$cache/system/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ldd "$1" 2>/dev/null |
        grep -o '/[^ ]*' | while read -r library; do
        # By its name, whatever the folder: all are found in one place.
        case $library in
            /lib64/*) mkdir -p "$tree/lib64"; cp -L "$library" "$tree/lib64/" ;;
            *) cp -L "$library" "$tree/lib/x86_64-linux-gnu/" ;;
        esac
    done
}

# The guest's whole file system: busybox, the programs, the modules in the order in which they load.
initramfs() {
    tree=$cache/tree
    rm -rf "$tree"
    mkdir -p "$tree/bin" "$tree/lib/x86_64-linux-gnu" "$tree/modules" "$tree/tmp/target" "$tree/run" \
        "$tree/etc" "$tree/proc" "$tree/sys" "$tree/dev"
    cp "$cache/system/bin/busybox" "$tree/bin/"
    for name in ip tc iperf3 ethtool rdma; do
        program "$(command -v $name)" "/bin/$name"
    done
    for name in $ours; do
        program "$(binary "$name")" "/bin/$name"
        # Their symbols are most of them, and all of it is memory of the guest.
        strip "$tree/bin/$name" 2>/dev/null || true
    done
    [ -z "$haproxy" ] || program "$haproxy" /bin/haproxy
    for name in ibv_devinfo ibv_devices ibv_rc_pingpong ib_send_bw ib_send_lat; do
        program "$cache/system/usr/bin/$name" "/bin/$name"
    done
    program "$cache/system/usr/bin/lspci" /bin/lspci
    mkdir -p "$tree/etc/libibverbs.d"
    cp "$cache/system/etc/libibverbs.d/rxe.driver" "$tree/etc/libibverbs.d/"
    mkdir -p "$tree/usr/lib/x86_64-linux-gnu/libibverbs"
    cp "$cache"/system/usr/lib/x86_64-linux-gnu/libibverbs/librxe* \
        "$tree/usr/lib/x86_64-linux-gnu/libibverbs/"
    version=${image#linux-image-}
    depmod -b "$cache/system" "$version"
    for module in $modules; do
        modprobe -d "$cache/system" -S "$version" --show-depends "$module" |
            sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r file; do
            cp "$file" "$tree/modules/"
            basename "$file" >>"$tree/modules/order"
        done
        modinfo -b "$cache/system" -k "$version" -F filename "$module" |
            sed "s|$cache/system||; s/^/$module: /" >>"$tree/modules/facts"
    done
    cp "$here/guest.sh" "$tree/init"
    chmod +x "$tree/init"
    (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$cache/guest.gz"
}

# qemu on the guest, its second serial line into a file. $1 is how, $2 what for.
boot() {
    tsc="tsc=reliable no_timer_check"
    case $1 in
        kvm) how="-accel kvm -cpu host,-arch-capabilities -smp ${CPUS:-2}" tsc= ;;
        tcg) how="-accel tcg,thread=multi -cpu max -smp ${CPUS:-2}" ;;
        # One instruction is a nanosecond; the clock stands still while the emulator does not run.
        # With a second CPU the guest did not come up.
        icount) how="-accel tcg -icount shift=0,sleep=off -cpu max -smp ${CPUS:-1}" ;;
        *) die "ACCEL=$1: expected auto, kvm, tcg or icount" ;;
    esac
    # An emulated card behind a root port; what it sends goes nowhere.
    devices="-nic none"
    [ "$2" != pci ] || devices="-netdev user,id=net0,restrict=on -device pcie-root-port,id=port0 \
-device e1000e,netdev=net0,bus=port0"
    # In the foreground: a shell reads the terminal.
    # shellcheck disable=SC2086 # words on purpose
    timeout --foreground "$limit" qemu-system-x86_64 -M q35 $how -m "$memory" -nographic -no-reboot $devices \
        -serial mon:stdio -serial "file:$cache/rows" \
        -kernel "$cache/system/boot/vmlinuz-${image#linux-image-}" -initrd "$cache/guest.gz" \
        -append "console=ttyS0 panic=-1 quiet mitigations=off $tsc goodput=$2"
}

# KVM, when a guest comes up within a minute. That a vCPU can be made does not say so: where KVM
# has no hardware under it, kernels that do not know of that are interpreted until they fail.
choose() {
    [ "$accel" = auto ] || return 0
    accel=icount
    if [ -w /dev/kvm ]; then
        say "trying KVM"
        if limit=60 boot kvm nothing </dev/null 2>&1 | grep -q 'guest: up'; then
            accel=kvm
        else
            say "KVM did not bring the guest up within 60 s: emulating, by its own clock; see README.md"
        fi
    else
        say "no /dev/kvm: emulating, by its own clock; see README.md"
    fi
}

host() {
    model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
    echo "$(qemu-system-x86_64 --version | sed -n '1s/.*version \([^ ]*\).*/qemu \1/p'), $accel, on Linux \
$(uname -r), $(nproc) x $model, load $(cut -d' ' -f1-3 /proc/loadavg) before"
}

# A function, so that the shell has read all of it before it starts.
main() {
    need qemu-system-x86_64 cpio depmod modprobe modinfo ip tc iperf3 ethtool rdma
    what=bench ours="xtask goodput"
    case ${1:-} in bench | beside | facts | gateway | pci | shell | verbs) what=$1; shift ;; esac
    case $what in
        beside | pci | verbs) ours=goodput ;;
        gateway)
            modules="veth $splitting"
            haproxy=${HAPROXY:-$(PATH="$PATH:/usr/sbin" command -v haproxy || true)}
            ;;
    esac
    mkdir -p "$cache"
    unpack
    for name in $ours; do
        [ -x "$(binary "$name")" ] ||
            die "$(binary "$name") is missing: cargo build --release -p goodput -p xtask"
    done
    initramfs
    choose
    machine=$(host)
    say "$machine"
    : >"$cache/rows"
    case $what in
        shell) boot "$accel" shell ;;
        facts | verbs)
            boot "$accel" "$what" </dev/null >"$cache/console" 2>&1 || true
            { echo "$image, $machine"; tr -d '\r' <"$cache/rows"; } | tee "$here/$what.txt"
            ;;
        beside | pci)
            code=0
            boot "$accel" $what </dev/null >"$cache/console" 2>&1 || code=$?
            # The emulator's timer stops a kernel early now and then.
            if ! grep -q 'guest: up' "$cache/console" && [ $code -ne 124 ]; then
                boot "$accel" $what </dev/null >"$cache/console" 2>&1 || code=$?
            fi
            grep -q 'guest: up' "$cache/console" || lacking "the guest did not come up; see $cache/console"
            [ $code -ne 124 ] || lacking "the guest was not done within $limit s (TIMEOUT_S)"
            grep -q '^"kernel"' "$cache/rows" || die "the guest did not come to its end; see $cache/rows"
            { echo "{\"guest\": \"$image, $machine\","; tr -d '\r' <"$cache/rows"; } >"${OUT:-$here/$what.json}"
            ;;
        bench | gateway)
            # A kernel's command line has no spaces inside a value.
            boot "$accel" "$what$(printf ',%s' "$@")" </dev/null | tee "$cache/console" | tr -d '\r'
            out=${OUT:-$root/bench/$([ $what = bench ] && echo netem || echo gateway)-guest.json}
            commit=$(git -C "$root" describe --always --dirty --abbrev=12 '--exclude=*' 2>/dev/null || echo unknown)
            tr -d '\r' <"$cache/rows" |
                sed "s|^  \"commit\": null,|  \"commit\": \"$commit\",\n  \"guest_of\": \"$machine\",|" >"$cache/json"
            grep -q '^}' "$cache/json" || die "the guest gave no rows; see $cache/console"
            cp "$cache/json" "$out"
            say "rows: $out"
            ;;
    esac
}

main "$@"
