//! Runs shell commands side by side, with a limit of time for each, till all have ended or Ctrl-C comes:
//! `cargo run --example children -- "sleep 1; echo one" "echo two" "sleep 60"`.

#[cfg(unix)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use evener_scheduler::child::Command;
    use evener_scheduler::{Scheduler, signal, task, time};
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(5);

    let scheduler = Scheduler::new()?;
    let commands = std::env::args().skip(1);
    let children: Vec<_> = commands
        .map(|text| {
            scheduler.spawn_task(async move {
                let mut command = Command::new("sh");
                // What is still running when nobody waits any more is killed.
                command.arg("-c").arg(&text).kill_on_drop(true);
                match time::timeout(LIMIT, command.output()).await {
                    Ok(Ok(output)) => {
                        println!("{text}: {}, {:?}", output.status, String::from_utf8_lossy(&output.stdout));
                    }
                    Ok(Err(error)) => println!("{text}: {error}"),
                    Err(_) => println!("{text}: killed after {LIMIT:?}"),
                }
            })
        })
        .collect();
    let interrupt = signal::ctrl_c();
    scheduler.block_on(async {
        task::spawn(async move {
            if interrupt.await.is_ok() {
                println!("interrupted");
                std::process::exit(130);
            }
        })
        .detach();
        for child in children {
            // A panic was printed.
            let _ = child.await;
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn main() {
    println!("child processes are for Unix");
}
