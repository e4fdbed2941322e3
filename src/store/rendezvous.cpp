// Opens the store that a RendezvousPlan describes.
#include <hookline/store/rendezvous.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/store/file_store.hpp>
#include <hookline/store/tcp_store.hpp>

#include "core/fork.hpp"
#include "core/hash.hpp"
#include "store/rendezvous_plan.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): not every C library's headers have it

namespace hookline {

namespace {

using store::RendezvousPlan;

constexpr const char* kOpenedKey = "rendezvous/opened";

store::Environment current_environment() {
  store::Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

/// Returns the pid and start time of the parent, which identify jobs of launchers without job ids.
std::string parent_fingerprint() {
  const pid_t parent = ::getppid();
  std::ifstream file(fmt::format("/proc/{}/stat", parent));
  std::ostringstream text;
  text << file.rdbuf();
  std::string fields = text.str();
  fields.erase(0, fields.rfind(')') + 1);  // the program name may contain spaces
  std::istringstream rest(fields);
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  return fmt::format("parent={} start={}", parent, field);
}

/// Creates a directory with mode 0700, or checks one that another rank has created.
void make_private_directory(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    throw ResourceError(
        fmt::format("rendezvous: cannot create the directory {}: {}. Set TMPDIR to a writable directory.", path,
                    std::generic_category().message(errno)));
  }
  struct stat info{};
  const bool known = ::lstat(path.c_str(), &info) == 0;
  if (!known || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 07777) != S_IRWXU) {
    throw ResourceError(fmt::format(
        "rendezvous: {} is not a directory of this user with mode 0700; another user may have created it. Remove it, "
        "or set TMPDIR to a private directory.",
        path));
  }
}

/// Returns the job's file store for this rank. Reuses the store that this process opened before: the file is unlinked
/// once all ranks have opened it, so a second open would create another file.
std::shared_ptr<Store> open_job_file(const RendezvousPlan& plan, Milliseconds timeout) {
  struct Opened {
    std::uint64_t fork_generation = 0;
    std::shared_ptr<FileStore> store;
  };
  static std::recursive_mutex mutex;  // recursive, since a signal handler may call this function again
  static std::map<std::pair<std::string, int>, Opened> opened;

  const std::string job = plan.job.empty() ? parent_fingerprint() : plan.job;
  const std::string directory =
      fmt::format("{}/hookline-{}-{:016x}", plan.directory, ::geteuid(), core::hash_bytes(job));
  const std::lock_guard lock(mutex);
  Opened& entry = opened[{directory, plan.rank}];
  if (entry.store && entry.fork_generation == core::fork_generation()) {
    entry.store->set_timeout(timeout);
    return entry.store;
  }
  make_private_directory(directory);
  auto file = std::make_shared<FileStore>(directory + "/store", -1, timeout);
  // A rank whose first attempt failed may retry before the others have opened the file.
  const bool first_time = file->add(fmt::format("{}/{}", kOpenedKey, plan.rank), 1) == 1;
  if (first_time && file->add(kOpenedKey, 1) == plan.world_size) {
    // All ranks have opened the file, so it is unlinked now and cannot be left behind.
    ::unlink(file->path().c_str());
    ::rmdir(directory.c_str());
  }
  entry = {core::fork_generation(), file};
  return file;
}

/// Returns a client of this process's server at the given address, starting the server if needed. Servers live until
/// the process exits: other ranks may enter a second rendezvous earlier, or leave the first one later, than this rank.
std::shared_ptr<Store> connect_to_own_server(const TCPStoreOptions& options) {
  struct Served {
    std::uint64_t fork_generation;
    std::shared_ptr<TCPStore> store;
  };
  using ServerKey = std::tuple<std::string, std::uint16_t, bool>;
  static std::recursive_mutex mutex;  // recursive, since a signal handler may call this function again
  // Never destroyed, so that server threads do not run during static destruction.
  static auto* const servers = new std::map<ServerKey, Served>;  // NOLINT(cppcoreguidelines-owning-memory)

  const std::lock_guard lock(mutex);
  const std::uint64_t generation = core::fork_generation();
  ServerKey key(options.host, options.port, options.listen_on_all_interfaces);
  auto entry = servers->find(key);
  if (entry == servers->end() || entry->second.fork_generation != generation) {
    auto server = std::make_shared<TCPStore>(options);
    std::get<std::uint16_t>(key) = server->port();
    entry = servers->insert_or_assign(std::move(key), Served{generation, std::move(server)}).first;
  }
  auto store = entry->second.store->clone();
  store->set_timeout(options.timeout);
  return store;
}

std::shared_ptr<Store> open_store(const RendezvousPlan& plan, Milliseconds timeout) {
  switch (plan.kind) {
    case RendezvousPlan::Kind::file:
      return std::make_shared<FileStore>(plan.path, plan.remove_file ? plan.world_size : -1, timeout);
    case RendezvousPlan::Kind::job_file: return open_job_file(plan, timeout);
    case RendezvousPlan::Kind::tcp: break;
  }
  TCPStoreOptions options{.host = plan.host,
                          .port = plan.port,
                          .is_master = plan.is_master,
                          .timeout = timeout,
                          .wait_for_workers = false,  // group creation names the missing ranks
                          .listen_on_all_interfaces = plan.listen_on_all_interfaces};
  if (plan.joins_agent_store) options.token = "";
  if (plan.is_master) return connect_to_own_server(options);
  return std::make_shared<TCPStore>(options);
}

}  // namespace

Rendezvous rendezvous(const std::string& init_method, std::optional<int> rank, std::optional<int> world_size,
                      Milliseconds timeout) {
  const RendezvousPlan plan = store::plan_rendezvous(init_method, rank, world_size, current_environment());
  return {open_store(plan, timeout), plan.rank, plan.world_size, plan.local_rank, plan.server_rank};
}

}  // namespace hookline
