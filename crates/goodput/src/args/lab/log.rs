//! `goodput lab log`: what a log says, or the log as CSV, Parquet or pcapng.

use std::io;

use fault::{Failure, Verdict};
use job::balance;
use lab::log::{Filter, convert, direction_number, legend_of, written};
use link::record::Reader;
use sys::map;

use super::LogArgs;
use super::remote::with_direction;
use crate::print;

pub(super) fn run(args: &LogArgs) -> Verdict {
    let name = args.file.display();
    let bytes = map::File::open(&args.file);
    let bytes = bytes.map_err(|e| {
        let hint = match e.kind() {
            io::ErrorKind::InvalidInput => "; write it to a file first",
            _ => "",
        };
        Failure::usage(format!("cannot read the log {name}: {e}{hint}"))
    })?;
    let reader = Reader::new(&bytes).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    if args.streams {
        let balance = balance::of(reader, args.striped)
            .ok_or_else(|| Failure::usage(format!("{name}: no queue served anything in it")))?;
        match args.json {
            true => print::print_json_line(&balance)?,
            false => print::print(&print::balance::text(&balance, print::width()))?,
        }
        return Ok(fault::DONE);
    }
    let legend = legend_of(reader.clone());
    let filter = Filter {
        link: args
            .link
            .as_deref()
            .map(|typed| {
                let (name, direction) = with_direction(typed)?;
                direction_number(&legend, name, direction)
            })
            .transpose()?,
        frame: args.frame,
        drops_only: args.drops,
        ..Filter::default()
    };
    let converted = if let Some(out) = &args.csv {
        if out.as_os_str() == "-" {
            let stdout = io::stdout().lock();
            match convert::csv(reader, stdout, &filter) {
                // A reader that has seen enough is no failure.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(fault::DONE),
                done => done.map_err(|e| Failure::here(format!("stdout: {e}")))?,
            }
        } else {
            written(out, &args.file, |file| convert::csv(reader, file, &filter))?
        }
    } else if let Some(out) = &args.parquet {
        written(out, &args.file, |file| {
            convert::parquet(reader, file, &filter)
        })?
    } else if let Some(out) = &args.pcapng {
        written(out, &args.file, |file| {
            convert::pcapng(reader, file, &filter)
        })?
    } else {
        print::print(&print::lab::log::summary(&legend, reader, print::width()))?;
        return Ok(fault::DONE);
    };
    print::note(print::lab::log::written(&converted));
    Ok(fault::DONE)
}
