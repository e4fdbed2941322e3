// Exchanges one message each way between every two ranks; the lower rank sends first.
#include "backend/mpi/identity_exchange.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "backend/mpi/session.hpp"
#include "core/hash.hpp"

namespace hookline::mpi {
namespace {

constexpr int kIdentityTag = 0;
// On oversubscribed cores a sleep returns sooner than sched_yield.
constexpr std::chrono::microseconds kPollInterval{50};

Identity own_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  if (boot_id.empty()) {  // some sandboxes hide the boot id
    std::array<char, MPI_MAX_PROCESSOR_NAME> name = {};
    int length = 0;
    check_call(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name");
    boot_id.assign(name.data(), static_cast<std::size_t>(length));
  }
  std::error_code ignored;
  const std::string pid_namespace = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  return {core::hash_bytes(boot_id + pid_namespace), ::getpid()};
}

void wait_all(std::vector<MPI_Request>& requests) {
  for (int done = 0;;) {
    check_call(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
               "MPI_Testall");
    if (done != 0) return;
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

std::vector<Identity> exchange_identities(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  check_call(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_call(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  const Identity own = own_identity();
  std::vector<Identity> all(static_cast<std::size_t>(size), own);
  for (const bool lower_sends : {true, false}) {
    std::vector<MPI_Request> requests(all.size(), MPI_REQUEST_NULL);
    for (int peer = 0; peer < size; ++peer) {
      const auto i = static_cast<std::size_t>(peer);
      if (peer == rank) continue;
      if ((rank < peer) == lower_sends) {
        check_call(MPI_Isend(&own, sizeof own, MPI_BYTE, peer, kIdentityTag, comm, &requests[i]), "MPI_Isend");
      } else {
        check_call(MPI_Irecv(&all[i], sizeof all[i], MPI_BYTE, peer, kIdentityTag, comm, &requests[i]), "MPI_Irecv");
      }
    }
    wait_all(requests);
  }
  return all;
}

}  // namespace hookline::mpi
