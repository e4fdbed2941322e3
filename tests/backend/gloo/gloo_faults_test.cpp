// Failures of gloo groups: missing, killed and stopped ranks are named before the timeout, and survivors can continue.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <thread>

#include <gmock/gmock.h>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/store/file_store.hpp>
#include <hookline/store/memory_store.hpp>

#include "harness/spawn.hpp"
#include "harness/temp_directory.hpp"

namespace hookline {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::shared_ptr<Backend> make_gloo(std::shared_ptr<Store> store, int rank, int size, Milliseconds timeout) {
  return make_backend("gloo", {.store = std::move(store),
                               .rank = rank,
                               .size = size,
                               .timeout = timeout,
                               .options = {{"address", "127.0.0.1"}}});
}

// A store that ignores delete_key.
class RetainingStore final : public Store {
 public:
  std::string describe() const override { return store_.describe(); }
  void set(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string get(const std::string& key) override { return store_.get(key); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_.add(key, amount); }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override { store_.wait(keys, timeout); }
  bool check(const std::vector<std::string>& keys) override { return store_.check(keys); }
  bool delete_key(const std::string&) override { return false; }
  std::int64_t num_keys() override { return store_.num_keys(); }

 private:
  MemoryStore store_;
};

class GlooFaults : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { testing::group_fixtures(); }  // sets the search path of transports

  // Progress of the ranks, in shared memory.
  struct Board {
    std::atomic<int> ready;
    std::atomic<int> signalled;
  };
  Board& board_ =
      *new (mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board{};

  void await_ready(int ranks) const {
    for (const auto deadline = deadline_after(seconds(30)); board_.ready < ranks && Clock::now() < deadline;) {
      std::this_thread::yield();
    }
  }

  // Forks a process that runs `body`; its exit status is 0 if the body returns without a failure.
  template <class F>
  static pid_t rank_process(F body) {
    const pid_t child = fork();
    if (child != 0) return child;
    int status = 1;
    try {
      body();
      status = ::testing::Test::HasFailure() ? 1 : 0;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    _exit(status);
  }
  static int exit_status(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const test::TempDirectory directory_;
};

TEST_F(GlooFaults, MissingRankIsNamed) {
  EXPECT_THAT([&] { make_gloo(std::make_shared<MemoryStore>(), 0, 3, Milliseconds(50)); },
              ThrowsMessage<Timeout>(HasSubstr("rank 1, 2 did not join")));
}

TEST_F(GlooFaults, UnreachableRankIsNamed) {
  // The store holds the keys of a rank that died before it connected.
  const auto before = std::make_shared<RetainingStore>();
  {
    std::vector<std::future<std::shared_ptr<Backend>>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::async(std::launch::async, make_gloo, before, rank, 3, seconds(60)));
    }
    std::vector<std::shared_ptr<Backend>> alive;
    for (auto& rank : ranks) alive.push_back(rank.get());
  }
  const auto store = std::make_shared<MemoryStore>();
  for (const char* const kind : {"address/gloo", "gloo"}) {
    store->set(kind + std::string("/1"), before->get(kind + std::string("/1")));
    store->add(kind + std::string("/count"), 1);
  }
  for (const char* const key : {"gloo/from/1/to/0", "gloo/from/1/to/2"}) store->set(key, before->get(key));
  std::thread other([&] { EXPECT_ANY_THROW(make_gloo(store, 2, 3, Milliseconds(600))); });
  EXPECT_THAT([&] { make_gloo(store, 0, 3, Milliseconds(600)); },
              ThrowsMessage<Error>(HasSubstr("rank 0 cannot connect to rank 1")));
  other.join();
}

TEST_F(GlooFaults, ForeignStoreDataIsAMismatch) {
  const auto store = std::make_shared<MemoryStore>();
  store->add("address/gloo/count", 1);
  store->add("gloo/count", 1);
  store->set("address/gloo/1", "nonsense");
  store->set("gloo/1", "=nonsense");
  store->set("gloo/from/1/to/0", "nonsense");
  EXPECT_THAT([&] { make_gloo(store, 0, 2, seconds(5)); }, ThrowsMessage<Mismatch>(HasSubstr("rank 1")));
}

TEST_F(GlooFaults, KilledPeerIsReportedBeforeTheTimeoutAndSurvivorsContinue) {
  constexpr int kRanks = 3;
  constexpr int kVictim = 1;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.push_back(rank_process([&, rank] {
      const std::string path = directory_ / "store";
      auto group = make_group(make_gloo(std::make_shared<FileStore>(path), rank, kRanks, seconds(30)), seconds(30));
      const Tensor t = Tensor::zeros({3'000'000});
      group->barrier()->wait();
      board_.ready.fetch_add(1);
      try {
        for (int i = 0;; ++i) group->allreduce(i % 2 ? t : t.slice(0, 0, 10))->wait();
      } catch (const PeerLost& e) {
        EXPECT_THAT(e.what(), HasSubstr("rank 1 died"));
      }
      EXPECT_THROW(group->barrier()->wait(), PeerLost) << "the first cause again";
      group->abort();
      group.reset();
      const int own = rank > kVictim ? rank - 1 : rank;
      make_group(make_gloo(std::make_shared<FileStore>(path + ".again"), own, kRanks - 1, seconds(30)), seconds(30))
          ->barrier()
          ->wait();
    }));
  }
  await_ready(kRanks);
  kill(children[kVictim], SIGKILL);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(exit_status(children[static_cast<std::size_t>(rank)]), rank == kVictim ? 128 + SIGKILL : 0) << rank;
  }
}

