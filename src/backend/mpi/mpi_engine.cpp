// The mpi transport: point-to-point MPI messages on MPI_COMM_WORLD or on a communicator given as an option.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/backend/engine.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/meeting.hpp"
#include "backend/mpi/leftovers.hpp"
#include "backend/mpi/link.hpp"
#include "backend/mpi/mpi_message.hpp"
#include "backend/mpi/session.hpp"
#include "core/hash.hpp"

namespace hookline::mpi {
namespace {

constexpr const char* kCommunicator = "communicator";

/// Blocks until all ranks have joined through the store. MPI's own collective would wait for a missing rank forever.
/// The store also decides once, for all ranks, whether the join succeeded.
void await_all(Store& store, const std::string& prefix, const std::vector<int>& ranks, int own, Milliseconds timeout,
               const std::string& what) {
  const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), own) - ranks.begin());
  try {
    backend::meet(store, prefix, place, static_cast<int>(ranks.size()), "", deadline_after(timeout));
  } catch (const Timeout& e) {
    throw Timeout(
        fmt::format("{}: rank {} did not come within {} ms", what, fmt::join(e.ranks(), ", "), timeout.count()),
        e.ranks());
  }
}

/// A Transport over MPI.
class MpiEngine final : public Engine {
 public:
  MpiEngine(std::shared_ptr<Link> link, std::shared_ptr<Store> store)
      : link_(std::move(link)), store_(std::move(store)) {}
  ~MpiEngine() override { close(); }

  std::string name() const override { return "mpi"; }
  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }

  std::unique_ptr<Message> send(int to, MessageAddress address, const std::byte* data, std::size_t bytes) override {
    // MPI_Isend does not write to the buffer.
    auto* const memory = const_cast<std::byte*>(data);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    return std::make_unique<MpiMessage>(link_, MpiMessage::Kind::sent, to, address, memory, bytes);
  }

  std::unique_ptr<Message> receive(int from, MessageAddress address, std::byte* data, std::size_t room) override {
    return std::make_unique<MpiMessage>(link_, MpiMessage::Kind::received, from, address, data, room);
  }

  std::unique_ptr<Message> receive_any(MessageAddress address, std::byte* data, std::size_t room) override {
    try {
      return receive(MPI_ANY_SOURCE, address, data, room);
    } catch (const PeerLost&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the listener thread retries in a loop
      throw;
    }
  }

  void check(int rank) override {
    if (link_->is_dead(rank)) throw PeerLost(fmt::format("the process of rank {} ended", rank), {rank});
  }

  void left(int rank) noexcept override { link_->set_left(rank); }

  void close() noexcept override {
    if (link_->size() == 1 || link_->closed()) return;
    link_->close();
    try {
      link_->begin_draining();
      linger(link_);
    } catch (const std::bad_alloc&) {
      // Without draining, the peers' sends to this rank end at their timeouts.
    }
  }

  std::shared_ptr<Engine> subset(const std::vector<int>& ranks, const std::string& name,
                                 Milliseconds timeout) override {
    if (store_) {
      const auto store = store_->clone_for_waiting();
      await_all(store ? *store : *store_, fmt::format("mpi/{}", name), ranks, rank(), timeout,
                fmt::format("new_group of ranks {} of an mpi group", fmt::join(ranks, ", ")));
    }
    const Calling calling;
    if (!calling) throw ResourceError(calling.why());
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_call(MPI_Comm_group(link_->parent(), &all), "MPI_Comm_group");
    check_call(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
    constexpr std::size_t kTags = (1U << 15U) - 1;
    const auto tag = 1 + static_cast<int>(core::hash_of(name) % kTags);
    check_call(MPI_Comm_create_group(link_->parent(), some, tag, &comm), "MPI_Comm_create_group");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    // Subgroup names are unique only within their parent.
    const auto store = store_ ? std::make_shared<PrefixStore>(name, store_) : nullptr;
    return std::make_shared<MpiEngine>(std::make_shared<Link>(comm), store);
  }

 private:
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<Store> store_;
};

/// Returns the communicator whose MPI_Comm_c2f handle is in the options, or MPI_COMM_WORLD.
MPI_Comm chosen_communicator(const EngineSetting& setting) {
  MPI_Comm comm = MPI_COMM_WORLD;
  for (const auto& [name, value] : setting.options) {
    if (name != kCommunicator) {
      throw InvalidArgument(fmt::format("mpi: unknown option: expected '{}', got '{}'", kCommunicator, name));
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

std::shared_ptr<Engine> make_mpi_engine(const EngineSetting& setting) {
  const std::string what = fmt::format("an mpi group of {} ranks", setting.size);
  std::vector<int> ranks(static_cast<std::size_t>(setting.size));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  if (setting.store) await_all(*setting.store, "mpi/here", ranks, setting.rank, setting.timeout, what);
  begin_session();
  const Calling calling;
  if (!calling) throw ResourceError(calling.why());
  const MPI_Comm given = chosen_communicator(setting);
  int size = 0;
  check_call(MPI_Comm_size(given, &size), "MPI_Comm_size");
  if (size != setting.size) {
    throw InvalidArgument(fmt::format(
        "{}: wrong number of MPI processes: expected {}, got {}. Start the program with the mpirun (or srun) of the "
        "MPI that the mpi transport is built with, and pass its rank and size.",
        what, setting.size, size));
  }
  MPI_Comm own = MPI_COMM_NULL;
  check_call(MPI_Comm_split(given, 0, setting.rank, &own), "MPI_Comm_split");
  auto link = std::make_shared<Link>(own);
  if (link->rank() != setting.rank) {
    throw InvalidArgument(fmt::format("{}: several processes have rank {}. Give each process a rank of its own.", what,
                                      setting.rank));
  }
  return std::make_shared<MpiEngine>(std::move(link), setting.store);
}

}  // namespace
}  // namespace hookline::mpi

HOOKLINE_ENGINE(hookline::mpi::make_mpi_engine)
