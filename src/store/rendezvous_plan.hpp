// RendezvousPlan: which store to open, as a pure function of the arguments and the environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hookline::store {

using Environment = std::map<std::string, std::string, std::less<>>;

/// Returns the value of a variable; empty if unset.
std::string_view value_of(const Environment& environment, std::string_view name);

struct RendezvousPlan {
  enum class Kind {
    tcp,       ///< at host and port
    file,      ///< at path
    job_file,  ///< in a private directory named after `job`
  };
  Kind kind = Kind::tcp;
  int rank = 0;
  int world_size = 1;
  int local_rank = -1;

  std::string host = {};
  std::uint16_t port = 0;
  /// True if this process runs the TCP server.
  bool is_master = false;
  int server_rank = -1;  ///< see Rendezvous
  /// True if the server listens on all interfaces. Needed since a host may resolve its own name to 127.0.1.1.
  bool listen_on_all_interfaces = false;
  /// True if torchrun's agent runs the server. That is PyTorch's server, which does not support tokens.
  bool joins_agent_store = false;

  std::string path = {};
  /// True if the file store removes its file at the end, as in PyTorch for file://.
  bool remove_file = false;

  /// Identifies the job on this host; empty if only the parent process identifies it.
  std::string job = {};
  /// The parent of the private directory.
  std::string directory = {};
};

/// Returns the plan. Throws InvalidArgument naming the missing or invalid variable or parameter and how to set it.
RendezvousPlan plan_rendezvous(std::string_view init_method, std::optional<int> rank, std::optional<int> world_size,
                               const Environment& environment);

}  // namespace hookline::store
