//! UDP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::addr::resolve;
use super::{Socket, ToAddrs};
use crate::poller::Direction;

/// Sends and receives packets.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket<std::net::UdpSocket>,
}

impl UdpSocket {
    /// A socket at the first of the addresses that is free. Port 0 is one that the system chooses.
    ///
    /// # Errors
    /// Of the last address; of the look-up; there is no scheduler here.
    pub async fn bind(to: impl ToAddrs) -> io::Result<Self> {
        let addrs = resolve(to).await?;
        Self::from_std(std::net::UdpSocket::bind(&addrs[..])?)
    }

    /// Takes a socket, and makes it one that does not block.
    ///
    /// # Errors
    /// The system's; there is no scheduler here.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Socket::new(socket)? })
    }

    /// Gives the socket back, out of the poller. It still does not block.
    #[must_use]
    pub fn into_std(self) -> std::net::UdpSocket {
        self.socket.into_inner()
    }

    /// From now on it sends to that address, and receives from it alone.
    ///
    /// # Errors
    /// Of the last address; of the look-up.
    pub async fn connect(&self, to: impl ToAddrs) -> io::Result<()> {
        let addrs = resolve(to).await?;
        self.socket.io.connect(&addrs[..])
    }

    /// Sends a packet to whom it is connected to.
    ///
    /// # Errors
    /// The system's; perhaps that of an earlier packet (`ConnectionRefused`).
    pub async fn send(&self, packet: &[u8]) -> io::Result<usize> {
        self.socket.run(Direction::Write, None, |io| io.send(packet)).await
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// The system's; of the look-up.
    pub async fn send_to(&self, packet: &[u8], to: impl ToAddrs) -> io::Result<usize> {
        let to = resolve(to).await?[0];
        self.socket.run(Direction::Write, None, |io| io.send_to(packet, to)).await
    }

    /// Receives a packet from whom it is connected to. What does not fit is lost.
    ///
    /// # Errors
    /// The system's; perhaps that of an earlier packet (`ConnectionRefused`).
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.run(Direction::Read, None, |io| io.recv(buf)).await
    }

    /// Receives a packet. What does not fit is lost. Of several tasks that wait one gets it.
    ///
    /// # Errors
    /// The system's.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.run(Direction::Read, None, |io| io.recv_from(buf)).await
    }

    /// As [`Self::recv_from`], but the packet stays there.
    ///
    /// # Errors
    /// As [`Self::recv_from`].
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.run(Direction::Read, None, |io| io.peek_from(buf)).await
    }

    /// As [`Self::send_to`] if it need not wait.
    ///
    /// # Errors
    /// `WouldBlock` if it must.
    pub fn try_send_to(&self, packet: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.try_run(Direction::Write, |io| io.send_to(packet, to))
    }

    /// As [`Self::recv_from`] if it need not wait.
    ///
    /// # Errors
    /// `WouldBlock` if it must.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket.try_run(Direction::Read, |io| io.recv_from(buf))
    }

    /// Waits till there may be a packet.
    ///
    /// # Errors
    /// The scheduler has ended.
    pub async fn readable(&self) -> io::Result<()> {
        self.socket.ready(Direction::Read).await
    }

    /// Waits till there may be room for a packet.
    ///
    /// # Errors
    /// The scheduler has ended.
    pub async fn writable(&self) -> io::Result<()> {
        self.socket.ready(Direction::Write).await
    }

    /// Its own address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.local_addr()
    }

    /// To whom it is connected.
    ///
    /// # Errors
    /// The system's; `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.io.peer_addr()
    }

    /// The error that the socket has kept, if any; it is taken away.
    ///
    /// # Errors
    /// The system's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.io.take_error()
    }

    /// May it send to broadcast addresses?
    ///
    /// # Errors
    /// The system's.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.socket.io.broadcast()
    }

    /// Lets it send to broadcast addresses.
    ///
    /// # Errors
    /// The system's.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.socket.io.set_broadcast(on)
    }

    /// Hops that a packet may make.
    ///
    /// # Errors
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.socket.io.ttl()
    }

    /// Sets the hops that a packet may make.
    ///
    /// # Errors
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.socket.io.set_ttl(ttl)
    }

    /// Joins a group, at the interface of that address; the unspecified one leaves the choice to the system.
    ///
    /// # Errors
    /// The system's.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.socket.io.join_multicast_v4(&group, &interface)
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// The system's.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.socket.io.leave_multicast_v4(&group, &interface)
    }

    /// Joins a group, at the interface of that number; 0 leaves the choice to the system.
    ///
    /// # Errors
    /// The system's.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.io.join_multicast_v6(group, interface)
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// The system's.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.socket.io.leave_multicast_v6(group, interface)
    }

    /// Does it hear what it sends to its groups itself?
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.socket.io.set_multicast_loop_v4(on)
    }

    /// Hops that a packet to a group may make; 1 by default.
    ///
    /// # Errors
    /// The system's.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.socket.io.set_multicast_ttl_v4(ttl)
    }
}
