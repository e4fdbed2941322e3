// Passes file descriptors with SCM_RIGHTS over abstract sockets: connects to lower ranks, accepts higher ranks.
#include "backend/shm/fd_exchange.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/bootstrap.hpp"
#include "backend/host.hpp"
#include "backend/store_allgather.hpp"

namespace hookline::shm {
namespace {

[[noreturn]] void throw_system_error(const std::string& what) {
  throw ResourceError(fmt::format("{}: {}", what, std::strerror(errno)));
}

std::string random_name() {
  std::random_device random;
  return fmt::format("hookline-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// Blocks until `fd` is readable. At the deadline throws Timeout with awaited() as its ranks and message(ranks) as its
// text.
template <class Awaited, class Message>
void wait_readable(int fd, Clock::time_point deadline, Awaited awaited, Message message) {
  pollfd entry = {fd, POLLIN, 0};
  for (;;) {
    const Milliseconds left = time_left(deadline);
    const int ready = poll(&entry, 1, static_cast<int>(std::min(left, kInterruptPeriod).count()));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw_system_error("cannot poll a socket of the shm group");
    if (ready == 0 && left <= kInterruptPeriod) {
      const std::vector<int> ranks = awaited();
      throw Timeout(message(ranks), ranks);
    }
    backend::check_bootstrap();
  }
}

PeerLost peer_lost(int rank, int peer, const std::string& why) {
  const int lost = backend::global_rank(peer);
  return {
      fmt::format("rank {} of the shm group exited while rank {} joined: {}", lost, backend::global_rank(rank), why),
      {lost}};
}

// A message that consists of the sender's rank and one file descriptor.
struct Packet {
  explicit Packet(int sender_rank) : rank(sender_rank) {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;

  int rank;
  iovec data = {&rank, sizeof rank};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
};

void send_descriptor(int socket, int rank, int peer, int fd) {
  Packet packet(rank);
  cmsghdr* const control_header = CMSG_FIRSTHDR(&packet.message);
  control_header->cmsg_level = SOL_SOCKET;
  control_header->cmsg_type = SCM_RIGHTS;
  control_header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(control_header), &fd, sizeof fd);
  const ssize_t sent = sendmsg(socket, &packet.message, MSG_NOSIGNAL);
  if (sent == sizeof rank) return;
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) throw peer_lost(rank, peer, std::strerror(errno));
  throw_system_error("cannot send the descriptor of shared memory to a peer");
}

// Returns the sender's rank and its descriptor. The rank is -1 if the message is malformed.
std::pair<int, FileDescriptor> receive_descriptor(int socket) {
  Packet packet(-1);
  if (recvmsg(socket, &packet.message, MSG_CMSG_CLOEXEC) != sizeof packet.rank) return {-1, FileDescriptor()};
  if ((packet.message.msg_flags & MSG_CTRUNC) != 0) {
    throw ResourceError("cannot receive a peer's shared memory: no free file descriptor. Raise the limit, ulimit -n.");
  }
  const cmsghdr* const control_header = CMSG_FIRSTHDR(&packet.message);
  if (!control_header || control_header->cmsg_level != SOL_SOCKET || control_header->cmsg_type != SCM_RIGHTS ||
      control_header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return {-1, FileDescriptor()};
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(control_header), sizeof fd);
  return {packet.rank, FileDescriptor(fd)};
}

ucred peer_credentials(int socket) {
  ucred peer = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    throw_system_error("cannot read the credentials of a peer");
  return peer;
}

// Any user can read the names of abstract sockets and connect to them.
bool is_trusted(const ucred& peer) { return peer.uid == geteuid() || peer.uid == 0; }

// Returns an empty descriptor if the process has exited.
FileDescriptor open_pidfd(const ucred& peer) {
  FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!process && errno != ESRCH) throw_system_error("cannot open a pidfd of a peer");
  return process;
}

// Publishes this rank's socket name, and returns the names of all ranks.
std::vector<std::string> exchange_socket_names(Store& store, int rank, int size, const std::string& name,
                                               Clock::time_point deadline) {
  const std::string host = backend::host_identity();
  std::vector<std::string> names;
  std::vector<int> other_hosts;
  for (const std::string& value :
       backend::store_allgather(store, "shm", rank, size, fmt::format("{}\n{}", host, name), deadline)) {
    const std::size_t end = std::min(value.find('\n'), value.size());
    if (value.substr(0, end) != host) other_hosts.push_back(backend::global_rank(static_cast<int>(names.size())));
    names.push_back(value.substr(std::min(end + 1, value.size())));
  }
  if (!other_hosts.empty()) {
    throw Unsupported(fmt::format("shm group: all ranks must be on one host, in one network namespace and one PID "
                                  "namespace: rank {} is not where rank {} is. Use another backend between hosts.",
                                  fmt::join(other_hosts, ", "), backend::global_rank(rank)),
                      other_hosts);
  }
  return names;
}

FileDescriptor listen_at(const std::string& name, int size) {
  FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto [address, length] = abstract_address(name);
  if (!listener || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), size) != 0) {
    throw_system_error("cannot open a socket for the shm group");
  }
  return listener;
}

