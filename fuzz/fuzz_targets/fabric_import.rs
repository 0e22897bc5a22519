//! Any text as ibnetdiscover's output, with forwarding tables behind it, and as a list of cables: refused with a line, or a fabric that can be routed.

#![no_main]

use fabric::import::{self, Import, ImportError};
use fabric::link::{Cable, CableKind, Speed};
use fabric::route::{Graph, Routes};
use fabric::topology::Parts;
use fabric::{HostSpec, PortSpec, SwitchSpec};
use libfuzzer_sys::fuzz_target;

const PORT: PortSpec = PortSpec {
    speed: Speed::Ddr,
    width: 4,
    buffer_bytes: 1 << 16,
    virtual_lanes: 8,
    credit_ps: 0,
};
const CABLE: Cable = Cable {
    kind: CableKind::Copper,
    length_mm: 1_000,
    rated: None,
    electronics_ps: 0,
};
const PARTS: Parts = Parts {
    host: HostSpec {
        port: PORT,
        bus: None,
        post_ps: 0,
        engine_ps: 0,
        engine_datagram_ps: 0,
        prefetch_packets: 1,
    },
    chip: SwitchSpec {
        ports: 24,
        port: PORT,
        latency_ps: 200_000,
        store_and_forward: false,
    },
    host_cable: CABLE,
    inner_cable: CABLE,
    outer_cable: CABLE,
};

fuzz_target!(|text: &str| {
    let at = text.find("Unicast lids").unwrap_or(text.len());
    let (cables, tables) = text.split_at(at);
    if let Ok(import) = import::ibnetdiscover(cables, &PARTS)
        && let Ok(table) = import::lfts(tables, &import)
    {
        let mut spec = import.network.spec.clone();
        spec.routing = fabric::Routing::Table(table);
        if let Ok(routes) = Routes::new(&spec) {
            let hosts = u32::try_from(spec.hosts.len()).unwrap();
            let graph = Graph::new(&spec);
            let mut way = Vec::new();
            assert!((1..hosts).all(|to| routes.way(&graph, 0, to, &mut way)));
        }
    }
    for read in [import::ibnetdiscover, import::edges] {
        check(read(text, &PARTS), text);
    }
});

fn check(found: Result<Import, ImportError>, text: &str) {
    let import = match found {
        Ok(import) => import,
        Err(error) => {
            assert!(error.line <= text.lines().count());
            return;
        }
    };
    let spec = &import.network.spec;
    spec.check().unwrap();
    let channels = u32::try_from(spec.links.len() * 2).unwrap();
    for channel in 0..channels {
        assert!(!import.network.names.channel(spec, channel).is_empty());
    }
    let graph = Graph::new(spec);
    if let Ok(routes) = Routes::new(spec) {
        let hosts = u32::try_from(spec.hosts.len()).unwrap();
        let mut way = Vec::new();
        for to in 1..hosts {
            assert!(routes.way(&graph, 0, to, &mut way));
        }
        let _ = routes.cycle(&graph);
    }
}
