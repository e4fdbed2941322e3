// Messages that nobody waits for any more but MPI still has, and groups whose peers may still send.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

namespace hookline::mpi {

class Link;

/// A request that was given up, with the memory that it needs.
struct Leftover {
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<std::byte[]> memory;  // NOLINT(modernize-avoid-c-arrays)
};

/// Keeps it until MPI is through with it. A thread of the process looks at all of them now and then.
void keep(Leftover leftover);

/// Has that thread drain a group for a while, so that peers which still send to it can end.
void linger(std::shared_ptr<Link> link);

}  // namespace hookline::mpi
