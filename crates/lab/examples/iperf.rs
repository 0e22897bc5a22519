//! Runs iperf3 over a path file and prints the lab's certificate: `iperf PATH [iperf3 flags]`.

use std::process::Stdio;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: iperf PATH [iperf3 flags]")?;
    let path = lab::PathFile::read(file.as_ref())?;
    let lab = lab::Lab::up(&path)?;
    let far = lab.far().address().to_string();
    let mut server = lab
        .far()
        .program("iperf3")?
        .args(["-s", "-1"])
        .stdout(Stdio::null())
        .spawn()?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let phase = lab.begin_phase()?;
    let flags: Vec<String> = args.collect();
    let status = lab
        .near()
        .program("iperf3")?
        .args(["-c", &far])
        .args(&flags)
        .status()?;
    let certificate = phase.finish()?;
    println!("{status}\n{certificate:#?}");
    server.kill()?;
    server.wait()?;
    Ok(())
}
