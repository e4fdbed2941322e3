// One message of MPI's, which somebody looks at again and again until it is through.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>

#include <hookline/backend/engine.hpp>

#include "backend/mpi/link.hpp"

namespace hookline::mpi {

class MpiMessage final : public Message {
 public:
  enum class Kind : std::uint8_t { sent, received };

  /// Posts it. Throws PeerLost. `peer` is MPI_ANY_SOURCE for a receive from anybody.
  MpiMessage(std::shared_ptr<Link> link, Kind kind, int peer, MessageAddress address, void* data, std::size_t bytes);
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;
  ~MpiMessage() override;

  bool wait(bool urgent) override;
  void nudge() noexcept override { nudged_.store(true); }
  int source() const noexcept override { return source_; }

 private:
  /// Whether it is through. Throws PeerLost.
  bool test();
  void give_up() noexcept;
  /// Whether MPI does not need the copy any more.
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
  Clock::time_point left_at_;  ///< when the peer was first seen to have left
  std::atomic<bool> nudged_ = false;
};

}  // namespace hookline::mpi
