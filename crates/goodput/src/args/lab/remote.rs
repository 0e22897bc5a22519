//! The verbs that talk to labs in the background: `up`, `ps`, `exec`, `set`, `rules`, `down`.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fault::{Failure, Verdict};
use job::target;
use lab::place::{self, Found};
use lab::{Direction, Overload, daemon, read_rules, shell};

use super::{
    DaemonArgs, DownArgs, ExecArgs, PsArgs, RulesArgs, SetArgs, UpArgs, flags, not_started,
};
use crate::print;

/// `goodput lab up`: starts this program once more as `goodput lab daemon`.
pub(super) fn up(args: &UpArgs) -> Verdict {
    let path = flags::named(&args.path)?;
    let stem = path.file.file_stem().unwrap_or_default();
    let name = match &args.name {
        Some(name) => name.clone(),
        None => place::name_of(&stem.to_string_lossy()),
    };
    place::check_name(&name)?;
    if let Some(overload) = Overload::of(&path) {
        print::note(print::lab::overload(&overload));
    }
    let absolute = |file: &Path| std::path::absolute(file).map_err(Failure::here);
    let directory = place::for_new()?;
    let mut command = Command::new(std::env::current_exe().map_err(Failure::here)?);
    command.args(["lab", "daemon", "--name", &name]);
    command.arg("--directory").arg(directory);
    if args.name.is_some() {
        command.arg("--exactly");
    }
    if let Some(log) = &args.log {
        command.arg("--log").arg(absolute(log)?);
    }
    // What was read from a file is read from there again; a built-in path has no place.
    let file = target::without_routed(&args.path).unwrap_or(&args.path);
    let is_file = Path::new(file).exists();
    command.arg("--").arg(if is_file {
        absolute(Path::new(&args.path))?
    } else {
        PathBuf::from(&args.path)
    });
    let status = daemon::start(&mut command)?;
    print::print(&print::lab::introduce(&status, print::width()))?;
    Ok(fault::DONE)
}

/// `goodput lab daemon`: from here on nobody sees what is written but the one that waits.
pub(super) fn daemon(args: &DaemonArgs) -> Verdict {
    daemon::detached(|| {
        let context = crate::start(true)?;
        let plan = daemon::Plan {
            path: flags::named(&args.path)?,
            name: args.name.clone(),
            exactly: args.exactly,
            directory: args.directory.clone(),
            log: args.log.clone(),
        };
        daemon::hold(plan, &context.stop, &print::lab::last_words)?;
        Ok(fault::DONE)
    })
}

/// `goodput lab ps`.
pub(super) fn ps(args: &PsArgs) -> Verdict {
    let mut labs = Vec::new();
    for found in place::sweep() {
        match found.status() {
            Ok(status) => labs.push(status),
            // One that is going down, or hangs, does not hide the others.
            Err(failure) => print::note(format_args!("goodput: {failure}")),
        }
    }
    if args.json {
        print::print_json(&labs)?;
    } else if labs.is_empty() {
        print::note("no lab is up; start one: goodput lab up PATH");
    } else {
        let shown: Vec<String> = labs
            .iter()
            .map(|lab| print::lab::shown(lab, print::width()))
            .collect();
        print::print(&shown.join("\n"))?;
    }
    Ok(fault::DONE)
}

/// `goodput lab exec`. Returns only when the program cannot be started.
pub(super) fn exec(args: &ExecArgs) -> Verdict {
    let environment = place::find(args.lab.name.as_deref())?.enter(&args.host)?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).envs(environment);
    let error = command.exec();
    not_started(&args.command[0].to_string_lossy(), &error);
    Ok(shell::exit_code_without(&error))
}

/// `goodput lab set`.
pub(super) fn set(args: &SetArgs) -> Verdict {
    let (link, direction) = with_direction(&args.link)?;
    let mut settings = BTreeMap::new();
    for typed in &args.settings {
        let Some((key, value)) = typed.split_once('=') else {
            return Err(Failure::usage(format!(
                "'{typed}': expected KEY=VALUE such as delay=10ms"
            )));
        };
        if settings.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("{key} is there twice")));
        }
    }
    let found = place::find(args.lab.name.as_deref())?;
    noted(found.set(link, direction, settings)?)
}

/// `wan` or `wan:backward`.
pub(super) fn with_direction(typed: &str) -> Result<(&str, Option<Direction>), Failure> {
    match typed.split_once(':') {
        None => Ok((typed, None)),
        Some((link, "forward")) => Ok((link, Some(Direction::Forward))),
        Some((link, "backward")) => Ok((link, Some(Direction::Backward))),
        Some((link, way)) => Err(Failure::usage(format!(
            "'{way}' is no direction; expected {link}:forward or {link}:backward"
        ))),
    }
}

/// `goodput lab rules`.
pub(super) fn rules(args: &RulesArgs) -> Verdict {
    let toml = match args.action.as_str() {
        "show" => {
            let rules = place::find(args.lab.name.as_deref())?.rules(&args.node)?;
            if rules.is_empty() {
                print::note("no rules: everything is forwarded");
            }
            print::print(&print::lab::rules(&rules))?;
            return Ok(fault::DONE);
        }
        "clear" => None,
        file => Some(read_rules(Path::new(file))?),
    };
    let found = place::find(args.lab.name.as_deref())?;
    noted(found.set_rules(&args.node, toml)?)
}

/// `goodput lab down`.
pub(super) fn down(args: &DownArgs) -> Verdict {
    if !args.all {
        return end(&place::named(args.name.as_deref())?);
    }
    let labs = place::sweep();
    if labs.is_empty() {
        print::note("no lab is up");
    }
    let mut worst = Ok(fault::DONE);
    for found in labs {
        let ended = end(&found);
        if let (Err(_), Err(first)) = (&ended, &worst) {
            print::note(format_args!("goodput: {first}"));
        }
        if ended.is_err() {
            worst = ended;
        }
    }
    worst
}

fn end(found: &Found) -> Verdict {
    print::print(&print::lab::down(
        &found.name,
        &found.down()?,
        print::width(),
    ))?;
    Ok(fault::DONE)
}

/// Prints what a lab says.
fn noted(lines: Vec<String>) -> Verdict {
    for line in lines {
        print::note(line);
    }
    Ok(fault::DONE)
}