TEST_F(GlooFaults, SendAndRecvReportKilledPeer) {
  using Start = std::function<WorkPtr(ProcessGroup&)>;
  const std::vector<Start> starts = {
      [](ProcessGroup& group) { return group.recv(Tensor::zeros({10}), 3); },
      [](ProcessGroup& group) { return group.recv_anysource(Tensor::zeros({10})); },
      [](ProcessGroup& group) { return group.send(Tensor::zeros({1'000'000}), 3); },
  };
  std::vector<pid_t> children;
  for (int rank = 0; rank < 4; ++rank) {
    children.push_back(rank_process([&, rank] {
      auto group =
          make_group(make_gloo(std::make_shared<FileStore>(directory_ / "store"), rank, 4, seconds(30)), seconds(20));
      group->barrier()->wait();
      if (rank == 3) {
        board_.ready.fetch_add(1);
        for (;;) pause();
      }
      const WorkPtr work = starts[static_cast<std::size_t>(rank)](*group);
      board_.ready.fetch_add(1);
      EXPECT_THAT([&] { work->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 3 died")));
    }));
  }
  await_ready(4);
  kill(children[3], SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(exit_status(children[static_cast<std::size_t>(rank)]), rank == 3 ? 128 + SIGKILL : 0) << rank;
  }
}

TEST_F(GlooFaults, StoppedPeerCausesTimeoutAndAbortReturns) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(rank_process([&, rank] {
      auto group =
          make_group(make_gloo(std::make_shared<FileStore>(directory_ / "store"), rank, 2, seconds(30)), seconds(30));
      const Tensor t = Tensor::zeros({3'000'000});
      group->barrier()->wait();
      board_.ready.fetch_add(1);
      if (rank == 1) {
        for (;;) pause();  // stopped by the test, killed at its end
      }
      for (const auto until = deadline_after(seconds(30)); board_.signalled == 0 && Clock::now() < until;) {
        std::this_thread::yield();
      }
      EXPECT_THAT([&] { group->allreduce(t, {.timeout = Milliseconds(100)})->wait(); },
                  ThrowsMessage<Timeout>(HasSubstr("rank 1 did not join")));
      EXPECT_THROW(group->barrier()->wait(), Timeout);
      group->abort();
    }));
  }
  await_ready(2);
  kill(children[1], SIGSTOP);
  board_.signalled = 1;
  EXPECT_EQ(exit_status(children[0]), 0);
  kill(children[1], SIGKILL);
  EXPECT_EQ(exit_status(children[1]), 128 + SIGKILL);
}

// Gloo never completes an abandoned transfer, so the abort message must not queue behind it.
TEST_F(GlooFaults, AbortDuringTransferIsDelivered) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(rank_process([&, rank] {
      for (int round = 0; round < 5; ++round) {
        const auto store = std::make_shared<FileStore>(directory_ / ("store" + std::to_string(round)));
        const auto group = make_group(make_gloo(store, rank, 2, seconds(30)), seconds(30));
        const Tensor t = Tensor::zeros({20'000'000});
        group->allreduce(t)->wait();
        std::jthread aborts;
        const WorkPtr work = group->allreduce(t);
        if (rank == 1) {
          aborts = std::jthread([&] {
            std::this_thread::sleep_for(Milliseconds(10 + 5 * round));
            group->abort("enough of this");
          });
        }
        EXPECT_THAT(
            [&] {
              for (work->wait();;) group->allreduce(t)->wait();
            },
            ThrowsMessage<Aborted>(HasSubstr("enough of this")));
      }
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
}

TEST_F(GlooFaults, ForkedChildIsRejected) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(rank_process([&, rank] {
      auto group =
          make_group(make_gloo(std::make_shared<FileStore>(directory_ / "store"), rank, 2, seconds(30)), seconds(30));
      group->barrier()->wait();
      const pid_t forked = rank_process([&] {
        EXPECT_THAT([&] { (void)group->barrier(); }, ThrowsMessage<InvalidArgument>(HasSubstr("fork")));
        group.reset();
      });
      EXPECT_EQ(exit_status(forked), 0);
      group->barrier()->wait();
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
}

}  // namespace
}  // namespace hookline
