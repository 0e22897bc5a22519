//! What a gateway is to be: a file, and what goes before it.

use std::net::SocketAddr;
use std::path::PathBuf;

use fault::Failure;
use units::{Bytes, Duration};

use crate::config::{Config, ConfigError, Mode, Pacing, Spread, ZoneConfig};
use crate::decisions::LogConfig;
use crate::file::ConfigFile;
use crate::rules::{Action, Block, Ports, Rule};

/// A file, and what is set beside it. What is left out here is as the file says, or as [`Config`]
/// has it.
///
/// ```
/// use gateway::settings::Settings;
///
/// let settings = Settings {
///     inside: vec!["eth1".to_owned()],
///     outside: vec!["eth2".to_owned()],
///     workers: Some(2),
///     ..Settings::default()
/// };
/// assert_eq!(settings.read().unwrap().workers, 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// File with all that can be set.
    pub file: Option<PathBuf>,
    /// Interfaces on the hosts' side.
    pub inside: Vec<String>,
    /// Interfaces on the network's side.
    pub outside: Vec<String>,
    /// Ports of servers whose connections are split, and no others; all where there is none.
    pub ports: Vec<Ports>,
    /// Servers whose connections pass unsplit.
    pub bypass: Vec<Block>,
    /// Not transparent: where connections are accepted, and where they go on to.
    pub explicit: Option<(SocketAddr, SocketAddr)>,
    /// Send and receive buffers inside.
    pub inside_buffer: Option<Bytes>,
    /// Send and receive buffers outside.
    pub outside_buffer: Option<Bytes>,
    /// Congestion control inside.
    pub inside_congestion: Option<String>,
    /// Congestion control outside.
    pub outside_congestion: Option<String>,
    /// Pacing of connections outside.
    pub outside_pacing: Option<Pacing>,
    /// How connections are spread over interfaces of a side.
    pub spread: Option<Spread>,
    /// About every so many connections pass unsplit as samples.
    pub unsplit_every: Option<u32>,
    /// File of the log of decisions.
    pub log: Option<PathBuf>,
    /// Threads that carry connections.
    pub workers: Option<u8>,
    /// How long connections may go on after the first request to stop.
    pub drain: Option<Duration>,
}

impl Settings {
    /// The file, if there is one, and the rest on top of it.
    ///
    /// # Errors
    /// What cannot be read or meant, with its place in the file.
    pub fn read(&self) -> Result<Config, Failure> {
        let file = self.file.as_deref().map(ConfigFile::open).transpose()?;
        let mut config = match &file {
            None => Config::default(),
            Some(file) => file.parse()?,
        };
        let mut written = config.clone();
        let [inside, outside] = &mut config.zones;
        put_names(inside, &self.inside);
        put_names(outside, &self.outside);
        put(&mut inside.buffer, self.inside_buffer);
        put(&mut outside.buffer, self.outside_buffer);
        put(&mut inside.congestion, self.inside_congestion.clone());
        put(&mut outside.congestion, self.outside_congestion.clone());
        put(&mut outside.pacing, self.outside_pacing);
        if let Some(spread) = self.spread {
            for zone in &mut config.zones {
                zone.spread = spread;
            }
        }
        put(&mut config.unsplit_every, self.unsplit_every);
        if let Some(file) = &self.log {
            let log = config
                .log
                .get_or_insert_with(|| LogConfig::to(file.clone()));
            log.file.clone_from(file);
        }
        if let Some(workers) = self.workers {
            config.workers = workers;
        }
        if let Some(drain) = self.drain {
            config.drain = drain;
        }
        for block in &self.bypass {
            config
                .rules
                .put_first(rule(Action::Bypass, Some(*block), &[]));
        }
        if !self.ports.is_empty() {
            config
                .rules
                .put_last(rule(Action::Split, None, &self.ports));
            config.rules.put_last(rule(Action::Bypass, None, &[]));
        }
        if let Some((listen, target)) = self.explicit {
            config.mode = Mode::Explicit { listen, target };
        }
        config.check().map_err(|e| {
            // Which interfaces there are may not stand in the file, and the rest be wrong without
            // them.
            written.mode = config.mode.clone();
            for (own, all) in written.zones.iter_mut().zip(&config.zones) {
                own.interfaces.clone_from(&all.interfaces);
            }
            match &file {
                Some(file) if written.check().as_ref() == Err(&e) => Failure::usage(file.told(&e)),
                _ => Failure::usage(e),
            }
        })?;
        Ok(config)
    }

    /// What a running gateway cannot become, with its place in the file.
    pub fn told(&self, error: &ConfigError) -> String {
        let file = self.file.as_deref().map(ConfigFile::open);
        match file {
            Some(Ok(file)) => file.told(error),
            _ => error.to_string(),
        }
    }
}

fn put<T>(place: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *place = value;
    }
}

fn put_names(zone: &mut ZoneConfig, names: &[String]) {
    if !names.is_empty() {
        zone.interfaces = names.to_vec();
    }
}

fn rule(action: Action, server: Option<Block>, ports: &[Ports]) -> Rule {
    Rule {
        action,
        server,
        ports: ports.to_vec(),
        ..Rule::default()
    }
}
