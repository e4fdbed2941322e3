// Background completion of abandoned MPI requests, and draining of groups whose peers may still send.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

namespace hookline::mpi {

class MpiComm;

/// An abandoned request and its buffer.
struct OrphanedRequest {
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<std::byte[]> memory;  // NOLINT(modernize-avoid-c-arrays)
};

/// Keeps the request and its buffer alive until MPI completes it. A background thread polls all of them.
void retain(OrphanedRequest request);

/// Drains a group on the background thread for some seconds, so that peers can complete their sends to it.
void drain_in_background(std::shared_ptr<MpiComm> comm);

}  // namespace hookline::mpi
