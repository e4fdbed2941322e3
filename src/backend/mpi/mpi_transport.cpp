// The mpi transport: point-to-point MPI messages on MPI_COMM_WORLD or on a communicator given as an option.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/backend/transport.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/mpi/mpi_comm.hpp"
#include "backend/mpi/mpi_request.hpp"
#include "backend/mpi/orphaned_requests.hpp"
#include "backend/mpi/session.hpp"
#include "backend/store_allgather.hpp"
#include "core/hash.hpp"

namespace hookline::mpi {
namespace {

constexpr const char* kCommunicatorOption = "communicator";

/// Blocks until all ranks have joined through the store. MPI's own collective would wait for a missing rank forever.
/// The store also decides once, for all ranks, whether the join succeeded.
void await_all_ranks(Store& store, const std::string& prefix, const std::vector<int>& ranks, int own,
                     Milliseconds timeout, const std::string& group) {
  const auto own_index = static_cast<int>(std::find(ranks.begin(), ranks.end(), own) - ranks.begin());
  try {
    backend::store_allgather(store, prefix, own_index, static_cast<int>(ranks.size()), "", deadline_after(timeout));
  } catch (const Timeout& e) {
    throw Timeout(
        fmt::format("{}: rank {} did not join within {} ms", group, fmt::join(e.ranks(), ", "), timeout.count()),
        e.ranks());
  }
}

/// A Transport over MPI.
class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiComm> comm, std::shared_ptr<Store> store)
      : comm_(std::move(comm)), store_(std::move(store)) {}
  ~MpiTransport() override { close(); }

  std::string name() const override { return "mpi"; }
  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }

  std::unique_ptr<Request> send(int destination, MessageTag tag, const std::byte* data, std::size_t bytes) override {
    // MPI_Isend does not write to the buffer.
    auto* const memory = const_cast<std::byte*>(data);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    return std::make_unique<MpiRequest>(comm_, MpiRequest::Kind::send, destination, tag, memory, bytes);
  }

  std::unique_ptr<Request> receive(int source, MessageTag tag, std::byte* data, std::size_t capacity) override {
    return std::make_unique<MpiRequest>(comm_, MpiRequest::Kind::receive, source, tag, data, capacity);
  }

  std::unique_ptr<Request> receive_any(MessageTag tag, std::byte* data, std::size_t capacity) override {
    try {
      return receive(MPI_ANY_SOURCE, tag, data, capacity);
    } catch (const PeerLost&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the listener thread retries at once
      throw;
    }
  }

  void throw_if_disconnected(int rank) override {
    if (comm_->is_dead(rank)) throw PeerLost(fmt::format("the process of rank {} ended", rank), {rank});
  }

  void on_peer_departed(int rank) noexcept override { comm_->mark_departed(rank); }

  void close() noexcept override {
    if (comm_->size() == 1 || comm_->closed()) return;
    comm_->close();
    try {
      comm_->begin_draining();
      drain_in_background(comm_);
    } catch (const std::bad_alloc&) {
      // Without draining, the peers' sends to this rank end at their timeouts.
    }
  }

  std::shared_ptr<Transport> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                          Milliseconds timeout) override {
    if (store_) {
      const auto store = store_->clone_for_waiting();
      await_all_ranks(store ? *store : *store_, fmt::format("mpi/{}", name), ranks, rank(), timeout,
                      fmt::format("new_group of ranks {} of an mpi group", fmt::join(ranks, ", ")));
    }
    const MpiCallGuard guard;
    if (!guard) throw ResourceError(guard.reason());
    MPI_Group parent_group = MPI_GROUP_NULL;
    MPI_Group subgroup = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_call(MPI_Comm_group(comm_->parent(), &parent_group), "MPI_Comm_group");
    check_call(MPI_Group_incl(parent_group, static_cast<int>(ranks.size()), ranks.data(), &subgroup), "MPI_Group_incl");
    constexpr std::size_t kTags = (1U << 15U) - 1;
    const auto tag = 1 + static_cast<int>(core::hash_bytes(name) % kTags);
    check_call(MPI_Comm_create_group(comm_->parent(), subgroup, tag, &comm), "MPI_Comm_create_group");
    MPI_Group_free(&subgroup);
    MPI_Group_free(&parent_group);
    // Subgroup names are unique only within their parent.
    const auto store = store_ ? std::make_shared<PrefixStore>(name, store_) : nullptr;
    return std::make_shared<MpiTransport>(std::make_shared<MpiComm>(comm), store);
  }

 private:
  const std::shared_ptr<MpiComm> comm_;
  const std::shared_ptr<Store> store_;
};

/// Returns the communicator whose MPI_Comm_c2f handle is in the options, or MPI_COMM_WORLD.
MPI_Comm chosen_communicator(const TransportConfig& config) {
  MPI_Comm comm = MPI_COMM_WORLD;
  for (const auto& [name, value] : config.options) {
    if (name != kCommunicatorOption) {
      throw InvalidArgument(fmt::format("mpi: unknown option: expected '{}', got '{}'", kCommunicatorOption, name));
    }
    MPI_Fint handle = 0;
    const char* const end = value.data() + value.size();
    const auto [at, error] = std::from_chars(value.data(), end, handle);
    if (error != std::errc() || at != end) {
      throw InvalidArgument(fmt::format(
          "mpi: the option communicator is invalid: expected a handle from MPI_Comm_c2f (py2f() of mpi4py), got '{}'",
          value));
    }
    comm = MPI_Comm_f2c(handle);
    if (comm == MPI_COMM_NULL) {
      throw InvalidArgument(
          fmt::format("mpi: the option communicator is invalid: got the null communicator ({})", value));
    }
  }
  return comm;
}

std::shared_ptr<Transport> make_mpi_transport(const TransportConfig& config) {
  const std::string group = fmt::format("an mpi group of {} ranks", config.size);
  std::vector<int> ranks(static_cast<std::size_t>(config.size));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  if (config.store) await_all_ranks(*config.store, "mpi/here", ranks, config.rank, config.timeout, group);
  init_mpi();
  const MpiCallGuard guard;
  if (!guard) throw ResourceError(guard.reason());
  const MPI_Comm parent = chosen_communicator(config);
  int size = 0;
  check_call(MPI_Comm_size(parent, &size), "MPI_Comm_size");
  if (size != config.size) {
    throw InvalidArgument(fmt::format(
        "{}: wrong number of MPI processes: expected {}, got {}. Start the program with the mpirun (or srun) of the "
        "MPI that the mpi transport is built with, and pass its rank and size.",
        group, config.size, size));
  }
  MPI_Comm handle = MPI_COMM_NULL;
  check_call(MPI_Comm_split(parent, 0, config.rank, &handle), "MPI_Comm_split");
  auto comm = std::make_shared<MpiComm>(handle);
  if (comm->rank() != config.rank) {
    throw InvalidArgument(
        fmt::format("{}: several processes have rank {}. Give each process a rank of its own.", group, config.rank));
  }
  return std::make_shared<MpiTransport>(std::move(comm), config.store);
}

}  // namespace
}  // namespace hookline::mpi

HOOKLINE_REGISTER_TRANSPORT(hookline::mpi::make_mpi_transport)
