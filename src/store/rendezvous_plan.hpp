// What to do for a rendezvous, as a function of its arguments and the environment alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hookline::store {

using Environment = std::map<std::string, std::string, std::less<>>;

/// Of a variable; empty where there is none of that name.
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
  /// Whether this process is to keep the TCP server.
  bool is_master = false;
  int server_rank = -1;  ///< see Rendezvous
  /// Whether that server listens on all interfaces: by its own name a host may know itself as 127.0.1.1.
  bool listens_everywhere = false;
  /// True if torchrun's agent keeps the server: PyTorch's, which knows no token.
  bool joins_torch_store = false;

  std::string path = {};
  /// Whether the file store shall remove its file in the end, as PyTorch's does for file://.
  bool removes_file = false;

  /// What tells this job from all others on the host; empty where only the parent process can tell.
  std::string job = {};
  /// Where the private directory goes.
  std::string directory = {};
};

/// Throws InvalidArgument, naming what is missing or wrong and what would set it.
RendezvousPlan plan_rendezvous(std::string_view init_method, std::optional<int> rank, std::optional<int> world_size,
                               const Environment& environment);

}  // namespace hookline::store
