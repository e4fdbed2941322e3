// TcpCall: requests, replies and cancelled waits.
#include "store/tcp_call.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "store/store_error.hpp"

namespace hookline::store {
namespace {

// The minimum reply timeout of requests that do not wait. The user's timeout applies to missing keys only: a late
// reply breaks the connection.
constexpr Milliseconds kMinReplyTimeout = std::chrono::seconds(2);
// Limit on waiting for the confirmation of a cancelled wait. The next request skips later confirmations.
constexpr Milliseconds kCancelTimeout{100};

void require_key(const Store& store, std::string_view key) {
  constexpr std::uint64_t kMaxBytes = kMaxKeyBytes - kKeyPrefix.size();
  if (key.size() <= kMaxBytes) return;
  throw InvalidArgument(fmt::format("{}: the key is too long: expected at most {} bytes, got {}", store.describe(),
                                    kMaxBytes, key.size()));
}

std::string_view check_keys(const Store& store, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) require_key(store, key);
  if (keys.size() <= kMaxKeys) return keys.empty() ? std::string_view() : std::string_view(keys.front());
  throw InvalidArgument(fmt::format("{}: too many keys in one request: expected at most {}, got {}", store.describe(),
                                    kMaxKeys, keys.size()));
}

}  // namespace

// Invalid keys throw before waiting for the connection.
TcpCall::TcpCall(TcpConnection& connection, const Store& store, const char* operation, std::string_view key,
                 Milliseconds timeout)
    : owner_(connection.owner),
      client_(connection.client),
      store_(store),
      operation_(operation),
      key_(key),
      timeout_(timeout) {
  require_key(store, key);
  // Checked before locking: a thread of the parent may have held the mutex at the fork.
  if (connection.fork_generation != core::fork_generation()) {
    throw InvalidArgument(fmt::format(
        "{}.{}: this store was made before fork(), and its connection belongs to the parent process. Create "
        "a new TCPStore in the child.",
        store.describe(), operation));
  }
  if (owner_ == std::this_thread::get_id()) {
    throw InvalidArgument(
        fmt::format("{}.{}: called from a signal handler that interrupted another call of this store. Use a clone() in "
                    "the signal handler.",
                    store.describe(), operation));
  }
  lock_ = std::unique_lock(connection.mutex);
  started_ = Clock::now();
  client_->begin(operation, key);
  owner_ = std::this_thread::get_id();
}

TcpCall::TcpCall(TcpConnection& connection, const Store& store, const char* operation,
                 const std::vector<std::string>& keys, Milliseconds timeout)
    : TcpCall(connection, store, operation, check_keys(store, keys), timeout) {}

Clock::time_point TcpCall::reply_deadline() const {
  return started_ + std::clamp(timeout_, kMinReplyTimeout, kMaxTimeout);
}

void TcpCall::send(const RequestBuilder& request) {
  const std::string& bytes = request.bytes();
  skip_cancelled_wait();
  if (bytes.size() > kMaxRequestBytes) {
    throw InvalidArgument(
        fmt::format("{}: the request is too large: expected at most {} bytes, got {}. Split it into several requests.",
                    store_.describe(), kMaxRequestBytes, bytes.size()));
  }
  client_->send(bytes, reply_deadline());
}

void TcpCall::skip_cancelled_wait() {
  const Clock::time_point end = std::max(deadline(), deadline_after(kCancelTimeout));
  while (!client_->confirm_cancel(std::min(end, deadline_after(kInterruptPeriod)))) {
    check_interrupt();
    if (Clock::now() < end) continue;
    throw Timeout(fmt::format(
        "{} on {}: the server did not reply to an earlier request within {} ms. Check whether it is stopped "
        "or overloaded, or pass a longer timeout.",
        operation_, store_.describe(), timeout_.count()));
  }
}

void TcpCall::wait_for(const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  send(RequestBuilder(Query::wait).keys(keys));
  if (!wait_until_woken(deadline())) throw_timed_out(first_missing(keys));
}

bool TcpCall::wait_until_woken(Clock::time_point end) {
  while (!client_->wait_for_reply(std::min(end, deadline_after(kInterruptPeriod)))) {
    try {
      check_interrupt();
    } catch (...) {
      cancel_wait();
      throw;
    }
    if (Clock::now() >= end) return cancel_wait();
  }
  if (read_number<WaitReply>() != WaitReply::stop_waiting) client_->throw_connection_lost(TcpClient::kUnexpectedReply);
  return true;
}

bool TcpCall::cancel_wait() {
  client_->cancel_wait(deadline_after(kMinReplyTimeout));
  bool completed = false;
  client_->confirm_cancel(deadline_after(kCancelTimeout), &completed);
  return completed;
}

// Pipelines the checks of all keys in one round trip.
std::string_view TcpCall::first_missing(const std::vector<std::string>& keys) {
  if (keys.size() == 1 || client_->cancel_pending()) return keys.front();
  const Clock::time_point end = deadline_after(kMinReplyTimeout);
  std::string requests;
  for (const std::string& key : keys) requests += RequestBuilder(Query::check).keys({key}).bytes();
  client_->send(requests, end);
  const std::string* missing = nullptr;
  for (const std::string& key : keys) {
    if (client_->read_number<CheckReply>(end) == CheckReply::not_ready && !missing) missing = &key;
  }
  return missing ? *missing : keys.front();  // all keys may have been set in the meantime
}

void TcpCall::pause(Milliseconds time) {
  if (client_->wait_for_reply(std::min(deadline(), deadline_after(time))))
    client_->throw_connection_lost(TcpClient::kUnexpectedReply);
  check_interrupt();
}

void TcpCall::throw_timed_out(std::string_view key) const {
  // Includes the wire prefix, as in PyTorch's message.
  throw_timeout(store_, operation_, fmt::format("{}{}", kKeyPrefix, key), timeout_);
}

bool TcpCall::reconnect(const std::string& host, std::uint16_t port, Milliseconds timeout,
                        const ClientOptions& options) {
  // Disables interrupts for this short time: their exceptions would be swallowed below.
  const InterruptScope no_interrupts(nullptr);
  try {
    client_ = std::make_unique<TcpClient>(host, port, timeout, options);
  } catch (const Error&) {
    return false;
  }
  client_->begin(operation_, key_);
  return true;
}

void require_value(const Store& store, const std::string& key, const std::string& value) {
  if (value.size() <= kMaxValueBytes) return;
  throw InvalidArgument(fmt::format(
      "{}: the value of \"{}\" is too large: expected at most {} bytes, got {}. Split it over several keys.",
      store.describe(), key, kMaxValueBytes, value.size()));
}

}  // namespace hookline::store
