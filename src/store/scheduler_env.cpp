// Parsing of Slurm host lists and Open MPI addresses.
#include "store/scheduler_env.hpp"

#include <algorithm>
#include <charconv>

namespace hookline::store {

namespace {

// The ports are below 32768, where Linux's ephemeral ports start.
constexpr std::uint16_t kFirstPort = 15000;
constexpr std::uint64_t kPorts = 15000;

/// Returns the number at the start of `text`; 0 if there is none or it overflows.
std::uint64_t leading_number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Returns a port for a job step: consecutive jobs have consecutive ports, and steps of a job have distinct ones.
std::uint16_t job_port(std::uint64_t job, std::uint64_t step) {
  constexpr std::uint64_t kStepStride = 7919;  // a prime, so that ports of adjacent jobs rarely collide
  return static_cast<std::uint16_t>(kFirstPort + (job % kPorts + (step % kPorts) * kStepStride) % kPorts);
}

}  // namespace

std::string first_host(std::string_view list) {
  std::string host;
  std::size_t position = 0;
  while (position < list.size() && list[position] != ',') {
    if (list[position] != '[') {
      host.push_back(list[position++]);
      continue;
    }
    const std::size_t end = std::min(list.find(']', position), list.size());
    const std::string_view range = list.substr(position + 1, end - position - 1);
    host.append(range.substr(0, range.find_first_of("-,")));
    position = std::min(end + 1, list.size());
  }
  return host;
}

std::optional<MasterEndpoint> slurm_master(const Environment& environment) {
  std::string host;
  // The step's list comes first: a step may use a subset of the job's hosts.
  for (const std::string_view name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    host = first_host(value_of(environment, name));
    if (!host.empty()) break;
  }
  // The host that called srun, which is the first host in a batch script.
  if (host.empty()) host = value_of(environment, "SLURM_LAUNCH_NODE_IPADDR");
  const std::uint64_t job = leading_number(value_of(environment, "SLURM_JOB_ID"));
  if (host.empty() || job == 0) return std::nullopt;
  return MasterEndpoint{host, job_port(job, leading_number(value_of(environment, "SLURM_STEP_ID")))};
}

std::optional<MasterEndpoint> open_mpi_master(const Environment& environment, int rank) {
  // "887947264.0;tcp://10.0.0.1,...:49019"
  const std::string_view mpirun_uri = value_of(environment, "OMPI_MCA_orte_hnp_uri");
  if (rank == 0 && value_of(environment, "OMPI_MCA_orte_local_daemon_uri") != mpirun_uri) return std::nullopt;
  constexpr std::string_view kScheme = ";tcp://";
  const std::size_t position = mpirun_uri.find(kScheme);
  if (position == std::string_view::npos) return std::nullopt;
  const std::string_view addresses = mpirun_uri.substr(position + kScheme.size());
  const std::string_view host = addresses.substr(0, addresses.find_first_of(",:;"));
  const std::uint64_t job = leading_number(mpirun_uri);
  if (host.empty() || job == 0) return std::nullopt;
  return MasterEndpoint{std::string(host), job_port(job >> 16U, 0)};  // the low 16 bits number the jobs of one mpirun
}

}  // namespace hookline::store
