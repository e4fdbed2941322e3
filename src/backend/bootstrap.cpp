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
#include "backend/meeting.hpp"
#include "core/hash.hpp"

namespace hookline::backend {
namespace {

using std::chrono::milliseconds;

thread_local Bootstrap* current = nullptr;

constexpr Milliseconds kFirstLook{50};
constexpr Milliseconds kLook{100};       // between polls of processes and the parent group
constexpr Milliseconds kStoreLook{200};  // between polls of the store, in a small group
constexpr Milliseconds kMostStoreLook{600};
// A dying process closes its connections before its pidfd becomes readable: 61 ms before for a process of 512 MB.
constexpr Milliseconds kLinger{500};

constexpr const char* kCount = "count";
constexpr const char* kDone = "done";
constexpr const char* kFailed = "failed";
std::string process_key(std::int64_t i) { return fmt::format("process/{}", i); }

// Returns field 22 of /proc/<pid>/stat; empty if the process does not exist. Field 2, the name, may contain spaces and
// parentheses.
std::string start_time(pid_t pid) {
  const core::Descriptor file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
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
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool read_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// A published failure has three lines: kind, ranks, text.
constexpr std::string_view kLost = "PeerLost";
constexpr std::string_view kTimeout = "Timeout";
constexpr std::string_view kGaveUp = "Aborted";

std::string encode(std::string_view kind, const std::vector<int>& ranks, const std::string& text) {
  return fmt::format("{}\n{}\n{}", kind, fmt::join(ranks, ","), text);
}

}  // namespace

Milliseconds bootstrap_period() {
  if (!current) return kLongestTimeout;
  if (current->started_ == current->next_look_ - kFirstLook) return kFirstLook;
  return std::clamp(milliseconds(current->options_.size), kStoreLook, kMostStoreLook);
}

void check_bootstrap() {
  check_interrupt();
  Bootstrap* const bootstrap = current;
  if (!bootstrap) return;
  const Clock::time_point now = Clock::now();
  if (now < bootstrap->next_look_) return;
  const Milliseconds store_look = bootstrap_period();
  bootstrap->next_look_ = now + kLook;
  const bool at_store = now >= bootstrap->next_store_look_;
  if (at_store) bootstrap->next_store_look_ = now + std::max(store_look, kStoreLook) - kLook / 2;
  bootstrap->look(at_store);
}

int global_rank(int rank) {
  if (!current) return rank;
  const std::vector<int>& members = current->part_;
  return rank >= 0 && static_cast<std::size_t>(rank) < members.size() ? members[static_cast<std::size_t>(rank)] : rank;
}

std::vector<int> global_ranks(const std::vector<int>& ranks) {
  std::vector<int> numbers;
  numbers.reserve(ranks.size());
  for (const int rank : ranks) numbers.push_back(global_rank(rank));
  return numbers;
}

PartScope::PartScope(std::vector<int> members) : members_(std::move(members)) {
  if (current) current->part_.swap(members_);
}

PartScope::~PartScope() {
  if (current) current->part_.swap(members_);
}

Bootstrap::Bootstrap(BootstrapOptions options)
    : options_(std::move(options)),
      part_(options_.members),
      outer_(std::exchange(current, this)),
      started_(Clock::now()),
      next_look_(started_ + kFirstLook),
      next_store_look_(started_) {
  try {
    if (options_.place && !options_.dead && options_.size > 1) announce_process();
  } catch (...) {
    const std::exception_ptr error = explain(std::current_exception());
    current = outer_;
    std::rethrow_exception(error);
  }
}

Bootstrap::~Bootstrap() { current = outer_; }

std::string Bootstrap::context() const { return fmt::format("{} on rank {}", options_.operation, options_.rank); }

void Bootstrap::announce_process() {
  host_ = fmt::format("{:016x}", core::hash_of(host_identity()));
  const std::int64_t i = options_.place->add(kCount, 1) - 1;
  options_.place->set(process_key(i),
                      fmt::format("{} {} {} {}", options_.rank, host_, ::getpid(), start_time(::getpid())));
}

// Reads the processes announced since the last poll. A rank that died between its two writes left no value: it is
// skipped.
void Bootstrap::learn_processes() {
  const std::int64_t size = options_.size;
  if (options_.dead || known_ >= size) return;
  Store& place = *options_.place;
  const std::int64_t count = std::min(place.add(kCount, 0), size);
  std::vector<std::string> keys;
  for (std::int64_t i = known_; i < count; ++i) keys.push_back(process_key(i));
  if (keys.empty()) return;
  if (!place.check(keys)) {
    std::erase_if(keys, [&](const std::string& key) { return !place.check({key}); });
    for (const std::string& key : keys) watch(place.get(key));
    return;  // the next poll reads these keys again; watch_process() ignores duplicates
  }
  for (const std::string& process : place.multi_get(keys)) watch(process);
  known_ = count;
}

void Bootstrap::watch(const std::string& process) {
  const std::vector<std::string_view> fields = split(process, ' ');
  int rank = -1;
  int pid = 0;
  if (fields.size() != 4 || !read_number(fields[0], rank) || !read_number(fields[2], pid)) return;
  announced_.push_back(rank);
  if (fields[1] != host_ || pid <= 0 || pid == ::getpid()) return;
  const auto same = [&](const Process& p) { return p.rank == rank; };
  if (std::any_of(processes_.begin(), processes_.end(), same)) return;
  core::Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd && errno != ESRCH) return;  // cannot be watched: out of descriptors, or a sandbox
  if (pidfd && start_time(pid) != fields[3]) pidfd = core::Descriptor();  // the pid was reused: the process is dead
  processes_.push_back({rank, std::move(pidfd)});
}

std::vector<int> Bootstrap::find_dead(Milliseconds wait) const {
  std::vector<int> dead;
  if (options_.dead) {
    for (const int rank : options_.dead()) {  // may contain ranks that are not members of the new group
      if (std::find(options_.members.begin(), options_.members.end(), rank) != options_.members.end())
        dead.push_back(rank);
    }
    if (dead.empty() && wait > Milliseconds(0)) ::poll(nullptr, 0, static_cast<int>(wait.count()));
    return dead;
  }
  std::vector<pollfd> entries;
  entries.reserve(processes_.size());
  for (const Process& process : processes_) {
    entries.push_back({process.pidfd.get(), POLLIN, 0});
    if (!process.pidfd) dead.push_back(process.rank);
  }
  ::poll(entries.data(), entries.size(), dead.empty() ? static_cast<int>(wait.count()) : 0);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (processes_[i].pidfd && entries[i].revents != 0) dead.push_back(processes_[i].rank);
  }
  return dead;
}

