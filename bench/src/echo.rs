//! An echo server on TCP: a task for each connection.

use std::io::Write;

use evener_scheduler::net::{TcpListener, TcpStream};
use evener_scheduler::{Scheduler, task};

/// Serves till the program is killed.
pub(crate) fn serve(scheduler: &Scheduler, port: u16) -> std::io::Result<()> {
    let accepting = scheduler.spawn_task(async move {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        println!("LISTENING {}", listener.local_addr()?.port());
        std::io::stdout().flush()?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            task::spawn(echo(stream)).detach();
        }
    });
    accepting.wait(None).unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

async fn echo(stream: TcpStream) {
    let mut buf = [0; 4096];
    while let Ok(len) = stream.read(&mut buf).await {
        if len == 0 || stream.write_all(&buf[..len]).await.is_err() {
            return;
        }
    }
}
