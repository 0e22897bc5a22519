//! `goodput explain --parquet`: every connection, and each slice of its time, as tables.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::{window_limited, written};
use crate::support::{Scratch, json};

/// Rows with what they have under each name.
fn rows(file: &Path) -> Vec<BTreeMap<String, Field>> {
    let file = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let rows = file.get_row_iter(None).unwrap().map(|row| {
        let row = row.unwrap();
        row.get_column_iter()
            .map(|(name, field)| (name.clone(), field.clone()))
            .collect()
    });
    rows.collect()
}

fn integer(row: &BTreeMap<String, Field>, name: &str) -> i64 {
    match &row[name] {
        Field::Long(n) | Field::TimestampMicros(n) | Field::TimestampMillis(n) => *n,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_connection_and_its_slices_stand_in_tables() {
    let scratch = Scratch::new();
    let file = written(&scratch, "slow.pcapng", &window_limited());
    let mut command = scratch.goodput(&["explain", "--parquet"]);
    command.arg(&file);
    let ended = scratch.run(command);
    let text = &ended.succeeds().stdout;
    assert!(
        text.contains("connections.parquet (1 rows), intervals.parquet ("),
        "{text}"
    );
    let folder = scratch.run_folder();
    let run = json(&folder.join("run.json"));
    let told = &run["trace"]["connections"][0];
    let connections = rows(&folder.join("connections.parquet"));
    assert_eq!(connections.len(), 1);
    let one = &connections[0];
    for (column, key) in [
        ("payload_bytes", "payload_bytes"),
        ("goodput_bits_per_second", "goodput_bits_per_second"),
        ("active_ns", "active_ns"),
        ("rtt_min_ns", "rtt_min_ns"),
        ("first_frame", "first_frame"),
        ("flight_max_bytes", "flight_bytes_max"),
        ("window_median_bytes", "window_bytes_median"),
        ("data_packets", "data_packets"),
    ] {
        assert_eq!(Some(integer(one, column)), told[key].as_i64(), "{column}");
    }
    assert_eq!(one["sender_address"], Field::Str("192.0.2.1".to_owned()));
    assert_eq!(integer(one, "sender_port"), 40_000);
    assert_eq!(one["cause"], Field::Str("receive_window".to_owned()));
    assert_eq!(integer(one, "sender_mss_bytes"), 1_460);
    // Timestamps were not agreed on.
    assert_eq!(one["rtt_timestamp_median_ns"], Field::Null);
    let shares = one.iter().filter(|(name, _)| name.ends_with("_share"));
    let shares = shares.map(|(_, share)| match share {
        Field::Double(share) => *share,
        other => panic!("{other:?}"),
    });
    assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9);

    let intervals = rows(&folder.join("intervals.parquet"));
    let slices = &told["slices"];
    assert_eq!(
        intervals.len(),
        slices["sent_bytes"].as_array().unwrap().len()
    );
    let sum = |name: &str| intervals.iter().map(|row| integer(row, name)).sum::<i64>();
    assert_eq!(sum("sent_bytes"), 80 * 1_448);
    assert_eq!(sum("acked_bytes"), 80 * 1_448);
    assert!(sum("width_ns") <= integer(one, "lasts_ns"));
    assert!(intervals.iter().all(|row| integer(row, "first_frame") == 1));
    let rows = &run["trace"]["table_rows"];
    assert_eq!(rows["connections"], 1);
    assert_eq!(rows["intervals"], intervals.len());
}

#[test]
fn without_the_option_there_are_no_tables() {
    let scratch = Scratch::new();
    let file = written(&scratch, "slow.pcapng", &window_limited());
    let mut command = scratch.goodput(&["explain"]);
    command.arg(&file);
    scratch.run(command).succeeds();
    assert!(!scratch.run_folder().join("connections.parquet").exists());
}

#[test]
fn a_capture_that_cannot_be_read_leaves_no_folder_behind() {
    let scratch = Scratch::new();
    let file = written(&scratch, "no.pcapng", b"this is no capture at all, is it?");
    let mut command = scratch.goodput(&["explain", "--parquet"]);
    command.arg(&file);
    scratch.run(command).fails_with(2, &["no.pcapng"]);
    let left = std::fs::read_dir(scratch.runs()).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let scratch = Scratch::new();
    let file = written(&scratch, "slow.pcapng", &window_limited());
    let [one, three] = ["1", "3"].map(|threads| {
        let runs = scratch.path(&format!("runs-{threads}"));
        let mut command = scratch.goodput(&["explain", "--parquet", "--threads", threads]);
        command.arg("--runs").arg(&runs).arg(&file);
        scratch.run(command).succeeds();
        let folder = std::fs::read_dir(&runs).unwrap().next().unwrap().unwrap();
        ["connections.parquet", "intervals.parquet"]
            .map(|name| std::fs::read(folder.path().join(name)).unwrap())
    });
    assert!(one == three && one[0].starts_with(b"PAR1"));
}