Peer exchange_with_lower(int rank, int peer, const std::string& name, int memory, Clock::time_point deadline) {
  const FileDescriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection) throw_system_error("cannot open a socket for the shm group");
  const auto [address, length] = abstract_address(name);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == ECONNREFUSED || errno == ECONNRESET || errno == EPIPE)
      throw peer_lost(rank, peer, std::strerror(errno));
    throw_system_error(fmt::format("cannot connect to rank {} of the shm group", backend::global_rank(peer)));
  }
  const ucred owner = peer_credentials(connection.get());
  if (!is_trusted(owner)) {
    throw ResourceError(
        fmt::format("shm group: rank {} runs as user {}, rank {} as user {}. Run all ranks as the same user.",
                    backend::global_rank(peer), owner.uid, backend::global_rank(rank), geteuid()),
        {backend::global_rank(peer)});
  }
  send_descriptor(connection.get(), rank, peer, memory);
  const auto ranks = [&] { return std::vector<int>{backend::global_rank(peer)}; };
  wait_readable(connection.get(), deadline, ranks, [&](const std::vector<int>& missing_ranks) {
    return fmt::format("rank {} of the shm group did not send its shared memory", fmt::join(missing_ranks, ", "));
  });
  FileDescriptor process = open_pidfd(owner);
  auto [sender, descriptor] = receive_descriptor(connection.get());
  if (!process || sender != peer) throw peer_lost(rank, peer, "it closed its socket");
  return {std::move(descriptor), std::move(process)};
}

void exchange_with_higher(int listener, int rank, int memory, std::vector<Peer>& peers, Clock::time_point deadline) {
  std::string rejected;
  std::vector<int> missing(peers.size() - 1 - static_cast<std::size_t>(rank));
  std::iota(missing.begin(), missing.end(), rank + 1);
  while (!missing.empty()) {
    const auto awaited = [&] { return backend::global_ranks(missing); };
    wait_readable(listener, deadline, awaited, [&](const std::vector<int>& ranks) {
      return fmt::format("rank {} of the shm group timed out waiting for rank {}{}", backend::global_rank(rank),
                         fmt::join(ranks, ", "), rejected);
    });
    const FileDescriptor connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection && errno != EINTR && errno != ECONNABORTED)
      throw_system_error("cannot accept a rank of the shm group");
    if (!connection) continue;
    const ucred peer = peer_credentials(connection.get());
    if (!is_trusted(peer)) {
      rejected = fmt::format("; rejected a connection from user {}: expected user {}", peer.uid, geteuid());
      continue;
    }
    FileDescriptor process = open_pidfd(peer);
    if (!process) continue;
    wait_readable(
        connection.get(), deadline, [] { return std::vector<int>(); },
        [](const std::vector<int>&) { return std::string("a peer of the shm group connected, but sent no data"); });
    auto [r, descriptor] = receive_descriptor(connection.get());
    if (std::erase(missing, r) == 0) continue;
    send_descriptor(connection.get(), rank, r, memory);
    peers[static_cast<std::size_t>(r)] = {std::move(descriptor), std::move(process)};
  }
}

}  // namespace

// Each rank exchanges descriptors with its lower ranks, one after the other, then accepts the higher ranks. At most one
// descriptor per rank is in flight: the kernel returns ETOOMANYREFS if a user has more in flight than RLIMIT_NOFILE. No
// deadlock: until a rank accepts, it waits only for lower ranks.
std::vector<Peer> exchange_fds(Store& store, int rank, int size, int memory, Clock::time_point deadline) {
  const std::string name = random_name();
  const FileDescriptor listener = listen_at(name, size);
  const std::vector<std::string> names = exchange_socket_names(store, rank, size, name, deadline);
  std::vector<Peer> peers(static_cast<std::size_t>(size));
  for (int r = 0; r < rank; ++r) {
    const auto i = static_cast<std::size_t>(r);
    peers[i] = exchange_with_lower(rank, r, names[i], memory, deadline);
  }
  exchange_with_higher(listener.get(), rank, memory, peers, deadline);
  return peers;
}

}  // namespace hookline::shm
