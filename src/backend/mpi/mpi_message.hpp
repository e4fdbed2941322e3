// A nonblocking MPI send or receive, completed by polling.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

#include <hookline/backend/engine.hpp>

#include "backend/mpi/link.hpp"

namespace hookline::mpi {

/// One MPI_Isend or MPI_Irecv. The destructor returns when MPI no longer accesses the caller's buffer.
class MpiMessage final : public Message {
 public:
  enum class Kind : std::uint8_t { sent, received };

  /// Posts the request. `peer` may be MPI_ANY_SOURCE for a receive. Throws PeerLost.
  MpiMessage(std::shared_ptr<Link> link, Kind kind, int peer, MessageAddress address, void* data, std::size_t bytes);
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;
  ~MpiMessage() override;

  bool wait(bool urgent) override;
  void nudge() noexcept override { nudged_.store(true); }
  int source() const noexcept override { return source_; }

 private:
  /// True if the request has completed. Throws PeerLost.
  bool test();
  void give_up() noexcept;
  /// True if MPI no longer needs the copy.
  bool has_gone_out() noexcept;
  void cancel() noexcept;
  bool is_over() noexcept;
  void end_soon();
  [[noreturn]] void lost(const std::string& why) const;

  const std::shared_ptr<Link> link_;
  const Kind kind_;
  const int peer_;
  int source_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::unique_ptr<std::byte[]> copy_;  // NOLINT(modernize-avoid-c-arrays)
  bool through_ = false;
  Clock::time_point left_at_;  ///< when wait() first saw that the peer has departed
  std::atomic<bool> nudged_ = false;
};

}  // namespace hookline::mpi
