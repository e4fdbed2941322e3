// Polls processes, the parent group and the store for failures while a group is being created.
#include "backend/bootstrap.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/host.hpp"
#include "backend/store_allgather.hpp"
#include "core/hash.hpp"

namespace hookline::backend {
namespace {

using std::chrono::milliseconds;

thread_local Bootstrap* current_bootstrap = nullptr;

constexpr Milliseconds kFirstPollDelay{50};
constexpr Milliseconds kPollInterval{100};       // between polls of processes and the parent group
constexpr Milliseconds kStorePollInterval{200};  // between polls of the store, in a small group
constexpr Milliseconds kMaxStorePollInterval{600};
// A dying process closes its connections before its pidfd becomes readable: 61 ms before for a process of 512 MB.
constexpr Milliseconds kExitGrace{500};

constexpr const char* kProcessCountKey = "count";
constexpr const char* kDoneKey = "done";
constexpr const char* kFailedKey = "failed";
std::string process_key(std::int64_t i) { return fmt::format("process/{}", i); }

// Returns field 22 of /proc/<pid>/stat; empty if the process does not exist. Field 2, the name, may contain spaces and
// parentheses.
std::string start_time(pid_t pid) {
  const core::FileDescriptor file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> text = {};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return {};
  std::string_view rest(text.data());
  rest.remove_prefix(std::min(rest.rfind(')'), rest.size()));
  constexpr int kFieldsAfterName = 20;
  for (int i = 0; i < kFieldsAfterName; ++i) {
    const std::size_t space = rest.find(' ');
    if (space == std::string_view::npos) return {};
    rest.remove_prefix(space + 1);
  }
  return std::string(rest.substr(0, rest.find(' ')));
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t end = text.find(at);
    fields.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return fields;
    text.remove_prefix(end + 1);
  }
}

bool read_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// A published failure has three lines: kind, ranks, text.
constexpr std::string_view kPeerLostKind = "PeerLost";
constexpr std::string_view kTimeoutKind = "Timeout";
constexpr std::string_view kAbortedKind = "Aborted";

std::string encode(std::string_view kind, const std::vector<int>& ranks, const std::string& text) {
  return fmt::format("{}\n{}\n{}", kind, fmt::join(ranks, ","), text);
}

}  // namespace

Milliseconds bootstrap_poll_interval() {
  if (!current_bootstrap) return kMaxTimeout;
  if (current_bootstrap->started_ == current_bootstrap->next_poll_ - kFirstPollDelay) return kFirstPollDelay;
  return std::clamp(milliseconds(current_bootstrap->options_.size), kStorePollInterval, kMaxStorePollInterval);
}

void check_bootstrap() {
  check_interrupt();
  Bootstrap* const bootstrap = current_bootstrap;
  if (!bootstrap) return;
  const Clock::time_point now = Clock::now();
  if (now < bootstrap->next_poll_) return;
  const Milliseconds store_interval = bootstrap_poll_interval();
  bootstrap->next_poll_ = now + kPollInterval;
  const bool poll_store = now >= bootstrap->next_store_poll_;
  if (poll_store) bootstrap->next_store_poll_ = now + std::max(store_interval, kStorePollInterval) - kPollInterval / 2;
  bootstrap->poll(poll_store);
}

int global_rank(int rank) {
  if (!current_bootstrap) return rank;
  const std::vector<int>& members = current_bootstrap->subgroup_ranks_;
  return rank >= 0 && static_cast<std::size_t>(rank) < members.size() ? members[static_cast<std::size_t>(rank)] : rank;
}

std::vector<int> global_ranks(const std::vector<int>& ranks) {
  std::vector<int> result;
  result.reserve(ranks.size());
  for (const int rank : ranks) result.push_back(global_rank(rank));
  return result;
}

SubgroupScope::SubgroupScope(std::vector<int> members) : members_(std::move(members)) {
  if (current_bootstrap) current_bootstrap->subgroup_ranks_.swap(members_);
}

SubgroupScope::~SubgroupScope() {
  if (current_bootstrap) current_bootstrap->subgroup_ranks_.swap(members_);
}

Bootstrap::Bootstrap(BootstrapOptions options)
    : options_(std::move(options)),
      subgroup_ranks_(options_.members),
      outer_(std::exchange(current_bootstrap, this)),
      started_(Clock::now()),
      next_poll_(started_ + kFirstPollDelay),
      next_store_poll_(started_) {
  try {
    if (options_.store && !options_.dead_ranks && options_.size > 1) announce_process();
  } catch (...) {
    const std::exception_ptr error = diagnose(std::current_exception());
    current_bootstrap = outer_;
    std::rethrow_exception(error);
  }
}

