//! Files for async code.

use std::io::SeekFrom;
use std::pin::Pin;

use evener_scheduler::fs::{self, File};
use evener_scheduler::task;
use futures_io::{AsyncRead, AsyncSeek, AsyncWrite};

use crate::support::{LIMIT, scheduler};

async fn write_all(file: &mut File, mut content: &[u8]) {
    while !content.is_empty() {
        let count = std::future::poll_fn(|cx| Pin::new(&mut *file).poll_write(cx, content)).await.unwrap();
        content = &content[count..];
    }
}

#[test]
fn a_file_is_written_read_and_removed() {
    let folder = std::env::temp_dir().join(format!("evener-files-{}", std::process::id()));
    let s = scheduler(1);
    let root = folder.clone();
    let task = s.spawn_task(async move {
        let folder = root.join("a/b");
        fs::create_dir_all(&folder).await.unwrap();
        assert!(fs::create_dir(&folder).await.is_err());
        let path = folder.join("one");
        fs::write(&path, b"one").await.unwrap();
        assert_eq!(fs::read(&path).await.unwrap(), b"one");
        assert_eq!(fs::copy(&path, folder.join("two")).await.unwrap(), 3);
        fs::rename(folder.join("two"), folder.join("three")).await.unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&folder).await.unwrap().iter().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["one", "three"]);
        assert_eq!(fs::metadata(&path).await.unwrap().len(), 3);
        assert_eq!(
            fs::read_to_string(folder.join("none")).await.unwrap_err().kind(),
            std::io::ErrorKind::NotFound
        );

        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true);
        let mut file = File::open_with(&options, folder.join("long")).await.unwrap();
        let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        write_all(&mut file, &content).await;
        file.sync_all().await.unwrap();
        assert_eq!(file.metadata().await.unwrap().len(), 300_000);
        let at = std::future::poll_fn(|cx| Pin::new(&mut file).poll_seek(cx, SeekFrom::Start(1000)))
            .await
            .unwrap();
        assert_eq!(at, 1000);
        let mut back = Vec::new();
        let mut buf = [0; 4096];
        loop {
            let count = std::future::poll_fn(|cx| Pin::new(&mut file).poll_read(cx, &mut buf)).await.unwrap();
            if count == 0 {
                break;
            }
            back.extend_from_slice(&buf[..count]);
        }
        assert_eq!(back, content[1000..]);
        fs::remove_file(&path).await.unwrap();
        fs::remove_dir_all(&root).await.unwrap();
    });
    task.wait(Some(LIMIT)).unwrap();
    assert!(!folder.exists());
}

/// A pipe that nobody writes to blocks its reader; the only worker's other tasks run all the same.
#[test]
#[cfg(unix)]
fn a_file_that_blocks_keeps_nobody_else_from_running() {
    use std::io::Write;
    let s = scheduler(1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let file = File::from(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
    let blocked = s.spawn_task(async move {
        let mut file = file;
        let mut buf = [0; 8];
        let count = std::future::poll_fn(|cx| Pin::new(&mut file).poll_read(cx, &mut buf)).await.unwrap();
        buf[..count].to_vec()
    });
    for _ in 0..20 {
        s.spawn_task(async { task::yield_now().await }).wait(Some(LIMIT)).unwrap();
    }
    assert!(!blocked.is_finished());
    writer.write_all(b"at last").unwrap();
    assert_eq!(blocked.wait(Some(LIMIT)).unwrap(), b"at last");
}