// Ignores errors of the store: the wait that polls, or its caller, gets the same error itself.
void Bootstrap::look(bool at_store, Milliseconds wait) {
  if (at_store && options_.place) {
    try {
      learn_processes();
    } catch (const Error&) {
    }
  }
  const std::vector<int> dead = find_dead(wait);
  if (!dead.empty()) lose(dead);
  if (at_store && options_.place) look_at_failed();
  if (at_store && options_.ended) look_at_ended();
}

// A rank that came may have made its group and ended well since; pidfds and connections tell of those.
void Bootstrap::look_at_ended() {
  std::vector<int> absent;
  try {
    absent = options_.ended();
    if (absent.empty()) return;
    learn_processes();
  } catch (const Error&) {
    return;
  }
  std::erase_if(absent,
                [&](int rank) { return std::find(announced_.begin(), announced_.end(), rank) != announced_.end(); });
  if (!absent.empty()) {
    lose(absent, fmt::format("rank {} ended without coming to {}, as the launcher reports; see its output",
                             fmt::join(absent, ", "), options_.operation));
  }
}

void Bootstrap::look_at_failed() {
  std::string failed;
  try {
    if (!options_.place->check({kFailed})) return;
    failed = options_.place->get(kFailed);
  } catch (const Error&) {
    return;
  }
  decide(failed);
}

// The first published failure is the failure of all ranks: a survivor that exits soon looks dead to ranks that poll
// later.
void Bootstrap::lose(const std::vector<int>& dead, const std::string& text) {
  std::string failed = encode(kLost, dead, text);
  if (options_.place) {
    try {
      failed = set_once(*options_.place, kFailed, failed);
    } catch (const Error&) {
    }
  }
  decide(failed);
}

