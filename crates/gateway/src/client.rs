//! How a running gateway is asked and told, by its control socket.
//!
//! ```no_run
//! // The ten busiest connections of the gateway of this network namespace.
//! let status = gateway::client::status(None, 10)?;
//! println!("{} connections", status.counts.live);
//! # Ok::<(), fault::Failure>(())
//! ```

use std::path::{Path, PathBuf};
use std::time::Instant;

use fault::Failure;
use sys::control::Connection;

use crate::daemon::control::{PATIENCE, START_PATIENCE, file_to_ask, nobody};
use crate::status::Status;

/// What a gateway says yes or no to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read the file again.
    Reload,
    /// Take nobody up any more, and end with the last connection.
    Drain,
    /// Start the program's file again, which goes on for it.
    Upgrade,
}

impl Order {
    const fn word(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Drain => "drain",
            Self::Upgrade => "renew",
        }
    }
}

/// What there is to see of the gateway at `control`, or of this network namespace's, with so many
/// of the busiest connections.
///
/// # Errors
/// No gateway answers, or not as one does.
pub fn status(control: Option<&Path>, connections: u16) -> Result<Status, Failure> {
    let line = status_json(control, connections)?;
    run::from_json(line.as_bytes()).map_err(Failure::far)
}

/// [`status`] as the gateway writes it.
///
/// # Errors
/// No gateway answers.
pub fn status_json(control: Option<&Path>, connections: u16) -> Result<String, Failure> {
    ask(control, &format!("status {connections}"))
}

/// Has it draw its report as it stands; the page's file.
///
/// # Errors
/// No gateway answers, or it cannot.
pub fn report(control: Option<&Path>) -> Result<PathBuf, Failure> {
    let line = ask(control, "report")?;
    match line.strip_prefix("ok ") {
        Some(file) => Ok(file.into()),
        None => {
            let why = line.strip_prefix("error ").unwrap_or(&line);
            Err(Failure::far(format!("the gateway: {why}")))
        }
    }
}

/// Has it do something.
///
/// # Errors
/// No gateway answers, or why it does not.
pub fn tell(control: Option<&Path>, order: Order) -> Result<(), Failure> {
    let what = order.word();
    let line = ask(control, what)?;
    match line.strip_prefix("error ") {
        None => Ok(()),
        // A file that makes no sense is the user's; what does not succeed is the machine's.
        Some(why) if order == Order::Reload => Err(Failure::usage(format!("{what}: {why}"))),
        Some(why) => Err(Failure::here(format!("{what}: {why}"))),
    }
}

fn ask(control: Option<&Path>, what: &str) -> Result<String, Failure> {
    let Some(file) = control.map(Path::to_owned).or_else(file_to_ask) else {
        return Err(nobody("there is no directory for its control socket"));
    };
    let name = file.display();
    let patience = match what == Order::Upgrade.word() {
        true => START_PATIENCE,
        false => PATIENCE,
    };
    let deadline = Instant::now() + patience;
    let mut connection = Connection::open(&file).map_err(|e| nobody(&format!("{name}: {e}")))?;
    connection
        .send(format!("{what}\n").as_bytes(), &[], deadline)
        .and_then(|()| connection.receive(ANSWER_BYTES, deadline))
        .map(|(line, _)| String::from_utf8_lossy(&line).into_owned())
        .map_err(|e| nobody(&format!("{name}: {e}")))
}

/// A thousand connections are some 1.5 MB.
const ANSWER_BYTES: usize = 4 << 20;
