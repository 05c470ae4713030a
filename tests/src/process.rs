//! A hub process, as whoever runs it sees it.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// A hub process; killed when dropped.
pub struct HubProcess {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl HubProcess {
    /// Fetches a page of this process.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn http(&self, path: &str) -> std::io::Result<String> {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        Ok(body.unwrap_or_default())
    }

    /// Whether it has read what it needs.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.http("/readyz").is_ok_and(|text| text == "ok")
    }

    /// Whether it leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        let metrics = self.http("/metrics").unwrap_or_default();
        metrics.lines().any(|line| line == "windlass_leader 1")
    }

    /// Mutating requests that it has sent so far, as metric lines. The lease is left out: as heartbeats it
    /// is renewed for ever. So are events: they are news of what has been written, and come a little later.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let text = self.http("/metrics").unwrap_or_default();
        text.lines()
            .filter(|line| line.starts_with("windlass_api_requests_total"))
            .filter(|line| {
                !["get", "list", "watch"]
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
            })
            .filter(|line| {
                !["leases", "events"]
                    .iter()
                    .any(|r| line.contains(&format!("resource=\"{r}\"")))
            })
            .map(str::to_owned)
            .collect()
    }

    /// Sends a signal: `TERM`, `STOP`, `CONT`, `KILL`.
    ///
    /// # Panics
    /// When it can't be sent.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([format!("-{signal}"), self.child.id().to_string()])
            .status();
        assert!(status.expect("kill runs").success(), "kill -{signal}");
    }

    /// How it has ended; none while it runs.
    ///
    /// # Panics
    /// When that can't be told.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }
}

impl Drop for HubProcess {
    fn drop(&mut self) {
        // One that has ended already is as wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
