//! The example's server as programs of others see it: curl, wrk, h2load. Who lacks one of them is told its
//! package; `cargo xtask check` installs what is missing.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output};

use evener_scheduler::Scheduler;

use crate::http::Server;
use crate::support::{LIMIT, Rng, assert_nothing_left, scheduler};

/// Of each request of curl: connections made for it, version, status, bytes of the body.
const SHOW: &str = "%{num_connects} %{http_version} %{response_code} %{size_download}\\n";

/// Runs one of the programs.
#[track_caller]
fn tool(program: &str, package: &str, args: &[&str]) -> Output {
    match Command::new(program).args(args).output() {
        Ok(output) => output,
        Err(error) => panic!("{program}: {error}; this test needs it: apt-get install {package}"),
    }
}

#[track_caller]
fn curl(args: &[&str]) -> String {
    let limit = LIMIT.as_secs().to_string();
    let output = tool("curl", "curl", &[&["-sS", "--noproxy", "*", "--max-time", &limit], args].concat());
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "curl {args:?}: {}\n{text}\n{errors}", output.status);
    text.into_owned()
}

fn start() -> (Scheduler, Server, String) {
    let s = scheduler(2);
    let server = Server::start(&s, LIMIT);
    let url = format!("http://{}/", server.addr);
    (s, server, url)
}

/// Ends the server in good order: nothing is left of it.
#[track_caller]
fn end(s: &Scheduler, server: Server) {
    server.end();
    assert_nothing_left(s);
}

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("evener-http-{}-{name}", std::process::id())))
    }
    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn curl_uses_one_connection_for_two_requests() {
    let (s, server, url) = start();
    let expected = "Hello, World!\n1 1.1 200 14\nHello, World!\n0 1.1 200 14\n";
    assert_eq!(curl(&["-w", SHOW, &url, &url]), expected);
    end(&s, server);
}

#[test]
fn curl_speaks_http2_at_the_same_port() {
    let (s, server, url) = start();
    // One request: some versions of curl (7.88) lose their second on such a connection, whoever serves.
    // h2load makes many on one.
    assert_eq!(curl(&["-w", SHOW, "--http2-prior-knowledge", &url]), "Hello, World!\n1 2 200 14\n");
    end(&s, server);
}

#[test]
fn curl_gets_ten_megabytes_back() {
    let (s, server, url) = start();
    let (sent, back) = (Scratch::new("sent"), Scratch::new("back"));
    let mut rng = Rng::new(10);
    let bytes: Vec<u8> = (0..10_000_000 / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    std::fs::write(&sent.0, &bytes).unwrap();
    let (from, to, echo) = (format!("@{}", sent.text()), back.text(), format!("{url}echo"));
    // With its length; in chunks; over HTTP/2.
    for more in [&[][..], &["-H", "transfer-encoding: chunked"], &["--http2-prior-knowledge"]] {
        let args = ["-w", SHOW, "--data-binary", &from, "-o", &to, &echo];
        let shown = curl(&[&args, more].concat());
        assert!(shown.ends_with(" 200 10000000\n"), "{more:?}: {shown}");
        assert!(std::fs::read(&back.0).unwrap() == bytes, "{more:?}: other bytes came back");
    }
    end(&s, server);
}

#[test]
fn curl_sees_heads_and_refusals() {
    let (s, server, url) = start();
    let head = curl(&["--head", &url]).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.contains("content-length: 14"), "{head}");
    assert!(head.contains("date: ") && head.ends_with("\r\n\r\n"), "{head}");
    let status = |args: &[&str]| curl(&[&["-o", "/dev/null", "-w", "%{response_code}"], args].concat());
    assert_eq!(status(&[&format!("{url}nowhere")]), "404");
    assert_eq!(status(&["-X", "DELETE", &url]), "405");
    assert_eq!(status(&[&format!("{url}echo")]), "405");
    // A request line of four words.
    assert_eq!(status(&["--request-target", "/a b", &url]), "400");
    end(&s, server);
}

#[test]
fn a_bad_request_line_is_refused_and_the_connection_closed() {
    let (s, server, _) = start();
    let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"nonsense\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    end(&s, server);
}

#[test]
fn wrk_sees_no_error() {
    let (s, server, url) = start();
    let output = tool("wrk", "wrk", &["-t1", "-c64", "-d2s", "--timeout", "30s", &url]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "{text}");
    let requests = text.lines().find_map(|line| line.trim().split_once(" requests in "));
    let requests: u64 = requests.expect("it tells how many").0.parse().expect("a number");
    assert!(requests > 0, "{text}");
    end(&s, server);
}

#[test]
fn h2load_sees_no_error() {
    let (s, server, url) = start();
    let output = tool("h2load", "nghttp2-client", &["-n", "5000", "-c", "4", "-m", "25", &url]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("5000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    assert!(text.contains("5000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{text}");
    end(&s, server);
}