Bootstrap::~Bootstrap() { current_bootstrap = outer_; }

std::string Bootstrap::context() const { return fmt::format("{} on rank {}", options_.operation, options_.rank); }

void Bootstrap::announce_process() {
  host_ = fmt::format("{:016x}", core::hash_bytes(host_identity()));
  const std::int64_t i = options_.store->add(kProcessCountKey, 1) - 1;
  options_.store->set(process_key(i),
                      fmt::format("{} {} {} {}", options_.rank, host_, ::getpid(), start_time(::getpid())));
}

// Reads the processes announced since the last poll. Skips a rank that died after it incremented the count and before
// it wrote its value.
void Bootstrap::discover_processes() {
  const std::int64_t size = options_.size;
  if (options_.dead_ranks || processes_read_ >= size) return;
  Store& store = *options_.store;
  const std::int64_t count = std::min(store.add(kProcessCountKey, 0), size);
  std::vector<std::string> keys;
  for (std::int64_t i = processes_read_; i < count; ++i) keys.push_back(process_key(i));
  if (keys.empty()) return;
  if (!store.check(keys)) {
    std::erase_if(keys, [&](const std::string& key) { return !store.check({key}); });
    for (const std::string& key : keys) watch_process(store.get(key));
    return;  // the next poll reads these keys again; watch_process() ignores duplicates
  }
  for (const std::string& process : store.multi_get(keys)) watch_process(process);
  processes_read_ = count;
}

void Bootstrap::watch_process(const std::string& process) {
  const std::vector<std::string_view> fields = split(process, ' ');
  int rank = -1;
  int pid = 0;
  if (fields.size() != 4 || !read_number(fields[0], rank) || !read_number(fields[2], pid)) return;
  announced_.push_back(rank);
  if (fields[1] != host_ || pid <= 0 || pid == ::getpid()) return;
  const auto same = [&](const Process& p) { return p.rank == rank; };
  if (std::any_of(processes_.begin(), processes_.end(), same)) return;
  core::FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd && errno != ESRCH) return;  // cannot be watched: out of descriptors, or a sandbox
  if (pidfd && start_time(pid) != fields[3]) pidfd = core::FileDescriptor();  // the pid was reused: the process is dead
  processes_.push_back({rank, std::move(pidfd)});
}

std::vector<int> Bootstrap::find_dead(Milliseconds timeout) const {
  std::vector<int> dead;
  if (options_.dead_ranks) {
    for (const int rank : options_.dead_ranks()) {  // may contain ranks that are not members of the new group
      if (std::find(options_.members.begin(), options_.members.end(), rank) != options_.members.end())
        dead.push_back(rank);
    }
    if (dead.empty() && timeout > Milliseconds(0)) ::poll(nullptr, 0, static_cast<int>(timeout.count()));
    return dead;
  }
  std::vector<pollfd> entries;
  entries.reserve(processes_.size());
  for (const Process& process : processes_) {
    entries.push_back({process.pidfd.get(), POLLIN, 0});
    if (!process.pidfd) dead.push_back(process.rank);
  }
  ::poll(entries.data(), entries.size(), dead.empty() ? static_cast<int>(timeout.count()) : 0);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (processes_[i].pidfd && entries[i].revents != 0) dead.push_back(processes_[i].rank);
  }
  return dead;
}

// Ignores errors of the store: the wait that called this function, or its caller, gets the same error from the store.
void Bootstrap::poll(bool poll_store, Milliseconds timeout) {
  if (poll_store && options_.store) {
    try {
      discover_processes();
    } catch (const Error&) {
    }
  }
  const std::vector<int> dead = find_dead(timeout);
  if (!dead.empty()) report_dead(dead);
  if (poll_store && options_.store) check_failed_key();
  if (poll_store && options_.ended) check_exited_ranks();
}

// Ignores announced ranks: they may have created the group and exited normally. Pidfds and connections report their
// deaths.
void Bootstrap::check_exited_ranks() {
  std::vector<int> exited;
  try {
    exited = options_.ended();
    if (exited.empty()) return;
    discover_processes();
  } catch (const Error&) {
    return;
  }
  std::erase_if(exited,
                [&](int rank) { return std::find(announced_.begin(), announced_.end(), rank) != announced_.end(); });
  if (!exited.empty()) {
    report_dead(exited, fmt::format("rank {} exited before it called {}, as the launcher reports. Check its output.",
                                    fmt::join(exited, ", "), options_.operation));
  }
}

void Bootstrap::check_failed_key() {
  std::string published;
  try {
    if (!options_.store->check({kFailedKey})) return;
    published = options_.store->get(kFailedKey);
  } catch (const Error&) {
    return;
  }
  throw_published(published);
}

