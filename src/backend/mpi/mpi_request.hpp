// A nonblocking MPI send or receive, completed by polling.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

#include <hookline/backend/transport.hpp>

#include "backend/mpi/mpi_comm.hpp"

namespace hookline::mpi {

/// One MPI_Isend or MPI_Irecv. The destructor returns when MPI no longer accesses the caller's buffer.
class MpiRequest final : public Request {
 public:
  enum class Kind : std::uint8_t { send, receive };

  /// Posts the request. `peer` may be MPI_ANY_SOURCE for a receive. Throws PeerLost.
  MpiRequest(std::shared_ptr<MpiComm> comm, Kind kind, int peer, MessageTag tag, void* data, std::size_t bytes);
  MpiRequest(const MpiRequest&) = delete;
  MpiRequest& operator=(const MpiRequest&) = delete;
  ~MpiRequest() override;

  bool wait(WaitPolicy policy) override;
  void interrupt() noexcept override { interrupted_.store(true); }
  int source() const noexcept override { return source_; }

 private:
  /// True if the request has completed. Throws PeerLost.
  bool test();
  void release() noexcept;
  /// True if MPI no longer needs the copy.
  bool is_send_complete() noexcept;
  void cancel() noexcept;
  bool is_done() noexcept;
  void wait_or_poison();
  [[noreturn]] void throw_peer_lost(const std::string& reason) const;

  const std::shared_ptr<MpiComm> comm_;
  const Kind kind_;
  const int peer_;
  int source_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::unique_ptr<std::byte[]> copy_;  // NOLINT(modernize-avoid-c-arrays)
  bool completed_ = false;
  Clock::time_point departed_at_;  ///< when wait() first saw that the peer has departed
  std::atomic<bool> interrupted_ = false;
};

}  // namespace hookline::mpi
