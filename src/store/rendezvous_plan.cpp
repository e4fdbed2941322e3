// Determines store and rank from arguments and environment.
#include "store/rendezvous_plan.hpp"

#include <arpa/inet.h>

#include <array>
#include <limits>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "store/scheduler_env.hpp"
#include "store/store_error.hpp"
#include "store/url.hpp"

namespace hookline::store {

namespace {

/// The environment variables of a launcher; empty if it has none.
struct LauncherVariables {
  std::string_view rank;
  std::string_view world_size;
  std::string_view local_rank;
  std::string_view local_size;
};

// In order of precedence: Open MPI also sets PMIX_RANK, and Slurm's PMI plug-ins set PMI_RANK.
constexpr std::array kLaunchers = {
    LauncherVariables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                      "OMPI_COMM_WORLD_LOCAL_SIZE"},
    LauncherVariables{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
    LauncherVariables{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
    LauncherVariables{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    LauncherVariables{"PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"},
};

constexpr std::string_view kVariableAdvice =
    "hookline run, torchrun, mpirun and srun set it; without a launcher, set it or pass the values as arguments";

[[noreturn]] void throw_missing_variable(std::string_view name, std::string_view advice = kVariableAdvice) {
  throw InvalidArgument(
      fmt::format("env:// rendezvous: environment variable {} expected, but not set; {}", name, advice));
}

const LauncherVariables* find_launcher(const Environment& environment) {
  for (const LauncherVariables& launcher : kLaunchers) {
    if (!value_of(environment, launcher.rank).empty() && !value_of(environment, launcher.world_size).empty())
      return &launcher;
  }
  return nullptr;
}

/// A number and its source: an environment variable, query parameter or argument.
struct SourcedNumber {
  int value;
  std::string_view source;
};

/// Returns the value of the variable `name` or of the launcher's equivalent.
std::optional<SourcedNumber> sourced_number(const Environment& environment, std::string_view name,
                                            std::string_view launcher_name) {
  for (const std::string_view variable : {name, launcher_name}) {
    if (const auto text = value_of(environment, variable); !text.empty())
      return SourcedNumber{parse_number(variable, text), variable};
  }
  return std::nullopt;
}

std::optional<int> number(const Environment& environment, std::string_view name, std::string_view launcher_name) {
  const auto found = sourced_number(environment, name, launcher_name);
  return found ? std::optional(found->value) : std::nullopt;
}

/// Returns the variables that are equal in all processes of a job and differ between jobs.
std::string job_fingerprint(const Environment& environment) {
  std::string job;
  for (const auto& [name, value] : environment) {
    const bool identifies_job = name == "PMIX_NAMESPACE" || name.starts_with("PMIX_SERVER_URI") ||
                                name == "OMPI_MCA_orte_precondition_transports" || name == "SLURM_JOB_ID" ||
                                name == "SLURM_STEP_ID" || name == "SLURM_RESTART_COUNT" ||
                                name == "SLURM_SRUN_COMM_PORT";
    if (identifies_job) job.append(name).append("=").append(value).append("\n");
  }
  return job;
}

/// True if the launcher's variables say that the job spans several hosts.
bool has_several_hosts(const Environment& environment, const LauncherVariables* launcher, int world_size) {
  const auto local_size = number(environment, "LOCAL_WORLD_SIZE", launcher ? launcher->local_size : "");
  const auto nodes = number(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES");
  const bool slurm = launcher && launcher->rank.starts_with("SLURM");
  return (local_size && *local_size != world_size) || (slurm && nodes && *nodes > 1);
}

/// Returns MASTER_PORT, or `fallback` if it is not set. Throws InvalidArgument if both are missing.
std::uint16_t master_port(const Environment& environment, std::optional<std::uint16_t> fallback = std::nullopt) {
  const std::string_view port = value_of(environment, "MASTER_PORT");
  if (port.empty() && fallback) return *fallback;
  if (port.empty()) throw_missing_variable("MASTER_PORT");
  const int value = parse_number("MASTER_PORT", port);
  if (value < 0 || value > std::numeric_limits<std::uint16_t>::max()) {
    throw InvalidArgument(
        fmt::format("env:// rendezvous: MASTER_PORT must have value from 0 to 65535 but was {}", value));
  }
  return static_cast<std::uint16_t>(value);
}

/// Returns the address of rank 0 in a multi-host job. Throws InvalidArgument if the scheduler does not provide it.
MasterEndpoint scheduler_master(const Environment& environment, const LauncherVariables& launcher, int rank) {
  std::optional<MasterEndpoint> master;
  if (launcher.rank.starts_with("SLURM")) master = slurm_master(environment);
  if (launcher.rank.starts_with("OMPI")) master = open_mpi_master(environment, rank);
  if (master) return *master;
  throw_missing_variable("MASTER_ADDR",
                         "this job has several hosts: set MASTER_ADDR and MASTER_PORT to the address of rank 0 "
                         "(pass variables with -x in Open MPI's mpirun, with -genv in MPICH's; srun passes all)");
}

bool is_numeric(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 || ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

/// True if HOOKLINE_STORE names the TCP store of `hookline run --nnodes`.
bool launcher_serves(const Environment& environment) {
  return value_of(environment, "HOOKLINE_STORE").starts_with("tcp://");
}

void set_location_from_url(RendezvousPlan& plan, const Url& url, std::string_view init_method) {
  if (url.scheme == "file") {
    if (url.path.empty() || !(url.host.empty() || url.host == "localhost")) {
      throw InvalidArgument(
          fmt::format("rendezvous(\"{}\"): path missing; write file:///path, with three slashes", init_method));
    }
    plan.kind = RendezvousPlan::Kind::file;
    plan.path = url.path;
    plan.remove_file = true;
  } else {
    if (url.host.empty())
      throw InvalidArgument(fmt::format("rendezvous(\"{}\"): host missing; write tcp://host:port", init_method));
    if (!url.port)
      throw InvalidArgument(fmt::format("rendezvous(\"{}\"): port number missing; write tcp://host:port", init_method));
    plan.host = url.host;
    plan.port = *url.port;
  }
}

void set_location_from_env(RendezvousPlan& plan, const Environment& environment, const LauncherVariables* launcher) {
  if (const auto path = value_of(environment, "HOOKLINE_STORE"); !path.empty()) {
    if (launcher_serves(environment)) return set_location_from_url(plan, parse_url(path), path);
    plan.kind = RendezvousPlan::Kind::file;
    plan.path = path;
    return;
  }
  const bool several_hosts = has_several_hosts(environment, launcher, plan.world_size);
  if (const auto host = value_of(environment, "MASTER_ADDR"); !host.empty()) {
    plan.host = host;
    plan.port = master_port(environment);
  } else if (!launcher) {
    throw_missing_variable("MASTER_ADDR");
  } else if (several_hosts) {
    const MasterEndpoint master = scheduler_master(environment, *launcher, plan.rank);
    plan.host = master.host;
    plan.port = master_port(environment, master.port);
  } else {
    plan.kind = RendezvousPlan::Kind::job_file;
    plan.job = job_fingerprint(environment);
    const std::string_view temporary = value_of(environment, "TMPDIR");
    plan.directory = temporary.empty() ? "/tmp" : temporary;
    return;
  }
  plan.listen_on_all_interfaces = several_hosts && !is_numeric(plan.host);
}

}  // namespace

std::string_view value_of(const Environment& environment, std::string_view name) {
  const auto entry = environment.find(name);
  return entry == environment.end() ? std::string_view() : std::string_view(entry->second);
}

RendezvousPlan plan_rendezvous(std::string_view init_method, std::optional<int> rank, std::optional<int> world_size,
                               const Environment& environment) {
  const Url url = parse_url(init_method);
  const bool from_environment = url.scheme == "env";
  if (!from_environment && url.scheme != "file" && url.scheme != "tcp") {
    throw InvalidArgument(fmt::format("rendezvous(\"{}\"): unknown scheme {}://: expected env://, file:// or tcp://",
                                      init_method, url.scheme));
  }
  const LauncherVariables* launcher = from_environment ? find_launcher(environment) : nullptr;

  const auto resolve_number = [&](const char* name, std::optional<int> argument, std::string_view variable,
                                  std::string_view launcher_name) -> SourcedNumber {
    const auto in_url = url.query.find(name);
    if (in_url != url.query.end() && argument) {
      throw InvalidArgument(
          fmt::format("rendezvous(\"{}\"): {} is given both in the URL and as an argument", init_method, name));
    }
    if (in_url != url.query.end()) return {parse_number(name, in_url->second), name};
    if (argument) return {*argument, name};
    if (!from_environment) {
      throw InvalidArgument(fmt::format("rendezvous(\"{}\"): {} parameter missing; add ?{}=… or pass it as an argument",
                                        init_method, name, name));
    }
    const auto value = sourced_number(environment, variable, launcher_name);
    if (!value) throw_missing_variable(variable);
    return *value;
  };

  RendezvousPlan plan;
  plan.rank = resolve_number("rank", rank, "RANK", launcher ? launcher->rank : "").value;
  const SourcedNumber size =
      resolve_number("world_size", world_size, "WORLD_SIZE", launcher ? launcher->world_size : "");
  check_world_size_range(fmt::format("rendezvous(\"{}\")", init_method), size.source, size.value);
  plan.world_size = size.value;
  if (plan.rank < 0 || plan.rank >= plan.world_size) {
    throw InvalidArgument(fmt::format("rendezvous(\"{}\"): rank {} is out of range for world_size {}", init_method,
                                      plan.rank, plan.world_size));
  }
  if (from_environment) {
    set_location_from_env(plan, environment, launcher);
  } else {
    set_location_from_url(plan, url, init_method);
  }
  const LauncherVariables* local = launcher ? launcher : find_launcher(environment);
  const bool one_host = plan.kind != RendezvousPlan::Kind::tcp;
  plan.local_rank =
      number(environment, "LOCAL_RANK", local ? local->local_rank : "").value_or(one_host ? plan.rank : -1);
  const bool joins_launcher_store = from_environment && launcher_serves(environment);
  plan.joins_agent_store = !joins_launcher_store && value_of(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  const bool rank_serves = plan.kind == RendezvousPlan::Kind::tcp && !joins_launcher_store && !plan.joins_agent_store;
  plan.server_rank = rank_serves ? 0 : -1;
  plan.is_master = rank_serves && plan.rank == 0;
  return plan;
}

}  // namespace hookline::store