// All ranks report the failure that was published first. Otherwise a rank that polls late could blame a survivor that
// has exited after the failure.
void Bootstrap::report_dead(const std::vector<int>& dead, const std::string& text) {
  std::string published = encode(kPeerLostKind, dead, text);
  if (options_.store) {
    try {
      published = set_once(*options_.store, kFailedKey, published);
    } catch (const Error&) {
    }
  }
  throw_published(published);
}

void Bootstrap::throw_published(const std::string& published) {
  const std::size_t first = published.find('\n');
  const std::size_t second = first == std::string::npos ? first : published.find('\n', first + 1);
  const std::string_view kind = std::string_view(published).substr(0, first);
  std::vector<int> ranks;
  std::string text = "another rank failed";
  if (second != std::string::npos) {
    text = published.substr(second + 1);
    for (const std::string_view field : split(std::string_view(published).substr(first + 1, second - first - 1), ',')) {
      int rank = 0;
      if (read_number(field, rank)) ranks.push_back(rank);
    }
  }
  if (kind == kPeerLostKind) {
    text = text.empty() ? fmt::format("{}: rank {} died during group creation. Create a new group without it.",
                                      context(), fmt::join(ranks, ", "))
                        : fmt::format("{}: {}", context(), text);
    failure_ = std::make_exception_ptr(PeerLost(text, ranks));
  } else if (kind == kTimeoutKind) {
    failure_ = std::make_exception_ptr(Timeout(fmt::format("{}: {}", context(), text), ranks));
  } else {
    failure_ = std::make_exception_ptr(
        Aborted(fmt::format("{}: rank {} failed: {}", context(), fmt::join(ranks, ", "), text), ranks));
  }
  std::rethrow_exception(failure_);
}

void Bootstrap::publish_error(const std::exception_ptr& error) {
  if (!options_.store) return;
  std::string published;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    if (e.ranks().empty()) return;
    published = encode(kPeerLostKind, e.ranks(), e.what());
  } catch (const Timeout& e) {
    published = encode(kTimeoutKind, e.ranks(), e.what());
  } catch (const std::exception& e) {
    published = encode(kAbortedKind, {options_.rank}, e.what());
  } catch (...) {
    published = encode(kAbortedKind, {options_.rank}, "an exception of an unknown type");
  }
  try {
    set_once(*options_.store, kFailedKey, published);
  } catch (const Error&) {
    // The other ranks fail at their timeout.
  }
}

// Returns the error to report for `error`: a dead rank if one is found within the grace period, because sockets close
// before a process has exited.
std::exception_ptr Bootstrap::diagnose(const std::exception_ptr& error) {
  if (failure_) return failure_;
  Milliseconds grace{0};
  bool is_hookline_error = true;
  bool store_lost = false;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    grace = kExitGrace;
    store_lost = e.ranks().empty();
  } catch (const Aborted&) {
    grace = kExitGrace;
  } catch (const Timeout&) {
    grace = Milliseconds(1);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {
  } catch (const std::exception&) {
    grace = kExitGrace;
    is_hookline_error = false;
  } catch (...) {
  }
  const InterruptScope uninterrupted(nullptr);
  const Clock::time_point end = deadline_after(grace);
  try {
    while (grace > Milliseconds(0) && time_left(end) > Milliseconds(0))
      poll(true, std::min(kFirstPollDelay, time_left(end)));
    if (store_lost && options_.store_rank >= 0 && options_.store_rank != options_.rank)
      report_dead({options_.store_rank});
  } catch (const Error&) {
    if (!failure_) throw;
    try {
      std::rethrow_exception(failure_);
    } catch (const PeerLost& e) {
      return std::make_exception_ptr(PeerLost(e.what(), e.ranks(), error));
    } catch (...) {
      return failure_;
    }
  }
  publish_error(error);
  if (is_hookline_error) return error;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return std::make_exception_ptr(ResourceError(fmt::format("{}: {}", context(), e.what()), error));
  }
}

void Bootstrap::finish() {
  if (!options_.store || options_.dead_ranks) return;
  Store& store = *options_.store;
  const std::int64_t size = options_.size;
  try {
    if (size > 1) {
      if (store.add(kDoneKey, 1) != size) return;
      for (std::int64_t i = 0; i < size; ++i) store.delete_key(process_key(i));
      for (const char* const key : {kProcessCountKey, kFailedKey, kDoneKey}) store.delete_key(key);
    }
    if (options_.delete_keys) options_.delete_keys();
  } catch (const Error&) {
    // The group exists; the rank that serves the store may have exited.
  }
}

}  // namespace hookline::backend
