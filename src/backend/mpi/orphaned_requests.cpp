// A background thread tests orphaned requests and drains failed groups. It ends when idle and restarts on demand.
#include "backend/mpi/orphaned_requests.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/mpi/mpi_comm.hpp"
#include "backend/mpi/session.hpp"
#include "core/thread.hpp"

namespace hookline::mpi {
namespace {

// The interval between polls. It doubles while nothing arrives: a poll costs one probe for each group.
constexpr std::chrono::milliseconds kMinPollInterval{1};
constexpr std::chrono::milliseconds kMaxPollInterval{16};
constexpr std::chrono::seconds kDrainTime{10};  // longer than a peer waits for a cancelled request

struct DrainingComm {
  std::shared_ptr<MpiComm> comm;
  Clock::time_point deadline;
};

class OrphanReaper {
 public:
  // Never destroyed: MPI may access the memory until the process ends.
  static OrphanReaper& instance() {
    static auto* const reaper = new OrphanReaper;  // NOLINT(cppcoreguidelines-owning-memory)
    return *reaper;
  }

  void add(OrphanedRequest request) {
    const std::lock_guard lock(mutex_);
    orphans_.push_back(std::move(request));
    wake();
  }

  void add(DrainingComm comm) {
    const std::lock_guard lock(mutex_);
    draining_.push_back(std::move(comm));
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
    Clock::time_point deadline = Clock::now() + kDrainTime;
    std::vector<std::shared_ptr<MpiComm>> comms;
    for (std::chrono::milliseconds interval = kMinPollInterval;; interval = std::min(interval * 2, kMaxPollInterval)) {
      std::this_thread::sleep_for(interval);
      comms.clear();
      const MpiCallGuard guard;
      {
        const std::lock_guard lock(mutex_);
        const Clock::time_point now = Clock::now();
        std::erase_if(draining_, [&](const DrainingComm& l) { return now >= l.deadline; });
        for (const DrainingComm& l : draining_) {
          deadline = std::max(deadline, l.deadline);
          comms.push_back(l.comm);
        }
        if (now >= deadline || !guard) {
          running_ = false;
          return;
        }
        std::erase_if(orphans_, [](OrphanedRequest& request) {
          int done = 0;
          return MPI_Test(&request.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
        });
      }
      for (const auto& comm : comms) {
        while (comm->drain()) interval = kMinPollInterval;
      }
    }
  }

  std::mutex mutex_;
  std::vector<OrphanedRequest> orphans_;
  std::vector<DrainingComm> draining_;
  bool running_ = false;
};

}  // namespace

void retain(OrphanedRequest request) { OrphanReaper::instance().add(std::move(request)); }

void drain_in_background(std::shared_ptr<MpiComm> comm) {
  OrphanReaper::instance().add(DrainingComm{std::move(comm), Clock::now() + kDrainTime});
}

}  // namespace hookline::mpi
