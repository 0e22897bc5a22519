//! Measures the loopback interface with client and server in one process, and prints what both ends
//! saw: `cargo run --release -p goodput-measure --example loopback -- [streams] [seconds] [down]`.

use measure::{Client, Config, Direction, EndResult, Limits, SampleKind, Server, Stop};
use units::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config {
        ramp: Duration::from_ms(500),
        ..Config::default()
    };
    for (position, argument) in std::env::args().skip(1).enumerate() {
        match (position, argument.as_str()) {
            (_, "down") => config.direction = Direction::Down,
            (0, streams) => config.streams = streams.parse()?,
            (_, seconds) => config.duration = Duration::from_s(seconds.parse()?),
        }
    }
    let stop = Stop::new();
    let server = Server::bind("127.0.0.1:0".parse()?, Limits::default())?;
    let addr = server.local_addr();
    let serving = std::thread::spawn({
        let stop = stop.clone();
        move || server.serve(&stop)
    });
    let mut client = Client::connect_addr(addr, Duration::from_s(5))?;
    println!("{:?}", client.far());
    let outcome = client.run(&config, &stop, &mut |p| {
        println!(
            "  {:>8} {:>10}  {}",
            p.elapsed.to_string(),
            p.bytes.to_string(),
            p.rate
        );
    })?;
    println!(
        "idle rtt: min {}, median {}",
        outcome.idle_rtt.min, outcome.idle_rtt.median
    );
    println!("goodput after ramp {}", outcome.goodput_after_ramp());
    println!(
        "goodput whole      {}, complete: {}",
        outcome.goodput_whole(),
        outcome.complete
    );
    print_end("sender", &outcome.sender);
    print_end("receiver", &outcome.receiver);
    stop.stop();
    serving.join().map_err(|_| "the server panicked")??;
    Ok(())
}

fn print_end(name: &str, end: &EndResult) {
    let (bytes, took, cpu) = (end.bytes, end.duration, end.cpu);
    let (cc, send, receive) = (&end.congestion, end.send_buffer, end.receive_buffer);
    println!("{name}: {bytes} B in {took}, CPU {cpu}, {cc}, buffers {send} and {receive}");
    for sample in end
        .samples
        .iter()
        .filter(|s| s.kind != SampleKind::Periodic)
    {
        let info = &sample.info;
        println!(
            "  {:?} stream {} at {}: {} B, sent {}, acked {}, received {}, busy {} us, rwnd {} us, \
             sndbuf {} us",
            sample.kind,
            sample.stream,
            sample.t,
            sample.app_bytes,
            info.bytes_sent,
            info.bytes_acked,
            info.bytes_received,
            info.busy_time_us,
            info.rwnd_limited_us,
            info.sndbuf_limited_us,
        );
    }
}