void Bootstrap::decide(const std::string& failed) {
  const std::size_t first = failed.find('\n');
  const std::size_t second = first == std::string::npos ? first : failed.find('\n', first + 1);
  const std::string_view kind = std::string_view(failed).substr(0, first);
  std::vector<int> ranks;
  std::string text = "another rank failed";
  if (second != std::string::npos) {
    text = failed.substr(second + 1);
    for (const std::string_view part : split(std::string_view(failed).substr(first + 1, second - first - 1), ',')) {
      int rank = 0;
      if (read_number(part, rank)) ranks.push_back(rank);
    }
  }
  if (kind == kLost) {
    text = text.empty() ? fmt::format("{}: rank {} died during group creation. Make a new group without it.",
                                      context(), fmt::join(ranks, ", "))
                        : fmt::format("{}: {}", context(), text);
    decided_ = std::make_exception_ptr(PeerLost(text, ranks));
  } else if (kind == kTimeout) {
    decided_ = std::make_exception_ptr(Timeout(fmt::format("{}: {}", context(), text), ranks));
  } else {
    decided_ = std::make_exception_ptr(
        Aborted(fmt::format("{}: rank {} gave up: {}", context(), fmt::join(ranks, ", "), text), ranks));
  }
  std::rethrow_exception(decided_);
}

void Bootstrap::publish(const std::exception_ptr& error) {
  if (!options_.place) return;
  std::string failed;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    if (e.ranks().empty()) return;
    failed = encode(kLost, e.ranks(), e.what());
  } catch (const Timeout& e) {
    failed = encode(kTimeout, e.ranks(), e.what());
  } catch (const std::exception& e) {
    failed = encode(kGaveUp, {options_.rank}, e.what());
  } catch (...) {
    failed = encode(kGaveUp, {options_.rank}, "an exception of an unknown type");
  }
  try {
    set_once(*options_.place, kFailed, failed);
  } catch (const Error&) {
    // The other ranks fail at their timeout.
  }
}

// Waits up to the grace period for proof of a death: a socket closes before the process has exited.
std::exception_ptr Bootstrap::explain(const std::exception_ptr& error) {
  if (decided_) return decided_;
  Milliseconds linger{0};
  bool ours = true;
  bool store_lost = false;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    linger = kLinger;
    store_lost = e.ranks().empty();
  } catch (const Aborted&) {
    linger = kLinger;
  } catch (const Timeout&) {
    linger = Milliseconds(1);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {
  } catch (const std::exception&) {
    linger = kLinger;
    ours = false;
  } catch (...) {
  }
  const InterruptScope uninterrupted(nullptr);
  const Clock::time_point end = deadline_after(linger);
  try {
    while (linger > Milliseconds(0) && time_left(end) > Milliseconds(0))
      look(true, std::min(kFirstLook, time_left(end)));
    if (store_lost && options_.store_rank >= 0 && options_.store_rank != options_.rank) lose({options_.store_rank});
  } catch (const Error&) {
    if (!decided_) throw;
    try {
      std::rethrow_exception(decided_);
    } catch (const PeerLost& e) {
      return std::make_exception_ptr(PeerLost(e.what(), e.ranks(), error));
    } catch (...) {
      return decided_;
    }
  }
  publish(error);
  if (ours) return error;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return std::make_exception_ptr(ResourceError(fmt::format("{}: {}", context(), e.what()), error));
  }
}

void Bootstrap::finish() {
  if (!options_.place || options_.dead) return;
  Store& place = *options_.place;
  const std::int64_t size = options_.size;
  try {
    if (size > 1) {
      if (place.add(kDone, 1) != size) return;
      for (std::int64_t i = 0; i < size; ++i) place.delete_key(process_key(i));
      for (const char* const key : {kCount, kFailed, kDone}) place.delete_key(key);
    }
    if (options_.clean) options_.clean();
  } catch (const Error&) {
    // The group exists; the rank that serves the store may have exited.
  }
}

}  // namespace hookline::backend
