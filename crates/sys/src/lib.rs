//! Kernel calls: namespaces, netlink, packet sockets, socket options, timestamps. All unsafe code lives here.
