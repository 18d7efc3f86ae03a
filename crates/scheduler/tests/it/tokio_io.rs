//! Streams with tokio's traits: what they promise holds without its runtime.

use std::io::IoSlice;
use std::pin::pin;

use evener_scheduler::net::{TcpListener, TcpStream, TokioIo};
use evener_scheduler::task;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::support::{LIMIT, scheduler};

/// A connection and its other end.
async fn pair() -> (TokioIo<TcpStream>, TokioIo<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let connecting = task::spawn(TcpStream::connect(addr));
    let accepted = listener.accept().await.unwrap().0;
    (TokioIo(connecting.await.unwrap().unwrap()), TokioIo(accepted))
}

#[test]
fn bytes_come_back_and_each_direction_ends_by_itself() {
    let s = scheduler(2);
    let done = s.spawn_task(async {
        let (ours, mut theirs) = pair().await;
        let echo = task::spawn(async move {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.unwrap();
            theirs.write_all(&all).await.unwrap();
            theirs.shutdown().await.unwrap();
            theirs
        });
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 / 3) as u8).collect();
        let mut ours = ours;
        ours.write_all(&sent).await.unwrap();
        ours.flush().await.unwrap();
        ours.shutdown().await.unwrap();
        let mut back = Vec::new();
        ours.read_to_end(&mut back).await.unwrap();
        assert!(back == sent);
        let stream: TcpStream = echo.await.unwrap().into_inner();
        assert!(stream.local_addr().is_ok());
    });
    done.wait(Some(LIMIT)).unwrap();
}

#[test]
fn several_buffers_go_in_one_write() {
    let s = scheduler(1);
    let done = s.spawn_task(async {
        let (mut ours, mut theirs) = pair().await;
        assert!(ours.is_write_vectored());
        let written = ours.write_vectored(&[IoSlice::new(b"one "), IoSlice::new(b"two")]).await.unwrap();
        assert_eq!(written, 7);
        drop(ours);
        let mut all = String::new();
        theirs.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "one two");
    });
    done.wait(Some(LIMIT)).unwrap();
}

#[test]
fn more_buffers_than_the_system_takes_at_once_are_written_without_a_wait() {
    const COUNT: usize = 3000;
    let s = scheduler(1);
    let done = s.spawn_task(async {
        let (mut ours, mut theirs) = pair().await;
        let mut bytes: &[u8] = &[b'x'; COUNT];
        // Nobody reads, and there is room.
        while !bytes.is_empty() {
            let each: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
            let written = ours.write_vectored(&each).await.unwrap();
            assert!(written > 0);
            bytes = &bytes[written..];
        }
        drop(ours);
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, [b'x'; COUNT]);
    });
    done.wait(Some(LIMIT)).unwrap();
}

#[test]
fn a_read_keeps_what_the_buffer_has() {
    let s = scheduler(1);
    let done = s.spawn_task(async {
        let (mut ours, mut theirs) = pair().await;
        ours.write_all(b"answer").await.unwrap();
        let mut memory = [std::mem::MaybeUninit::uninit(); 11];
        let mut buf = ReadBuf::uninit(&mut memory);
        buf.put_slice(b"kept ");
        while buf.remaining() > 0 {
            let mut theirs = pin!(&mut theirs);
            std::future::poll_fn(|cx| tokio::io::AsyncRead::poll_read(theirs.as_mut(), cx, &mut buf))
                .await
                .unwrap();
        }
        assert_eq!(buf.filled(), b"kept answer");
    });
    done.wait(Some(LIMIT)).unwrap();
}
