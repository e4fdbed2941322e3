// Compares the launcher, Open MPI's mpirun or MPICH's Hydra, with the MPI that the transport library links.
#include "backend/mpi_launcher.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>

#include "backend/p2p/load_transport.hpp"

namespace hookline::backend {
namespace {

bool is_number(const char* variable, int number) {
  const char* const value = std::getenv(variable);
  return value && value == std::to_string(number);
}

// True if the loaded transport library links Open MPI.
bool has_open_mpi() {
  for (const auto& path : p2p::library_paths("mpi")) {
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (!library) continue;
    const bool found = dlsym(library, "ompi_mpi_comm_world") != nullptr;
    dlclose(library);
    return found;
  }
  return false;
}

}  // namespace

bool is_started_by_mpirun(int size) {
  const bool open_mpi = is_number("OMPI_COMM_WORLD_SIZE", size);
  // srun also sets PMI_SIZE.
  const bool hydra = is_number("PMI_SIZE", size) && std::getenv("MPI_LOCALNRANKS");
  if (!open_mpi && !hydra) return false;
  try {
    check_backend("mpi");
  } catch (const Unsupported&) {
    return false;
  }
  return has_open_mpi() ? open_mpi : hydra;
}

}  // namespace hookline::backend
