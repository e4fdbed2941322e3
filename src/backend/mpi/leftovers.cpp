// A background thread tests orphaned requests and drains failed groups. It ends when idle and restarts on demand.
#include "backend/mpi/leftovers.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/mpi/link.hpp"
#include "backend/mpi/session.hpp"
#include "core/thread.hpp"

namespace hookline::mpi {
namespace {

// The interval between polls. It doubles while nothing arrives: a poll costs one probe for each group.
constexpr std::chrono::milliseconds kShortest{1};
constexpr std::chrono::milliseconds kLongest{16};
constexpr std::chrono::seconds kLinger{10};  // longer than a peer waits for a cancelled request

struct Lingering {
  std::shared_ptr<Link> link;
  Clock::time_point until;
};

class Keeper {
 public:
  // Never destroyed: MPI may access the memory until the process ends.
  static Keeper& get() {
    static auto* const keeper = new Keeper;  // NOLINT(cppcoreguidelines-owning-memory)
    return *keeper;
  }

  void add(Leftover leftover) {
    const std::lock_guard lock(mutex_);
    leftovers_.push_back(std::move(leftover));
    wake();
  }

  void add(Lingering lingering) {
    const std::lock_guard lock(mutex_);
    lingering_.push_back(std::move(lingering));
    wake();
  }

 private:
  void wake() {
    if (running_) return;
    running_ = true;
    core::start_thread("hookline-mpi", [this] { run(); }).detach();
  }

  // The thread lives while groups are being drained. Orphaned requests alone do not keep it alive, since some never
  // complete.
  void run() {
    Clock::time_point until = Clock::now() + kLinger;
    std::vector<std::shared_ptr<Link>> links;
    for (std::chrono::milliseconds between = kShortest;; between = std::min(between * 2, kLongest)) {
      std::this_thread::sleep_for(between);
      links.clear();
      const Calling calling;
      {
        const std::lock_guard lock(mutex_);
        const Clock::time_point now = Clock::now();
        std::erase_if(lingering_, [&](const Lingering& l) { return now >= l.until; });
        for (const Lingering& l : lingering_) {
          until = std::max(until, l.until);
          links.push_back(l.link);
        }
        if (now >= until || !calling) {
          running_ = false;
          return;
        }
        std::erase_if(leftovers_, [](Leftover& leftover) {
          int done = 0;
          return MPI_Test(&leftover.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
        });
      }
      for (const auto& link : links) {
        while (link->drain()) between = kShortest;
      }
    }
  }

  std::mutex mutex_;
  std::vector<Leftover> leftovers_;
  std::vector<Lingering> lingering_;
  bool running_ = false;
};

}  // namespace

void keep(Leftover leftover) { Keeper::get().add(std::move(leftover)); }

void linger(std::shared_ptr<Link> link) { Keeper::get().add(Lingering{std::move(link), Clock::now() + kLinger}); }

}  // namespace hookline::mpi
